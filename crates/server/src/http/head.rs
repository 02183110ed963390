//! The head of a request: request line and header fields, checked and kept as byte ranges.
//!
//! httparse knows the grammar. What it leaves to us is here: where the head ends, its limits, and
//! which body follows it (RFC 9112 sections 3 and 6). Nothing here knows of connections.

use super::rejection::Rejection;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Apache allows 8,190 bytes of request line, h11 16 KiB of head, nginx 8 KiB of line.
pub const MAX_TARGET_BYTES: usize = 16_384;
/// Request line and fields together, the final empty line included.
pub const MAX_HEAD_BYTES: usize = 65_536;
/// As Apache and gunicorn.
pub const MAX_FIELDS: usize = 100;
/// No registered method is longer than 17 (UPDATEREDIRECTREF); one that is longer than all that a
/// server knows is answered with 501 (RFC 9112 section 3).
pub const MAX_METHOD_BYTES: usize = 32;

/// How the body of a request is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    #[default]
    Empty,
    Sized(u64),
    Chunked,
}

/// One parsed head. Ranges are offsets from the first byte of the request line, so a head stays
/// true when its bytes move. Reused from request to request.
#[derive(Debug, Default)]
pub struct Head {
    pub method: Range<usize>,
    pub target: Range<usize>,
    /// 0 or 1: HTTP/1.0 or HTTP/1.1.
    pub minor_version: u8,
    pub fields: Vec<Field>,
    pub framing: Framing,
    /// The peer wants the connection kept: its Connection field, else its version's default.
    pub keep_alive: bool,
    /// The peer holds the body back until it reads `100 Continue` (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: Range<usize>,
    pub value: Range<usize>,
}

/// Where the first head in `bytes` ends (past its empty line), or `None` while it is incomplete.
/// `scanned` holds how far earlier calls have looked, so that a trickled head costs no more.
///
/// A lone LF counts as a line end (RFC 9112 section 2.2 allows it).
pub fn find_head_end(bytes: &[u8], scanned: &mut usize) -> Result<Option<usize>, Rejection> {
    // First, whatever else is wrong: the answer must not depend on how the bytes were split.
    check_method_length(bytes)?;
    let limit = bytes.len().min(MAX_HEAD_BYTES);
    // The line feed that ends the last field may lie just before what is new.
    let mut from = scanned.saturating_sub(2);
    while let Some(found) = memchr::memchr(b'\n', &bytes[from..limit]) {
        let after = from + found + 1;
        match &bytes[after..limit] {
            [b'\n', ..] => return Ok(Some(after + 1)),
            [b'\r', b'\n', ..] => return Ok(Some(after + 2)),
            _ => from = after,
        }
    }
    *scanned = limit;
    let line_end = memchr::memchr(b'\n', &bytes[..limit]);
    if line_end.is_none() && limit > MAX_METHOD_BYTES + MAX_TARGET_BYTES {
        return Err(Rejection::TargetTooLong);
    }
    if bytes.len() >= MAX_HEAD_BYTES {
        return Err(Rejection::FieldsTooLarge);
    }
    Ok(None)
}

