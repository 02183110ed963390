//! The path of a request target: its percent escapes and, if the server normalizes paths, its dot
//! segments and repeated slashes, as httpd's `ap_normalize_path` and `ap_unescape_url` do it.

use super::rejection::Rejection;
use super::target::split_absolute;

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
/// With `normalizes`, `check_path` has accepted the path.
pub fn decode_path<'a>(path: &'a [u8], normalizes: bool, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let has_escapes = memchr::memchr(b'%', path).is_some();
    match path {
        [] => return b"/",
        b"*" => return b"",
        _ if has_escapes || normalizes && may_change(path) => {}
        _ => return path,
    }
    buffer.clear();
    decode_percent(path, buffer);
    if normalizes && may_change(buffer) {
        *buffer = normalize(buffer);
    }
    buffer
}

/// Whether the path may have a dot segment or two slashes in a row.
fn may_change(path: &[u8]) -> bool {
    path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// Resolves dot segments and merges slashes. `check_path` has seen that the path has a root, and
/// leads nowhere above it.
fn normalize(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut last = &b""[..];
    for segment in path.split(|byte| *byte == b'/') {
        last = segment;
        match segment {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let mut out = vec![b'/'];
    out.extend_from_slice(&kept.join(&b'/'));
    if !kept.is_empty() && matches!(last, b"" | b"." | b"..") {
        out.push(b'/');
    }
    out
}

/// Refuses the path of a target if httpd would.
pub fn check_path(target: &[u8]) -> Result<(), Rejection> {
    let path = Target::split(target).path;
    let (mut depth, mut has_escaped_separator) = (0_u32, false);
    for segment in path.split(|byte| *byte == b'/') {
        let mut decoded = Vec::with_capacity(segment.len());
        let mut rest = segment;
        while let Some(at) = memchr::memchr(b'%', rest) {
            decoded.extend_from_slice(&rest[..at]);
            let byte = escaped_byte(&rest[at..]).ok_or(Rejection::Path)?;
            has_escaped_separator |= matches!(byte, b'/' | 0);
            decoded.push(byte);
            rest = &rest[at + 3..];
        }
        decoded.extend_from_slice(rest);
        match &decoded[..] {
            b"" | b"." => {}
            b".." => depth = depth.checked_sub(1).ok_or(Rejection::Path)?,
            _ => depth += 1,
        }
    }
    if has_escaped_separator { Err(Rejection::EscapedPath) } else { Ok(()) }
}

/// The byte of an escape, `%` and two hexadecimal digits.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| (*byte as char).to_digit(16));
    Some((digit(1)? * 16 + digit(2)?) as u8)
}

fn decode_percent(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        match escaped_byte(&rest[at..]) {
            Some(byte) => {
                out.push(byte);
                rest = &rest[at + 3..];
            }
            None => {
                out.push(b'%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

/// Whether a URL path is `parent`, which has no slash at its end, or begins with it and a slash.
pub fn is_at_or_below(path: &[u8], parent: &[u8]) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once() {
        let decode = |path: &[u8]| decode_path(path, false, &mut Vec::new()).to_vec();
        assert_eq!(decode(b"/a%20b%2Fc%2525"), b"/a b/c%25");
        assert_eq!(decode(b"/%zz%4"), b"/%zz%4");
        assert_eq!(decode(b"/%C3%A9"), "/é".as_bytes());
        assert_eq!(decode(b""), b"/");
        assert_eq!(decode(b"*"), b"");
    }

    /// The answers are those of httpd 2.4.71: tests/server/test_apache_paths.py asks it.
    #[test]
    fn paths_are_normalized_as_httpd_does_it() {
        let decode = |path: &str| {
            check_path(path.as_bytes())?;
            let mut buffer = Vec::new();
            let decoded = decode_path(path.as_bytes(), true, &mut buffer);
            Ok(String::from_utf8_lossy(decoded).into_owned())
        };
        for (path, expected) in [
            ("/", "/"),
            ("*", ""),
            ("/a//b///c//", "/a/b/c/"),
            ("//a", "/a"),
            ("/a/../b", "/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a//../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.../..b", "/a/.../..b"),
            ("/a;b/..;/c", "/a;b/..;/c"),
            ("/a%252e/%2525", "/a%2e/%25"),
        ] {
            assert_eq!(decode(path), Ok(expected.to_owned()), "{path}");
        }
        for path in ["/..", "/a/../..", "/%2e%2e/a", "/a//../../b", "/%", "/%4", "/%zz", "/%2F%"] {
            assert_eq!(decode(path), Err(Rejection::Path), "{path}");
        }
        for path in ["/a%2Fb", "/a%2fb", "/%00", "/a/..%2F.."] {
            assert_eq!(decode(path), Err(Rejection::EscapedPath), "{path}");
        }
        assert_eq!(check_path(b"/a?%zz/../.."), Ok(()));
        assert_eq!(check_path(b"http://a"), Ok(()));
        assert_eq!(check_path(b"http://a/.."), Err(Rejection::Path));
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
