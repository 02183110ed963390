//! The sending half of a connection: a response in, bytes out.

use super::{Connection, Receiving};
use crate::http::response::Response;
use crate::http::response_body::BodyEncoder;

/// An unread rest of a request body is read and discarded up to this size, to keep the connection.
/// For a larger rest, closing is cheaper for both sides.
const MAX_DISCARD_BYTES: u64 = 65_536;

/// The values that a connection adds to a response head or that determine it.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// An IMF-fixdate for the Date field.
    pub date: &'a [u8],
    pub server: &'a [u8],
    /// The length of the whole body, if the caller knows it and the application gave none.
    pub body_bytes: Option<u64>,
    /// Whether the server accepts no further request on this connection.
    pub closing: bool,
}

/// How a response ended, for the owner of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The connection may carry another request.
    KeepAlive,
    /// The caller closes the connection after the bytes written so far.
    Close,
    /// The response is incomplete and must not look complete. The caller closes the connection, and
    /// resets it if a normal close would mark the end of the body (`reset`).
    Truncated { reset: bool },
}

impl Connection {
    /// Writes the head of a response. This determines the framing of its body and whether the
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
            && !response.closes_connection()
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

    /// Writes a block of the body. Returns how many of its bytes the framing has room for.
    pub fn encode_data(&mut self, block: &[u8], out: &mut Vec<u8>) -> usize {
        self.sending.encode(block, out)
    }

    /// Returns true if the response has no body: the method is HEAD, or the status is 204, 205 or
    /// 304.
    pub fn is_bodiless(&self) -> bool {
        self.sending == BodyEncoder::Bodiless
    }

    /// Returns true if the length of the body is fixed, so that its bytes have no framing.
    pub fn has_known_length(&self) -> bool {
        self.sending.has_known_length()
    }

    /// Counts `bytes` of a body of known length that are sent without `encode_data`. Returns how
    /// many of them the framing has room for.
    pub fn pass_over_data(&mut self, bytes: u64) -> u64 {
        self.sending.pass_over(bytes)
    }

    /// Returns true if nothing more of a body can be sent: the body has its full length, or the
    /// response has no body.
    pub fn is_response_full(&self) -> bool {
        self.sending.is_full()
    }

    /// Ends the response, and returns whether the connection continues. `complete` is false if the
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
        // Readers stop at Content-Length, so the decoder may not have reported the end of the body.
        if self.is_body_complete() {
            self.begin_next();
        } else {
            self.receiving = Receiving::Discard;
        }
        Finished::KeepAlive
    }

    /// Writes a whole response that ends the connection, after `Event::Refused`.
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

    /// Returns true if the rest of the request body can be received and discarded to keep the
    /// connection. That is not possible if the end of the body is unknown, or if the peer may never
    /// send the body because it waits for `100 Continue`.
    fn may_discard(&self) -> bool {
        let received = self.received.unread().len() as u64;
        self.receiving == Receiving::Body
            && !self.withholds_body()
            && self
                .sized_left()
                .is_some_and(|left| left.saturating_sub(received) <= MAX_DISCARD_BYTES)
    }

    fn withholds_body(&self) -> bool {
        self.head.expects_continue && self.received.unread().is_empty()
    }
}