impl Head {
    /// Parses one complete head, as found by [`find_head_end`].
    pub fn parse(&mut self, bytes: &[u8]) -> Result<(), Rejection> {
        let mut storage = [const { MaybeUninit::<httparse::Header>::uninit() }; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, &mut storage) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(Rejection::RequestLine),
            Err(error) => return Err(from_httparse(error)),
        }
        let (Some(method), Some(target), Some(version)) =
            (request.method, request.path, request.version)
        else {
            return Err(Rejection::RequestLine);
        };
        self.method = range_in(bytes, method.as_bytes());
        self.target = range_in(bytes, target.as_bytes());
        self.minor_version = version;
        self.fields.clear();
        self.fields.extend(request.headers.iter().map(|header| Field {
            name: range_in(bytes, header.name.as_bytes()),
            value: range_in(bytes, header.value),
        }));
        check_target(method, target.as_bytes())?;
        self.read_fields(bytes)
    }

    /// The value of the field `name` (lower case) if it occurs, the first one if repeated.
    pub fn field<'a>(&self, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        self.fields
            .iter()
            .find(|field| bytes[field.name.clone()].eq_ignore_ascii_case(name))
            .map(|field| &bytes[field.value.clone()])
    }

    /// Draws from the fields what decides about body and connection.
    fn read_fields(&mut self, bytes: &[u8]) -> Result<(), Rejection> {
        let mut host_seen = false;
        let mut length: Option<u64> = None;
        let mut chunked = false;
        self.keep_alive = self.minor_version == 1;
        self.expects_continue = false;
        for field in &self.fields {
            let value = &bytes[field.value.clone()];
            let name = &bytes[field.name.clone()];
            // Names are told apart by length first: most fields are none of these.
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => {
                    if host_seen {
                        return Err(Rejection::RepeatedHost);
                    }
                    host_seen = true;
                    check_host(value)?;
                }
                6 if name.eq_ignore_ascii_case(b"expect") && self.minor_version == 1 => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(Rejection::UnknownExpectation);
                    }
                    self.expects_continue = true;
                }
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        if option.eq_ignore_ascii_case(b"close") {
                            self.keep_alive = false;
                        } else if option.eq_ignore_ascii_case(b"keep-alive")
                            && self.minor_version == 0
                        {
                            self.keep_alive = true;
                        }
                    }
                }
                14 if name.eq_ignore_ascii_case(b"content-length") => {
                    let this = parse_length(value)?;
                    if length.is_some_and(|other| other != this) {
                        return Err(Rejection::ContentLengthsDiffer);
                    }
                    length = Some(this);
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    if self.minor_version == 0 {
                        return Err(Rejection::CodingOnHttp10);
                    }
                    if chunked {
                        return Err(Rejection::CodingNotChunked);
                    }
                    chunked = true;
                    check_coding(value)?;
                }
                _ => {}
            }
        }
        if !host_seen && self.minor_version == 1 {
            return Err(Rejection::MissingHost);
        }
        self.framing = match (length, chunked) {
            (Some(_), true) => return Err(Rejection::LengthAndChunked),
            (None, true) => Framing::Chunked,
            (None | Some(0), false) => Framing::Empty,
            (Some(length), false) => Framing::Sized(length),
        };
        self.expects_continue &= self.framing != Framing::Empty;
        Ok(())
    }
}

/// `bytes` begin with a request line, of which any part may be still to come.
fn check_method_length(bytes: &[u8]) -> Result<(), Rejection> {
    match bytes.get(..=MAX_METHOD_BYTES) {
        Some(start) if start.iter().all(|byte| !byte.is_ascii_whitespace()) => {
            Err(Rejection::MethodTooLong)
        }
        _ => Ok(()),
    }
}

fn from_httparse(error: httparse::Error) -> Rejection {
    match error {
        httparse::Error::TooManyHeaders => Rejection::FieldsTooLarge,
        httparse::Error::Version => Rejection::Version,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => Rejection::Field,
        _ => Rejection::RequestLine,
    }
}

/// httparse hands out slices of what it was given; this turns one back into its place there.
fn range_in(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    debug_assert!(start <= whole.len() && part.len() <= whole.len() - start);
    start..start + part.len()
}

fn check_target(method: &str, target: &[u8]) -> Result<(), Rejection> {
    if target.len() > MAX_TARGET_BYTES {
        return Err(Rejection::TargetTooLong);
    }
    if method == "CONNECT" {
        return Err(Rejection::UnknownMethod);
    }
    match target {
        [b'/', ..] => Ok(()),
        b"*" if method == "OPTIONS" => Ok(()),
        _ if split_absolute(target).is_some() => Ok(()),
        _ => Err(Rejection::Target),
    }
}

/// Splits the absolute form, `http://host/path?query`, into host and the rest (RFC 9112, 3.2.2).
pub fn split_absolute(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let scheme = &target[..scheme_end];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    let rest = &target[scheme_end + 3..];
    let host_end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_end);
    (!host.is_empty() && check_host(host).is_ok()).then_some((host, path))
}

/// `uri-host [":" port]`: no user information, path, space or list (RFC 9110 section 7.2).
pub fn is_host(value: &[u8]) -> bool {
    check_host(value).is_ok()
}

fn check_host(value: &[u8]) -> Result<(), Rejection> {
    let allowed = |byte: &u8| {
        byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%:[]".contains(byte) || *byte >= 0x80
    };
    if value.iter().all(allowed) { Ok(()) } else { Err(Rejection::HostSyntax) }
}

