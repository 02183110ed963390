//! The head of a request: the request line and the header fields, validated and kept as byte
//! ranges.
//!
//! httparse parses the grammar. This module checks what httparse does not: the versions that it
//! does not know, and the fields that concern the host and the connection (RFC 9112 sections 3 and
//! 9). It does not depend on connections.

use super::framing::{Framing, FramingFields};
use super::limits::Limits;
use super::path::check_path;
use super::rejection::Rejection;
use super::target::{check_host, check_target};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The fields of a head that are parsed on the stack. If the limit is higher, parsing allocates.
const FIELDS_ON_STACK: usize = 128;

/// One parsed head. Ranges are offsets from the first byte of the request line, so a head remains
/// valid when its bytes move. Heads are reused for each request.
#[derive(Debug, Default)]
pub struct Head {
    pub method: Range<usize>,
    pub target: Range<usize>,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1 and what is above it.
    pub minor_version: u8,
    pub fields: Vec<Field>,
    pub framing: Framing,
    /// Whether the peer wants the connection kept open, according to its Connection field or else
    /// to the default of its version.
    pub keep_alive: bool,
    /// Whether the peer sends the body only after `100 Continue` (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: Range<usize>,
    pub value: Range<usize>,
}

impl Head {
    /// Parses one complete head, whose end `head_end` has found.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
        match self.parse_known(bytes, limits) {
            // A higher minor version means what the highest known one means (RFC 9110 section 2.5).
            Err(Rejection::Version) => match with_minor_version_1(bytes) {
                Some(bytes) => self.parse_known(&bytes, limits),
                None => Err(Rejection::Version),
            },
            parsed => parsed,
        }
    }

    fn parse_known(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
        if limits.max_fields <= FIELDS_ON_STACK {
            let mut storage = [const { MaybeUninit::uninit() }; FIELDS_ON_STACK];
            self.parse_into(bytes, &mut storage[..limits.max_fields])?;
        } else {
            // No field is shorter than `a:` and its line end.
            let fields = limits.max_fields.min(bytes.len() / 4);
            self.parse_into(bytes, Vec::with_capacity(fields).spare_capacity_mut())?;
        }
        match limits.normalizes_path {
            true => check_path(&bytes[self.target.clone()]),
            false => Ok(()),
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
            Err(httparse::Error::Version) => return Err(rejection_of_version(bytes)),
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

    /// Returns the value of the field `name` (lower case), if it occurs; the first value if the
    /// field is repeated.
    pub fn field<'a>(&self, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        self.fields
            .iter()
            .find(|field| bytes[field.name.clone()].eq_ignore_ascii_case(name))
            .map(|field| &bytes[field.value.clone()])
    }

    /// Reads the fields that determine the framing of the body and the use of the connection.
    fn read_fields(&mut self, bytes: &[u8]) -> Result<(), Rejection> {
        let mut has_host = false;
        let mut framing = FramingFields::default();
        let (mut close, mut keep_alive) = (false, self.minor_version == 1);
        self.expects_continue = false;
        for field in &self.fields {
            let value = &bytes[field.value.clone()];
            let name = &bytes[field.name.clone()];
            // The length is compared first, because most fields are none of these.
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => {
                    if has_host {
                        return Err(Rejection::RepeatedHost);
                    }
                    has_host = true;
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
                    framing.add_content_length(value)?;
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    framing.add_transfer_encoding(value, self.minor_version)?;
                }
                _ => {}
            }
        }
        if !has_host && self.minor_version == 1 {
            return Err(Rejection::MissingHost);
        }
        self.framing = framing.framing()?;
        self.keep_alive = keep_alive && !close;
        self.expects_continue &= self.framing != Framing::Empty;
        Ok(())
    }
}

/// Returns the head with the version HTTP/1.1 if it has a higher minor version. Its request line
/// ends with a version of the right form.
fn with_minor_version_1(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    if !matches!(bytes[..end], [.., b'/', b'1', b'.', b'2'..=b'9']) {
        return None;
    }
    let mut bytes = bytes.to_vec();
    bytes[end - 1] = b'1';
    Some(bytes)
}

/// Returns `Version` if the request line ends with `HTTP/`, a digit, a point and a digit, and
/// `RequestLine` otherwise. httparse has rejected the version.
fn rejection_of_version(bytes: &[u8]) -> Rejection {
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

/// Returns the range of `part`, a slice of `whole` that httparse returned.
fn range_in(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    debug_assert!(start <= whole.len() && part.len() <= whole.len() - start);
    start..start + part.len()
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
    fn a_higher_minor_version_is_processed_as_1_1() {
        let text = "GET /a HTTP/1.9\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let head = parse(text).unwrap();
        assert_eq!(&text[head.target.clone()], "/a");
        assert_eq!(&text[head.fields[0].value.clone()], "x");
        assert_eq!((head.minor_version, head.keep_alive), (1, true));
        assert_eq!(head.framing, Framing::Chunked);
    }

    #[test]
    fn invalid_heads_are_rejected() {
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
            ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", Version),
            ("GET / HTTP/1.2\r\n\r\n", MissingHost),
            ("GET / HTTP/1.12\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/1.2 \r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/01.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / http/1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/ 1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", HostSyntax),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", ContentLengthSyntax),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                LengthAndChunked,
            ),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", CodingOnHttp10),
            ("GET / HTTP/1.1\r\nHost: a\r\nExpect: money\r\n\r\n", UnknownExpectation),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_connection_field_and_the_version_decide_keep_alive() {
        let keep = |text: &str| parse(text).unwrap().keep_alive;
        assert!(keep("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
    }

    #[test]
    fn the_close_option_overrides_keep_alive() {
        for option in ["close, keep-alive", "keep-alive, close"] {
            let text = format!("GET / HTTP/1.0\r\nConnection: {option}\r\n\r\n");
            assert!(!parse(&text).unwrap().keep_alive, "{option}");
        }
    }

    #[test]
    fn the_limit_of_fields_is_exact() {
        let fields = |count| format!("GET / HTTP/1.0\r\n{}\r\n", "a:b\r\n".repeat(count));
        for max_fields in [0, 5, FIELDS_ON_STACK, FIELDS_ON_STACK + 1] {
            let limits = Limits { max_fields, ..Limits::default() };
            let parse = |count| Head::default().parse(fields(count).as_bytes(), &limits);
            assert_eq!(parse(max_fields), Ok(()));
            assert_eq!(parse(max_fields + 1), Err(Rejection::TooManyFields));
        }
    }
}
