//! Our half of a connection: a response in, bytes out.

use super::{Connection, Receiving};
use crate::http::framing::Framing;
use crate::http::response::Response;
use crate::http::response_body::BodyEncoder;

/// A body that the application left unread is read and dropped up to this much, to keep the
/// connection; beyond it closing is cheaper for both sides.
const MAX_DISCARD_BYTES: u64 = 65_536;

/// What a connection adds to a response head, and what it needs to know for it.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// An IMF-fixdate for the Date field.
    pub date: &'a [u8],
    pub server: &'a [u8],
    /// The length of the whole body, where the caller knows it and the application gave none.
    pub body_bytes: Option<u64>,
    /// The server wants no further request on this connection.
    pub closing: bool,
}

/// How a response ended, for who owns the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The connection may carry another request.
    KeepAlive,
    /// Close after the bytes written so far.
    Close,
    /// The response is incomplete and must not look complete: close, and reset the connection
    /// if closing is what would mark its end.
    Truncated { reset: bool },
}

impl Connection {
    /// Writes the head of a response, and with it decides how its body is framed and whether the
    /// connection is kept.
    pub fn encode_head(
        &mut self,
        response: &Response,
        surroundings: Surroundings,
        out: &mut Vec<u8>,
    ) {
        debug_assert_eq!(self.sending, BodyEncoder::NotStarted);
        let is_head = self.requested && self.is_method(b"HEAD");
        let is_http11 = self.requested && self.head.minor_version == 1;
        response.write_to(out, surroundings.date, surroundings.server);
        self.sending =
            BodyEncoder::begin(response, surroundings.body_bytes, is_head, is_http11, out);
        self.keep_alive = matches!(self.receiving, Receiving::Body | Receiving::Complete)
            && self.head.keep_alive
            && !surroundings.closing
            && !self.peer_closed
            && self.sending != BodyEncoder::UntilClose
            && (self.is_body_complete() || self.may_discard());
        if !self.keep_alive {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if !is_http11 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Writes a block of the body; returns how many of its bytes the framing had room for.
    pub fn encode_data(&mut self, block: &[u8], out: &mut Vec<u8>) -> usize {
        self.sending.encode(block, out)
    }

    /// True when the response has no body: to HEAD, 204, 304.
    pub fn is_bodiless(&self) -> bool {
        self.sending == BodyEncoder::Bodiless
    }

    /// True when the length of the body is fixed, so that it has no framing of its own.
    pub fn has_known_length(&self) -> bool {
        self.sending.has_known_length()
    }

    /// The next `bytes` of a body of known length go to the peer by another way; returns how many
    /// there is room for.
    pub fn pass_over_data(&mut self, bytes: u64) -> u64 {
        self.sending.pass_over(bytes)
    }

    /// True when nothing more of a body can be sent: it has its length, or it never has a body.
    pub fn is_response_full(&self) -> bool {
        self.sending.is_full()
    }

    /// Ends the response and says what becomes of the connection. `complete` is false when the
    /// application failed after its head was sent.
    pub fn finish(&mut self, complete: bool, out: &mut Vec<u8>) -> Finished {
        if !self.sending.finish(complete, out) {
            self.receiving = Receiving::Ended;
            return Finished::Truncated { reset: self.sending == BodyEncoder::UntilClose };
        }
        if !self.keep_alive {
            self.receiving = Receiving::Ended;
            return Finished::Close;
        }
        // Who knows the length of a body does not read beyond it, and never sees its end.
        if self.is_body_complete() {
            self.begin_next();
        } else {
            self.receiving = Receiving::Discard;
        }
        Finished::KeepAlive
    }

    /// Writes a whole response that ends the connection, after `Refused`.
    pub fn refuse(
        &mut self,
        response: &Response,
        surroundings: Surroundings,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        self.receiving = Receiving::Ended;
        self.sending = BodyEncoder::NotStarted;
        let body_bytes = Some(body.len() as u64);
        self.encode_head(response, Surroundings { body_bytes, ..surroundings }, out);
        self.encode_data(body, out);
        self.finish(true, out);
    }

    /// What is left of the body may come and be dropped, so that the connection can be kept. Not
    /// if it has no known end, nor while the peer may never send it because nobody told it to
    /// continue.
    fn may_discard(&self) -> bool {
        matches!(self.head.framing, Framing::Sized(_))
            && self.receiving == Receiving::Body
            && !self.awaits_continue_ever()
            && self.body.known_left() <= MAX_DISCARD_BYTES
    }

    fn awaits_continue_ever(&self) -> bool {
        self.head.expects_continue && self.received.unread().is_empty()
    }
}
