//! Splits a request target and decodes its path.

use crate::http::target::split_absolute;

/// The parts of a request target (RFC 9112 section 3.2).
pub struct Target<'a> {
    /// Only the absolute form has one.
    pub host: Option<&'a [u8]>,
    pub path: &'a [u8],
    /// Without the question mark; empty if there is none.
    pub query: &'a [u8],
}

impl<'a> Target<'a> {
    pub fn split(target: &'a [u8]) -> Self {
        let (host, rest) = match split_absolute(target) {
            Some((host, rest)) => (Some(host), rest),
            None => (None, target),
        };
        match memchr::memchr(b'?', rest) {
            Some(at) => Self { host, path: &rest[..at], query: &rest[at + 1..] },
            None => Self { host, path: rest, query: b"" },
        }
    }
}

/// Decodes the percent escapes of a path, in `buffer` if there are any; invalid escapes stay as
/// they are. `http://host` is `http://host/` (RFC 9110 section 4.2.3), and `OPTIONS *` has no path.
pub fn decode_path<'a>(path: &'a [u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
    match path {
        [] => b"/",
        b"*" => b"",
        _ if memchr::memchr(b'%', path).is_none() => path,
        _ => {
            buffer.clear();
            decode_percent(path, buffer);
            buffer
        }
    }
}

fn decode_percent(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let digit = |at: usize| rest.get(at).and_then(|byte| (*byte as char).to_digit(16));
        match (digit(at + 1), digit(at + 2)) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &rest[at + 3..];
            }
            _ => {
                out.push(b'%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once() {
        let decode = |path: &[u8]| decode_path(path, &mut Vec::new()).to_vec();
        assert_eq!(decode(b"/a%20b%2Fc%2525"), b"/a b/c%25");
        assert_eq!(decode(b"/%zz%4"), b"/%zz%4");
        assert_eq!(decode(b"/%C3%A9"), "/é".as_bytes());
        assert_eq!(decode(b""), b"/");
        assert_eq!(decode(b"*"), b"");
    }

    #[test]
    fn targets_are_split() {
        let target = Target::split(b"http://a:1/b?c?d");
        assert_eq!(
            (target.host, target.path, target.query),
            (Some(&b"a:1"[..]), &b"/b"[..], &b"c?d"[..])
        );
        let target = Target::split(b"/b");
        assert_eq!((target.host, target.path, target.query), (None, &b"/b"[..], &b""[..]));
    }
}
