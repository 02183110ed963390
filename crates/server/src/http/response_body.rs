//! The body of a response: how it is framed (RFC 9112 section 6.3), and its blocks as bytes.
//!
//! The counterpart of `body`, which takes framing off. Knows the response's head and what of the
//! request matters; nothing of the connection.

use super::digits::{push_decimal, push_hexadecimal};
use super::response::Response;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoder {
    /// The head is not written yet.
    NotStarted,
    /// To HEAD, and with 204, 205 and 304.
    Bodiless,
    Sized {
        left: u64,
    },
    Chunked,
    /// Ends where the connection does.
    UntilClose,
}

impl BodyEncoder {
    /// Decides by what the body is framed: by length where the application or the caller
    /// (`body_bytes`) knows it, else chunked to HTTP/1.1 and by closing to HTTP/1.0. Writes the
    /// field that says so.
    pub fn begin(
        response: &Response,
        body_bytes: Option<u64>,
        is_head: bool,
        is_http11: bool,
        out: &mut Vec<u8>,
    ) -> Self {
        let length = match response.code() {
            // RFC 9110 section 8.6: none on 204; on 304 that of the body which is not sent, and
            // only the application knows it.
            204 => None,
            304 => response.content_length(),
            // RFC 9110 section 15.3.6
            205 => Some(0),
            _ => response.content_length().or(body_bytes),
        };
        let this = match length {
            _ if is_head || response.is_bodiless() => Self::Bodiless,
            Some(left) => Self::Sized { left },
            None if is_http11 => Self::Chunked,
            None => Self::UntilClose,
        };
        match (this, length) {
            (Self::Chunked, _) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            (_, Some(length)) => {
                out.extend_from_slice(b"Content-Length: ");
                push_decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        this
    }

    /// Writes a block; returns how many of its bytes the framing had room for.
    pub fn encode(&mut self, block: &[u8], out: &mut Vec<u8>) -> usize {
        match self {
            Self::NotStarted | Self::Bodiless => 0,
            Self::Sized { left } => {
                let room = (*left).min(block.len() as u64) as usize;
                *left -= room as u64;
                out.extend_from_slice(&block[..room]);
                room
            }
            // An empty chunk would end the body.
            Self::Chunked if block.is_empty() => 0,
            Self::Chunked => {
                push_hexadecimal(out, block.len());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(block);
                out.extend_from_slice(b"\r\n");
                block.len()
            }
            Self::UntilClose => {
                out.extend_from_slice(block);
                block.len()
            }
        }
    }

    /// The next `bytes` of a sized body go to the peer by another way; returns how many there is
    /// room for.
    pub fn pass_over(&mut self, bytes: u64) -> u64 {
        match self {
            Self::Sized { left } => {
                let room = bytes.min(*left);
                *left -= room;
                room
            }
            _ => 0,
        }
    }

    /// True when the length of the body is fixed, so that it has no framing of its own.
    pub fn has_known_length(self) -> bool {
        matches!(self, Self::Bodiless | Self::Sized { .. })
    }

    /// True when nothing more can be sent: the body has its length, or there never is one.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Bodiless | Self::Sized { left: 0 })
    }

    /// Writes the end, unless the body is too short, or not `complete` where only the application
    /// knows; then it is false, and the body must not look complete.
    pub fn finish(self, complete: bool, out: &mut Vec<u8>) -> bool {
        let is_whole = match self {
            Self::NotStarted => false,
            Self::Bodiless => true,
            Self::Sized { left } => left == 0,
            Self::Chunked | Self::UntilClose => complete,
        };
        if is_whole && self == Self::Chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        is_whole
    }
}
