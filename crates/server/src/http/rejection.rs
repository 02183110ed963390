//! The reasons to reject a request, and their status codes.

use super::limits::{Limits, MAX_METHOD_BYTES};
use std::borrow::Cow;

/// Every reason for which this server rejects a request before an application sees it. The
/// connection is closed after each rejection, because its framing can no longer be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    RequestLine,
    LineEnd,
    Target,
    /// An escape without two digits, or a path above the root.
    Path,
    /// A path with an escaped slash or NUL, which names nothing.
    EscapedPath,
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
    BodyTooLarge,
    TargetTooLong,
    UnknownExpectation,
    HeadTooLarge,
    TooManyFields,
    UnknownCoding,
    UnknownMethod,
    MethodTooLong,
    Version,
    PlainHttp,
    /// The request exceeded `queue-timeout`: no thread was free in time.
    QueueTimeout,
    /// No interpreter has the application loaded.
    ApplicationUnavailable,
    /// The request exceeded `interrupt-timeout`: the application did not answer in time.
    RequestTooLong,
}

impl Rejection {
    /// Returns the code and the reason of the status line (RFC 9110 section 15).
    pub fn status(self) -> &'static [u8] {
        match self {
            Self::EscapedPath => b"404 Not Found",
            Self::RequestTimeout => b"408 Request Timeout",
            Self::BodyTooLarge => b"413 Content Too Large",
            Self::TargetTooLong => b"414 URI Too Long",
            Self::UnknownExpectation => b"417 Expectation Failed",
            Self::HeadTooLarge | Self::TooManyFields => b"431 Request Header Fields Too Large",
            Self::ApplicationUnavailable => b"500 Internal Server Error",
            Self::UnknownCoding | Self::UnknownMethod | Self::MethodTooLong => {
                b"501 Not Implemented"
            }
            Self::QueueTimeout | Self::RequestTooLong => b"504 Gateway Timeout",
            Self::Version => b"505 HTTP Version Not Supported",
            _ => b"400 Bad Request",
        }
    }

    /// Returns one sentence for the response's body: the error, and the limit that applies.
    pub fn explanation(self, limits: &Limits) -> Cow<'static, str> {
        let fixed = match self {
            Self::RequestLine => "The request line is not `method target HTTP/1.x`.",
            Self::LineEnd => "A line of the head ends with LF alone; it must end with CR LF.",
            Self::Target => "The request target is neither a path nor an http URL.",
            Self::Path => "The path leads above the root, or has a % without two digits.",
            Self::EscapedPath => "The path has an escaped slash or NUL (%2F, %00).",
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
            Self::BodyTooLarge => {
                let allowed = limits.max_body_bytes;
                return format!("The body is larger than {allowed} bytes.").into();
            }
            Self::TargetTooLong => {
                let allowed = limits.max_target_bytes;
                return format!("The request target is longer than {allowed} bytes.").into();
            }
            Self::UnknownExpectation => "The only expectation known here is 100-continue.",
            Self::HeadTooLarge => {
                let allowed = limits.max_head_bytes;
                return format!("The request's head is larger than {allowed} bytes.").into();
            }
            Self::TooManyFields => {
                let allowed = limits.max_fields;
                return format!("There are more than {allowed} header fields.").into();
            }
            Self::UnknownCoding => "The only transfer coding known here is chunked.",
            Self::UnknownMethod => "CONNECT is for proxies; this is an origin server.",
            Self::MethodTooLong => {
                return format!("The method is longer than {MAX_METHOD_BYTES} bytes.").into();
            }
            Self::RequestTooLong => "The request took longer than this server allows.",
            Self::ApplicationUnavailable => "The application could not be loaded.",
            Self::PlainHttp => "This port speaks HTTPS: TLS comes first.",
            Self::QueueTimeout => "No thread of this server was free for the request in time.",
            Self::Version => "This server speaks HTTP/1.0 and HTTP/1.1.",
        };
        fixed.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_the_configured_limit() {
        let limits = Limits {
            max_target_bytes: 123,
            max_head_bytes: 234,
            max_fields: 345,
            max_body_bytes: 456,
            ..Limits::default()
        };
        for (rejection, number) in [
            (Rejection::TargetTooLong, "123"),
            (Rejection::HeadTooLarge, "234"),
            (Rejection::TooManyFields, "345"),
            (Rejection::BodyTooLarge, "456"),
            (Rejection::MethodTooLong, "32"),
        ] {
            assert!(rejection.explanation(&limits).contains(number), "{rejection:?}");
        }
    }
}
