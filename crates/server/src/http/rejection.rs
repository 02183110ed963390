//! Why a request is refused, and with which status code.

/// Every reason that this server has to refuse a request before an application sees it.
/// The connection is closed after each of them: its framing can no longer be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    RequestLine,
    Target,
    Field,
    MissingHost,
    RepeatedHost,
    HostSyntax,
    ContentLengthSyntax,
    ContentLengthsDiffer,
    LengthAndChunked,
    CodingOnHttp10,
    CodingNotChunked,
    ChunkSyntax,
    BodyCutShort,
    RequestTimeout,
    TargetTooLong,
    UnknownExpectation,
    FieldsTooLarge,
    UnknownCoding,
    UnknownMethod,
    MethodTooLong,
    Version,
    PlainHttp,
}

impl Rejection {
    /// The status line's code and reason (RFC 9110 section 15).
    pub fn status(self) -> &'static [u8] {
        match self {
            Self::RequestTimeout => b"408 Request Timeout",
            Self::TargetTooLong => b"414 URI Too Long",
            Self::UnknownExpectation => b"417 Expectation Failed",
            Self::FieldsTooLarge => b"431 Request Header Fields Too Large",
            Self::UnknownCoding | Self::UnknownMethod | Self::MethodTooLong => {
                b"501 Not Implemented"
            }
            Self::Version => b"505 HTTP Version Not Supported",
            _ => b"400 Bad Request",
        }
    }

    /// One sentence for whoever reads the response: what was found, what is allowed.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::RequestLine => "The request line is not `method target HTTP/1.x`.",
            Self::Target => "The request target is neither a path nor an http URL.",
            Self::Field => "A header field is not `name: value` in allowed characters.",
            Self::MissingHost => "An HTTP/1.1 request needs a Host field.",
            Self::RepeatedHost => "A request has at most one Host field.",
            Self::HostSyntax => "The Host field is not `host` or `host:port`.",
            Self::ContentLengthSyntax => "Content-Length is not a decimal number of bytes.",
            Self::ContentLengthsDiffer => "There are two Content-Lengths, and they differ.",
            Self::LengthAndChunked => {
                "Content-Length and Transfer-Encoding exclude each other (RFC 9112, 6.2)."
            }
            Self::CodingOnHttp10 => "HTTP/1.0 has no Transfer-Encoding.",
            Self::CodingNotChunked => "The last transfer coding of a request must be chunked.",
            Self::ChunkSyntax => "A chunk of the body is malformed (RFC 9112, 7.1).",
            Self::BodyCutShort => "The request ended before its body was complete.",
            Self::RequestTimeout => "The request did not arrive in time.",
            Self::TargetTooLong => "The request target is longer than 16384 bytes.",
            Self::UnknownExpectation => "The only expectation known here is 100-continue.",
            Self::FieldsTooLarge => {
                "The header fields are more than 100, or larger than 65536 bytes together."
            }
            Self::UnknownCoding => "The only transfer coding known here is chunked.",
            Self::UnknownMethod => "CONNECT is for proxies; this is an origin server.",
            Self::MethodTooLong => "The method is longer than 32 bytes.",
            Self::PlainHttp => "This port speaks HTTPS: TLS comes first.",
            Self::Version => "This server speaks HTTP/1.0 and HTTP/1.1.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_named_in_texts_are_the_limits() {
        use crate::http::head::{MAX_FIELDS, MAX_HEAD_BYTES, MAX_METHOD_BYTES, MAX_TARGET_BYTES};
        assert!(Rejection::TargetTooLong.explanation().contains(&MAX_TARGET_BYTES.to_string()));
        let method = Rejection::MethodTooLong.explanation();
        assert!(method.contains(&MAX_METHOD_BYTES.to_string()));
        let fields = Rejection::FieldsTooLarge.explanation();
        assert!(fields.contains(&MAX_FIELDS.to_string()));
        assert!(fields.contains(&MAX_HEAD_BYTES.to_string()));
    }
}
