//! The head of a request: request line and header fields, checked and kept as byte ranges.
//!
//! httparse knows the grammar. What it leaves to us is here: where the head ends, its limits, and
//! which body follows it (RFC 9112 sections 3 and 6). Nothing here knows of connections.

use super::limits::Limits;
use super::rejection::Rejection;
use super::target::{check_host, check_target};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Room on the stack for the fields of a head; more of them, where they are allowed, take an
/// allocation.
const FIELDS_ON_STACK: usize = 128;
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
/// A lone LF ends no line. RFC 9112 section 2.2 would allow it; but what one recipient takes for
/// the end of a line is to another a part of it, and that is how requests are smuggled.
///
/// The checks come in the order of the bytes that they need, so that the answer does not depend on
/// how the bytes were split.
pub fn find_head_end(
    bytes: &[u8],
    scanned: &mut usize,
    limits: &Limits,
) -> Result<Option<usize>, Rejection> {
    let seen = &bytes[..bytes.len().min(limits.max_head_bytes)];
    check_method_length(seen)?;
    check_target_length(seen, limits)?;
    // The line feed that ends the last field may lie just before what is new.
    let mut from = scanned.saturating_sub(2);
    while let Some(found) = memchr::memchr(b'\n', &seen[from..]) {
        let after = from + found + 1;
        if !seen[..after].ends_with(b"\r\n") {
            return Err(Rejection::LineEnd);
        }
        if seen[after..].starts_with(b"\r\n") {
            return Ok(Some(after + 2));
        }
        from = after;
    }
    *scanned = seen.len();
    if seen.len() == limits.max_head_bytes { Err(Rejection::HeadTooLarge) } else { Ok(None) }
}

impl Head {
    /// Parses one complete head, as found by [`find_head_end`].
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
        if limits.max_fields <= FIELDS_ON_STACK {
            let mut storage = [const { MaybeUninit::uninit() }; FIELDS_ON_STACK];
            self.parse_into(bytes, &mut storage[..limits.max_fields])
        } else {
            // No field is shorter than `a:` and its line end.
            let fields = limits.max_fields.min(bytes.len() / 4);
            self.parse_into(bytes, Vec::with_capacity(fields).spare_capacity_mut())
        }
    }

    fn parse_into<'a>(
        &mut self,
        bytes: &'a [u8],
        storage: &mut [MaybeUninit<httparse::Header<'a>>],
    ) -> Result<(), Rejection> {
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, storage) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(Rejection::RequestLine),
            Err(httparse::Error::Version) => return Err(refuse_version(bytes)),
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
        check_target(method.as_bytes(), target.as_bytes())?;
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
        let (mut close, mut keep_alive) = (false, self.minor_version == 1);
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
                        close |= option.eq_ignore_ascii_case(b"close");
                        keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
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
        self.keep_alive = keep_alive && !close;
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

/// As `check_method_length`, for the target.
fn check_target_length(bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
    if bytes.len() <= limits.max_target_bytes {
        return Ok(());
    }
    let find_end = |bytes| memchr::memchr2(b' ', b'\n', bytes);
    match find_end(bytes) {
        Some(at) if bytes[at] == b' ' => match bytes[at + 1..].get(..=limits.max_target_bytes) {
            Some(start) if find_end(start).is_none() => Err(Rejection::TargetTooLong),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Of a version that is not ours, or of what is none: `HTTP/` and two digits with a point.
fn refuse_version(bytes: &[u8]) -> Rejection {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Rejection::Version
        }
        _ => Rejection::RequestLine,
    }
}

fn from_httparse(error: httparse::Error) -> Rejection {
    match error {
        httparse::Error::TooManyHeaders => Rejection::TooManyFields,
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
        head.parse(text.as_bytes(), &Limits::default()).map(|()| head)
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
            ("PRI * HTTP/2.0\r\n\r\n", Version),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Version),
            ("GET / HTTP/1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/01.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / http/1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/ 1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", HostSyntax),
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
    fn a_close_option_outdoes_keep_alive() {
        for option in ["close, keep-alive", "keep-alive, close"] {
            let text = format!("GET / HTTP/1.0\r\nConnection: {option}\r\n\r\n");
            assert!(!parse(&text).unwrap().keep_alive, "{option}");
        }
    }

    /// What becomes of `bytes` that arrive one by one, or all at once.
    fn find(bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Rejection> {
        let whole = find_head_end(bytes, &mut 0, limits);
        let mut scanned = 0;
        let piecewise = (1..=bytes.len())
            .map(|length| find_head_end(&bytes[..length], &mut scanned, limits))
            .find(|found| *found != Ok(None));
        assert_eq!(piecewise.unwrap_or(Ok(None)), whole);
        whole
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        let limits = Limits::default();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(find(&[head, &b"rest"[..]].concat(), &limits), Ok(Some(head.len())));
        assert_eq!(find(&head[..head.len() - 1], &limits), Ok(None));
        for wrong in
            [&b"GET / HTTP/1.1\n"[..], b"GET / HTTP/1.1\r\nHost: a\n", b"GET / HTTP/1.1\r\n\n"]
        {
            assert_eq!(find(wrong, &limits), Err(Rejection::LineEnd));
        }
    }

    #[test]
    fn each_limit_is_exact() {
        let limits = Limits { max_target_bytes: 40, max_head_bytes: 120, ..Limits::default() };
        let head = |method: usize, target: usize, whole: usize| {
            let line =
                format!("{} {} HTTP/1.1\r\nHost: a\r\nX: ", "M".repeat(method), "/".repeat(target));
            format!("{line}{}\r\n\r\n", "x".repeat(whole - line.len() - 4)).into_bytes()
        };
        let found = |method, target, whole| find(&head(method, target, whole), &limits);
        assert_eq!(found(MAX_METHOD_BYTES, 40, 120), Ok(Some(120)));
        assert_eq!(found(MAX_METHOD_BYTES + 1, 40, 120), Err(Rejection::MethodTooLong));
        assert_eq!(found(MAX_METHOD_BYTES, 41, 120), Err(Rejection::TargetTooLong));
        assert_eq!(found(3, 41, 121), Err(Rejection::TargetTooLong));
        assert_eq!(found(3, 40, 121), Err(Rejection::HeadTooLarge));
        let fields = |count| format!("GET / HTTP/1.0\r\n{}\r\n", "a:b\r\n".repeat(count));
        for max_fields in [0, 5, FIELDS_ON_STACK, FIELDS_ON_STACK + 1] {
            let limits = Limits { max_fields, ..Limits::default() };
            let parse = |count| Head::default().parse(fields(count).as_bytes(), &limits);
            assert_eq!(parse(max_fields), Ok(()));
            assert_eq!(parse(max_fields + 1), Err(Rejection::TooManyFields));
        }
    }
}
