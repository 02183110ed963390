//! The response head: a status and header fields, validated when they are added and kept as bytes.
//!
//! PEP 3333 leaves it to the server to reject an application's invalid head: line ends or control
//! characters in a field (response splitting), or two lengths. Hop-by-hop fields, which belong to
//! the server, are left out, as other WSGI servers do. `response_body` determines the framing of
//! the body.

use super::digits::parse_decimal;
use super::octets::{is_text, is_token};

/// A response head under construction. It is reused for each request.
#[derive(Debug, Default)]
pub struct Response {
    code: u16,
    /// The code and the reason, such as `200 OK`.
    status: Vec<u8>,
    /// `Name: value\r\n` for each field, in the order and case that the application gave.
    fields: Vec<u8>,
    content_length: Option<u64>,
    has_date: bool,
    has_server: bool,
    closes_connection: bool,
    left_out: HopByHopFields,
}

/// Why a status or a field is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidResponse {
    Status,
    FieldName,
    FieldValue,
    ContentLength,
}

impl InvalidResponse {
    /// Returns the allowed form, for the message of an exception.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Status => "a status is three digits (200 to 599), a space and a reason",
            Self::FieldName => "a header name is a token (RFC 9110, 5.6.2)",
            Self::FieldValue => "a header value has no control characters and is latin-1",
            Self::ContentLength => "Content-Length is one decimal number of bytes",
        }
    }
}

/// The hop-by-hop fields of RFC 2616 section 13.5.1, to which PEP 3333 refers.
const HOP_BY_HOP: [&str; 8] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "TE",
    "Trailers",
    "Transfer-Encoding",
    "Upgrade",
];

/// A set of hop-by-hop fields: the bit of a field is its index in `HOP_BY_HOP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopByHopFields(pub u8);

impl HopByHopFields {
    fn of(name: &[u8]) -> Option<Self> {
        // The length alone excludes most fields.
        if !matches!(name.len(), 2 | 7 | 8 | 10 | 17 | 18 | 19) {
            return None;
        }
        let index =
            HOP_BY_HOP.iter().position(|other| name.eq_ignore_ascii_case(other.as_bytes()))?;
        Some(Self(1 << index))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        HOP_BY_HOP
            .into_iter()
            .enumerate()
            .filter(move |(index, _)| self.0 & 1 << index != 0)
            .map(|(_, name)| name)
    }
}

impl Response {
    /// Begins a new head with `status`, such as `404 Not Found`.
    pub fn begin(&mut self, status: &[u8]) -> Result<(), InvalidResponse> {
        self.fields.clear();
        self.content_length = None;
        self.has_date = false;
        self.has_server = false;
        self.closes_connection = false;
        self.left_out = HopByHopFields::default();
        let (code, reason) = match status {
            [a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] => {
                (100 * u16::from(a - b'0') + 10 * u16::from(b - b'0') + u16::from(c - b'0'), rest)
            }
            _ => return Err(InvalidResponse::Status),
        };
        // `200` alone is not in PEP 3333's form, but its meaning is clear; the reason may be empty.
        if !matches!(reason, [] | [b' ', ..]) || !reason.iter().copied().all(is_text) {
            return Err(InvalidResponse::Status);
        }
        self.code = code;
        self.status.clear();
        self.status.extend_from_slice(status);
        if reason.is_empty() {
            self.status.push(b' ');
        }
        Ok(())
    }

    /// Adds a field, or rejects it. A hop-by-hop field is left out; of Connection, `close` keeps
    /// its meaning.
    pub fn push_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidResponse> {
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(InvalidResponse::FieldName);
        }
        if !value.iter().copied().all(is_text) {
            return Err(InvalidResponse::FieldValue);
        }
        if let Some(field) = HopByHopFields::of(name) {
            let is_close = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(b"close");
            if name.eq_ignore_ascii_case(b"connection") {
                self.closes_connection |= value.split(|byte| *byte == b',').any(is_close);
            }
            // Nothing is lost of `Connection: close`.
            if !(self.closes_connection && is_close(value)) {
                self.left_out.0 |= field.0;
            }
            return Ok(());
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            match parse_decimal(value.trim_ascii()) {
                Some(length) if self.content_length.is_none() => self.content_length = Some(length),
                _ => return Err(InvalidResponse::ContentLength),
            }
            // The field is written with the framing, which may have to omit it.
            return Ok(());
        }
        self.has_date |= name.eq_ignore_ascii_case(b"date");
        self.has_server |= name.eq_ignore_ascii_case(b"server");
        self.fields.extend_from_slice(name);
        self.fields.extend_from_slice(b": ");
        self.fields.extend_from_slice(value);
        self.fields.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Returns the status code; 0 before the first `begin`.
    pub fn code(&self) -> u16 {
        self.code
    }

    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns true if the application wants the connection closed after this response.
    pub fn closes_connection(&self) -> bool {
        self.closes_connection
    }

