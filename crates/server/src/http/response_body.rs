//! The response body encoder: it chooses the framing (RFC 9112 section 6.3) and encodes blocks.
//!
//! This is the counterpart of `body`, which removes the framing. It depends on the response head
//! and on facts about the request that its caller passes, not on the connection.

use super::digits::{push_decimal, push_hexadecimal};
use super::response::Response;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoder {
    /// The head is not written yet.
    NotStarted,
    /// The response has no body: the method is HEAD, or the status is 204, 205 or 304.
    Bodiless,
    Sized {
        left: u64,
    },
    Chunked,
    /// The end of the connection is the end of the body.
    UntilClose,
}

impl BodyEncoder {
    /// Chooses the framing: by length if the application or the caller (`body_bytes`) knows it,
    /// else chunked for HTTP/1.1 and by closing the connection for HTTP/1.0. Writes the field that
    /// declares the framing.
    pub fn begin(
        response: &Response,
        body_bytes: Option<u64>,
        is_head: bool,
        is_http11: bool,
        out: &mut Vec<u8>,
    ) -> Self {
        let length = match response.code() {
            // RFC 9110 section 8.6: a 204 response has no length. A 304 response has the length of
            // the body that is not sent, which only the application knows.
            204 => None,
            304 => response.content_length(),
            // RFC 9110 section 15.3.6: a 205 response has no content.
            205 => Some(0),
            _ => response.content_length().or(body_bytes),
        };
        let encoder = match length {
            _ if is_head || response.is_bodiless() => Self::Bodiless,
            Some(left) => Self::Sized { left },
            None if is_http11 => Self::Chunked,
            None => Self::UntilClose,
        };
        match (encoder, length) {
            (Self::Chunked, _) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            (_, Some(length)) => {
                out.extend_from_slice(b"Content-Length: ");
                push_decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        encoder
    }

    /// Writes a block. Returns how many of its bytes the framing has room for.
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

    /// Counts `bytes` of a sized body that are sent without this encoder. Returns how many of them
    /// the framing has room for.
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

    /// Returns true if the length of the body is fixed, so that its bytes have no framing.
    pub fn has_known_length(self) -> bool {
        matches!(self, Self::Bodiless | Self::Sized { .. })
    }

    /// Returns true if nothing more can be sent: the body has its full length, or the response has
    /// no body.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Bodiless | Self::Sized { left: 0 })
    }

    /// Writes the end of the body. Returns false if the body must not look complete: it is shorter
    /// than its length, or, without a length, the application did not complete it (`complete`).
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
