//! One HTTP/1.1 connection, seen from the server: bytes in, events out; a response in, bytes out.
//!
//! `receiving`: fill [`Connection::space`], tell [`Connection::filled`] how much came (or
//! [`Connection::peer_closed`]), then take events until `NeedData` or `Paused`. `sending`: one head,
//! data, an end; then [`Connection::finish`] says whether a next request may follow. Here is what
//! both halves know.
//!
//! Knows nothing of sockets, time or Python. One thread at a time.
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

/// Idle connections keep room for this many fields.
const KEPT_FIELDS: usize = 32;

#[derive(Debug)]
pub struct Connection {
    limits: Arc<Limits>,
    received: ReceiveBuffer,
    /// How far into the unread bytes the end of a head has been sought.
    scanned: usize,
    head: Head,
    /// Skipped before the request line that is to come.
    empty_lines: usize,
    receiving: Receiving,
    body: BodyDecoder,
    peer_closed: bool,
    sending: BodyEncoder,
    /// A request was parsed and is not finished: who answers it knows its method and version.
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

    /// The head of the current request, and the bytes that its ranges refer to. After `finish`
    /// they are still those of the request that was finished, until the next event.
    pub fn head(&self) -> (&Head, &[u8]) {
        (&self.head, self.received.head())
    }

    /// The same of the request that is under way; `None` before its head is complete and parsed.
    pub fn request(&self) -> Option<(&Head, &[u8])> {
        self.requested.then(|| self.head())
    }

    pub fn is_method(&self, method: &[u8]) -> bool {
        let (head, bytes) = self.head();
        &bytes[head.method.clone()] == method
    }

    /// True between requests, with no byte of a next one received.
    pub fn is_idle(&self) -> bool {
        self.receiving == Receiving::Head && self.received.unread().is_empty()
    }

    /// True while what is left of a body is dropped whose request was answered.
    pub fn is_discarding(&self) -> bool {
        self.receiving == Receiving::Discard
    }

    /// True when nothing that was received is left to be looked at, and no body is outstanding.
    pub fn is_drained(&self) -> bool {
        self.received.unread().is_empty() && self.body.is_complete()
    }

    /// True when the peer wants no request after the current one.
    pub fn is_asked_to_close(&self) -> bool {
        self.requested && !self.head.keep_alive
    }

    /// True when the whole body has been received and handed out.
    pub fn is_body_complete(&self) -> bool {
        matches!(self.receiving, Receiving::Complete) || self.body.is_complete()
    }

    /// True while the peer may be holding the body back until it reads `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.head.expects_continue
            && self.receiving == Receiving::Body
            && self.received.unread().is_empty()
            && self.sending == BodyEncoder::NotStarted
    }

    /// `100 Continue` has been sent.
    pub fn continued(&mut self) {
        self.head.expects_continue = false;
    }

    /// Gives a connection that has no memory for received bytes some: all of `buffer`, whatever
    /// it holds.
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        self.received.lend(buffer);
    }

    /// Takes that memory away. Only while the connection is idle, or never used again.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        if self.head.fields.capacity() > KEPT_FIELDS {
            self.head.fields = Vec::new();
        }
        self.received.take()
    }

    /// The request was received to its end, and its response is written.
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