fn parse_length(value: &[u8]) -> Result<u64, Rejection> {
    // 18 digits always fit, and no body is longer than an exabyte.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Rejection::ContentLengthSyntax);
    }
    Ok(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

fn check_coding(value: &[u8]) -> Result<(), Rejection> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    let repeated = value
        .split(|byte| *byte == b',')
        .filter(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
        .count();
    if last.eq_ignore_ascii_case(b"chunked") && repeated == 1 {
        Err(Rejection::UnknownCoding)
    } else {
        Err(Rejection::CodingNotChunked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Head, Rejection> {
        let mut head = Head::default();
        head.parse(text.as_bytes()).map(|()| head)
    }

    #[test]
    fn a_head_is_kept_as_ranges() {
        let text = "POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n";
        let head = parse(text).unwrap();
        assert_eq!(&text[head.method.clone()], "POST");
        assert_eq!(&text[head.target.clone()], "/a?b");
        assert_eq!(&text[head.fields[0].value.clone()], "x");
        assert_eq!(head.framing, Framing::Sized(12));
        assert!(head.keep_alive);
    }

    #[test]
    fn heads_that_must_be_refused() {
        use Rejection::*;
        let cases = [
            ("GET / HTTP/1.1\r\n\r\n", MissingHost),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", RepeatedHost),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HostSyntax),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HostSyntax),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Field),
            ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", Field),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", Field),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n", Field),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", Field),
            ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", Field),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET /\r\nHost: a\r\n\r\n", RequestLine),
            ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", Target),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Target),
            ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Target),
            ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", UnknownMethod),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Version),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", ContentLengthSyntax),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", ContentLengthSyntax),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n", ContentLengthSyntax),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", ContentLengthSyntax),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n", ContentLengthSyntax),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
                ContentLengthSyntax,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                ContentLengthsDiffer,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                LengthAndChunked,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
                LengthAndChunked,
            ),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", CodingOnHttp10),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", CodingNotChunked),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", CodingNotChunked),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
                CodingNotChunked,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
                CodingNotChunked,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                UnknownCoding,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nExpect: money\r\n\r\n", UnknownExpectation),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn equal_lengths_may_be_repeated() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(parse(text).unwrap().framing, Framing::Sized(3));
    }

    #[test]
    fn who_keeps_the_connection() {
        let keep = |text: &str| parse(text).unwrap().keep_alive;
        assert!(keep("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
    }

    #[test]
    fn the_absolute_form_has_a_host() {
        assert_eq!(split_absolute(b"http://a:1/b?c"), Some((&b"a:1"[..], &b"/b?c"[..])));
        assert_eq!(split_absolute(b"http://a?c"), Some((&b"a"[..], &b"?c"[..])));
        assert_eq!(split_absolute(b"http://u@a/"), None);
        assert_eq!(split_absolute(b"/x?u=http://a/"), None);
    }

    #[test]
    fn a_method_has_a_limit() {
        let line = |length| format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(length));
        let allowed = line(MAX_METHOD_BYTES);
        assert_eq!(find_head_end(allowed.as_bytes(), &mut 0), Ok(Some(allowed.len())));
        let too_long = line(MAX_METHOD_BYTES + 1);
        assert_eq!(find_head_end(too_long.as_bytes(), &mut 0), Err(Rejection::MethodTooLong));
        let incomplete = [b'M'; MAX_METHOD_BYTES + 1];
        assert_eq!(find_head_end(&incomplete, &mut 0), Err(Rejection::MethodTooLong));
        assert_eq!(find_head_end(&incomplete[1..], &mut 0), Ok(None));
    }

    #[test]
    fn limits_end_the_search() {
        let mut scanned = 0;
        let long_line = [&b"GET /"[..], &[b'a'; MAX_METHOD_BYTES + MAX_TARGET_BYTES]].concat();
        assert_eq!(find_head_end(&long_line, &mut scanned), Err(Rejection::TargetTooLong));
        let mut many = b"GET / HTTP/1.1\r\n".to_vec();
        while many.len() < MAX_HEAD_BYTES {
            many.extend_from_slice(b"X: 12345678\r\n");
        }
        scanned = 0;
        assert_eq!(find_head_end(&many, &mut scanned), Err(Rejection::FieldsTooLarge));
    }
}