    /// Returns the hop-by-hop fields that the application gave.
    pub fn left_out(&self) -> HopByHopFields {
        self.left_out
    }

    /// Returns true for the statuses whose responses never have a body (RFC 9112 section 6.3; for
    /// 205 RFC 9110 section 15.3.6).
    pub fn is_bodiless(&self) -> bool {
        matches!(self.code, 204 | 205 | 304)
    }

    /// Writes the status line and the fields. The connection appends its own fields and the empty
    /// line.
    pub fn write_to(&self, out: &mut Vec<u8>, date: &[u8], server: &[u8]) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(&self.status);
        out.extend_from_slice(b"\r\n");
        if !self.has_server {
            out.extend_from_slice(b"Server: ");
            out.extend_from_slice(server);
            out.extend_from_slice(b"\r\n");
        }
        if !self.has_date {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(date);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(&self.fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_written_as_given() {
        let mut response = Response::default();
        response.begin(b"200 OK").unwrap();
        response.push_field(b"X-A", b"1").unwrap();
        response.push_field(b"Content-Length", b"5").unwrap();
        let mut out = Vec::new();
        response.write_to(&mut out, b"now", b"me");
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nServer: me\r\nDate: now\r\nX-A: 1\r\n");
        assert_eq!(response.content_length(), Some(5));
    }

    #[test]
    fn invalid_statuses_and_fields_are_rejected() {
        use InvalidResponse::*;
        let mut response = Response::default();
        for status in [&b""[..], b"20 OK", b"2000 OK", b"100 Continue", b"200 a\r\nX: b"] {
            assert_eq!(response.begin(status), Err(Status), "{status:?}");
        }
        response.begin(b"200 OK").unwrap();
        assert_eq!(response.push_field(b"X", b"a\r\nSet-Cookie: b"), Err(FieldValue));
        assert_eq!(response.push_field(b"X", b"a\0"), Err(FieldValue));
        assert_eq!(response.push_field(b"X Y", b"a"), Err(FieldName));
        assert_eq!(response.push_field(b"", b"a"), Err(FieldName));
        assert_eq!(response.push_field(b"Content-Length", b"-1"), Err(ContentLength));
        response.push_field(b"Content-Length", b"1").unwrap();
        assert_eq!(response.push_field(b"content-length", b"1"), Err(ContentLength));
    }

    #[test]
    fn hop_by_hop_fields_are_left_out() {
        let mut response = Response::default();
        for name in HOP_BY_HOP {
            response.begin(b"200 OK").unwrap();
            response.push_field(name.to_ascii_uppercase().as_bytes(), b"a").unwrap();
            assert_eq!(response.left_out().names().collect::<Vec<_>>(), [name]);
            assert!(!response.closes_connection());
        }
        let mut out = Vec::new();
        response.write_to(&mut out, b"now", b"me");
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nServer: me\r\nDate: now\r\n");
        response.begin(b"200 OK").unwrap();
        response.push_field(b"TE", b"close").unwrap();
        assert!(!response.closes_connection());
        for value in [&b"close"[..], b" Close ", b"x, close"] {
            response.begin(b"200 OK").unwrap();
            response.push_field(b"connection", value).unwrap();
            assert!(response.closes_connection(), "{value:?}");
            assert_eq!(response.left_out().is_empty(), value != b"x, close", "{value:?}");
        }
        assert_eq!(response.push_field(b"Upgrade", b"a\r\nX: b"), Err(InvalidResponse::FieldValue));
    }
}
