//! One HTTP/1.1 connection of the server: received bytes become events, and a response becomes
//! bytes to send.
//!
//! `receiving`: the caller fills [`Connection::space`], passes the number of received bytes to
//! [`Connection::filled`] (or calls [`Connection::peer_closed`]), and then takes events until
//! `NeedData` or `Paused`. `sending`: the caller writes one head, data and an end;
//! [`Connection::finish`] then returns whether a next request may follow. This file contains the
//! state that both halves share.
//!
//! A connection does not depend on sockets, time or Python. One thread at a time uses it.
//!
//! ```text
//!            Request           EndOfMessage            finish()
//!   Head ──────────────► Body ───────────────► Complete ────────► Head
//!    │  └───────────────────────────────────────▲   (no body)      ▲
//!    │                    │ finish(), little left                  │
//!    │                    └────────► Discard ──────────────────────┘
//!    └─ Refused ─► Ended ◄─ Refused / Closed, from anywhere
//! ```

mod receiving;
mod sending;

pub use receiving::Event;
pub use sending::{Finished, Surroundings};

use crate::http::body::BodyDecoder;
use crate::http::framing::Framing;
use crate::http::head::Head;
use crate::http::limits::Limits;
use crate::http::receive_buffer::ReceiveBuffer;
use crate::http::response_body::BodyEncoder;
use std::sync::Arc;

/// Idle connections keep memory for this many fields.
const KEPT_FIELDS: usize = 32;

#[derive(Debug)]
pub struct Connection {
    limits: Arc<Limits>,
    received: ReceiveBuffer,
    /// The length of the unread bytes in which the end of a head was sought.
    scanned: usize,
    head: Head,
    /// The empty lines skipped before the next request line.
    empty_lines: usize,
    receiving: Receiving,
    body: BodyDecoder,
    peer_closed: bool,
    sending: BodyEncoder,
    /// A request was parsed and is not finished, so its method and version are known to the
    /// response.
    requested: bool,
    keep_alive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Head,
    Body,
    Complete,
    Discard,
    Ended,
}

impl Connection {
    pub fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            received: ReceiveBuffer::default(),
            scanned: 0,
            head: Head::default(),
            empty_lines: 0,
            receiving: Receiving::Head,
            body: BodyDecoder::new(Framing::Empty, 0),
            peer_closed: false,
            sending: BodyEncoder::NotStarted,
            requested: false,
            keep_alive: true,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the head of the current request, and the bytes that its ranges refer to. After
    /// `finish` this remains the finished request until the next event.
    pub fn head(&self) -> (&Head, &[u8]) {
        (&self.head, self.received.head())
    }

    /// Returns the head of the current request as `head` does; `None` until the head is complete
    /// and parsed.
    pub fn request(&self) -> Option<(&Head, &[u8])> {
        self.requested.then(|| self.head())
    }

    pub fn is_method(&self, method: &[u8]) -> bool {
        let (head, bytes) = self.head();
        &bytes[head.method.clone()] == method
    }

    /// Returns true between requests if no byte of a next request was received.
    pub fn is_idle(&self) -> bool {
        self.receiving == Receiving::Head && self.received.unread().is_empty()
    }

    /// Returns true while the rest of a body whose request was answered is discarded.
    pub fn is_discarding(&self) -> bool {
        self.receiving == Receiving::Discard
    }

    /// Returns true if all received bytes were read and no body is outstanding.
    pub fn is_drained(&self) -> bool {
        self.received.unread().is_empty() && self.body.is_complete()
    }

    /// Returns true if the peer asked to close the connection after the current request.
    pub fn is_asked_to_close(&self) -> bool {
        self.requested && !self.head.keep_alive
    }

    /// Returns true if the whole body has been received and passed to the caller.
    pub fn is_body_complete(&self) -> bool {
        matches!(self.receiving, Receiving::Complete) || self.body.is_complete()
    }

    /// Returns how many bytes of the body have not been passed to the caller; `None` unless its
    /// length is known (`Content-Length`).
    pub fn sized_left(&self) -> Option<u64> {
        matches!(self.head.framing, Framing::Sized(_)).then(|| self.body.known_left())
    }

    /// Returns true while the peer may be waiting for `100 Continue` before it sends the body.
    pub fn awaits_continue(&self) -> bool {
        self.head.expects_continue
            && self.receiving == Receiving::Body
            && self.received.unread().is_empty()
            && self.sending == BodyEncoder::NotStarted
    }

    /// Records that `100 Continue` was sent.
    pub fn continued(&mut self) {
        self.head.expects_continue = false;
    }

    /// Gives a receive buffer to a connection that has none: all of `buffer`, whatever its content.
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        self.received.lend(buffer);
    }

    /// Takes the receive buffer. Only allowed while the connection is idle, or if it is never used
    /// again.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        if self.head.fields.capacity() > KEPT_FIELDS {
            self.head.fields = Vec::new();
        }
        self.received.take()
    }

    /// Begins the next request. The current one was received completely, and its response is
    /// written.
    fn begin_next(&mut self) {
        self.received.release_head();
        self.empty_lines = 0;
        self.receiving = Receiving::Head;
        self.sending = BodyEncoder::NotStarted;
        self.requested = false;
    }
}

#[cfg(test)]
mod tests;
