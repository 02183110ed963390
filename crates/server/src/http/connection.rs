//! One HTTP/1.1 connection, seen from the server: bytes in, events out; a response in, bytes out.
//!
//! Receiving: fill [`Connection::space`], tell [`Connection::filled`] how much came (or
//! [`Connection::peer_closed`]), then take events until `NeedData` or `Paused`. Sending: one head,
//! data, an end; then [`Connection::finish`] says whether a next request may follow.
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

use super::body::{BodyDecoder, Decoded};
use super::head::{Framing, Head, find_head_end};
use super::limits::Limits;
use super::rejection::Rejection;
use super::response::Response;
use std::ops::Range;
use std::sync::Arc;

/// A read buffer starts with this much.
const BUFFER_BYTES: usize = 8_192;
/// Idle connections keep room for this many fields.
const KEPT_FIELDS: usize = 32;
/// Bodies are read in steps of at most this.
const BODY_STEP_BYTES: usize = 65_536;
/// A body that the application left unread is read and dropped up to this much, to keep the
/// connection; beyond it closing is cheaper for both sides.
const MAX_DISCARD_BYTES: u64 = 65_536;

#[derive(Debug)]
pub struct Connection {
    limits: Arc<Limits>,
    /// `[..kept]` is the head of the request being answered, `[start..end]` was received but not
    /// looked at yet, `[end..]` is free.
    buffer: Vec<u8>,
    kept: usize,
    start: usize,
    end: usize,
    /// Where the current head lies in `buffer`.
    head_start: usize,
    head_end: usize,
    /// How far beyond `start` the end of a head has been sought.
    scanned: usize,
    head: Head,
    receiving: Receiving,
    body: BodyDecoder,
    peer_closed: bool,
    sending: Sending,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    NotStarted,
    Bodiless,
    Sized { left: u64 },
    Chunked,
    UntilClose,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing more can be said without more bytes.
    NeedData,
    /// A head is complete: see [`Connection::head`].
    Request,
    /// A piece of the body, as a range for [`Connection::bytes`]; true until `space` is called.
    Data(Range<usize>),
    /// The body is complete.
    EndOfMessage,
    /// The request is complete; the next one waits for [`Connection::finish`].
    Paused,
    /// Malformed: answer with the rejection's status, then close.
    Refused(Rejection),
    /// The peer is done.
    Closed,
}

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
    pub fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            buffer: Vec::new(),
            kept: 0,
            start: 0,
            end: 0,
            head_start: 0,
            head_end: 0,
            scanned: 0,
            head: Head::default(),
            receiving: Receiving::Head,
            body: BodyDecoder::new(Framing::Empty, 0),
            peer_closed: false,
            sending: Sending::NotStarted,
            requested: false,
            keep_alive: true,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Where received bytes are to be put. Never empty. Ends the life of `Data` ranges.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = self.kept;
            self.end = self.kept;
        }
        if self.end == self.buffer.len() && self.start > self.kept {
            self.buffer.copy_within(self.start..self.end, self.kept);
            self.end -= self.start - self.kept;
            self.start = self.kept;
        }
        let wanted = match self.receiving {
            // As large as what must come, so that a large body takes few reads.
            Receiving::Body => self.body.known_left().min(BODY_STEP_BYTES as u64) as usize,
            _ => 1,
        };
        if self.buffer.len() - self.end < wanted {
            let doubled = (2 * self.buffer.len()).max(BUFFER_BYTES);
            self.buffer.resize(doubled.max(self.end + wanted), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// The first `count` bytes of `space` hold what was received.
    pub fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// The peer will send no more (it may still read).
    pub fn peer_closed(&mut self) {
        self.peer_closed = true;
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The head of the current request, and the bytes that its ranges refer to. After `finish`
    /// they are still those of the request that was finished, until the next event.
    pub fn head(&self) -> (&Head, &[u8]) {
        (&self.head, &self.buffer[self.head_start..self.head_end])
    }

    /// True between requests, with no byte of a next one received.
    pub fn is_idle(&self) -> bool {
        self.receiving == Receiving::Head && self.start == self.end
    }

    /// True when nothing that was received is left to be looked at, and no body is outstanding.
    pub fn is_drained(&self) -> bool {
        self.start == self.end && self.body.is_complete()
    }

    /// True when the whole body has been received and handed out.
    pub fn is_body_complete(&self) -> bool {
        matches!(self.receiving, Receiving::Complete) || self.body.is_complete()
    }

    /// True while the peer may be holding the body back until it reads `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.head.expects_continue
            && self.receiving == Receiving::Body
            && self.start == self.end
            && self.sending == Sending::NotStarted
    }

    /// `100 Continue` has been sent.
    pub fn continued(&mut self) {
        self.head.expects_continue = false;
    }

    /// Gives a connection that has no memory for received bytes some: all of `buffer`, whatever
    /// it holds.
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.buffer.is_empty());
        self.buffer = buffer;
    }

    /// Takes that memory away. Only while the connection is idle, or never used again.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        (self.kept, self.start, self.end) = (0, 0, 0);
        (self.head_start, self.head_end) = (0, 0);
        if self.head.fields.capacity() > KEPT_FIELDS {
            self.head.fields = Vec::new();
        }
        std::mem::take(&mut self.buffer)
    }

    pub fn next_event(&mut self) -> Event {
        match self.receiving {
            Receiving::Head => self.next_head(),
            Receiving::Body => self.next_body(),
            Receiving::Complete => Event::Paused,
            Receiving::Discard => self.next_discarded(),
            Receiving::Ended => Event::Closed,
        }
    }

    fn next_head(&mut self) -> Event {
        // Empty lines before a request line are skipped (RFC 9112 section 2.2).
        loop {
            match &self.buffer[self.start..self.end] {
                [b'\r', b'\n', ..] => self.start += 2,
                [] | [b'\r'] if self.peer_closed => return self.end_with(Event::Closed),
                [] | [b'\r'] => return Event::NeedData,
                // No method begins with anything but a letter: say so without waiting for a
                // line end that, in a TLS handshake, may never come.
                [first, ..] if !first.is_ascii_alphabetic() => {
                    return self.end_with(Event::Refused(Rejection::RequestLine));
                }
                _ => break,
            }
        }
        let bytes = &self.buffer[self.start..self.end];
        let length = match find_head_end(bytes, &mut self.scanned, &self.limits) {
            Ok(Some(length)) => length,
            Ok(None) if self.peer_closed => return self.end_with(Event::Closed),
            Ok(None) => return Event::NeedData,
            Err(rejection) => return self.end_with(Event::Refused(rejection)),
        };
        self.scanned = 0;
        if let Err(rejection) = self.head.parse(&bytes[..length], &self.limits) {
            return self.end_with(Event::Refused(rejection));
        }
        self.requested = true;
        self.head_start = self.start;
        self.start += length;
        self.head_end = self.start;
        self.kept = self.start;
        self.body = BodyDecoder::new(self.head.framing, self.limits.body_bytes());
        self.sending = Sending::NotStarted;
        if matches!(self.head.framing, Framing::Sized(length) if length > self.limits.body_bytes())
        {
            return self.end_with(Event::Refused(Rejection::BodyTooLarge));
        }
        self.receiving = Receiving::Body;
        Event::Request
    }

    fn next_body(&mut self) -> Event {
        match self.body.decode(&self.buffer[self.start..self.end]) {
            Ok(Decoded::Data { framing, data }) => {
                let from = self.start + framing;
                self.start = from + data;
                Event::Data(from..self.start)
            }
            Ok(Decoded::End { framing }) => {
                self.start += framing;
                self.receiving = Receiving::Complete;
                Event::EndOfMessage
            }
            Ok(Decoded::NeedData) => {
                self.start = self.end;
                if self.peer_closed {
                    self.end_with(Event::Refused(Rejection::BodyCutShort))
                } else {
                    Event::NeedData
                }
            }
            Err(rejection) => self.end_with(Event::Refused(rejection)),
        }
    }

    fn next_discarded(&mut self) -> Event {
        loop {
            match self.body.decode(&self.buffer[self.start..self.end]) {
                Ok(Decoded::Data { framing, data }) => self.start += framing + data,
                Ok(Decoded::End { framing }) => {
                    self.start += framing;
                    self.begin_next();
                    return self.next_head();
                }
                Ok(Decoded::NeedData) if !self.peer_closed => {
                    self.start = self.end;
                    return Event::NeedData;
                }
                // The response is out, so there is nobody left to tell.
                _ => return self.end_with(Event::Closed),
            }
        }
    }

    fn end_with(&mut self, event: Event) -> Event {
        self.receiving = Receiving::Ended;
        self.keep_alive = false;
        event
    }

    fn begin_next(&mut self) {
        self.kept = 0;
        self.receiving = Receiving::Head;
        self.sending = Sending::NotStarted;
        self.requested = false;
    }

    /// Writes the head of a response and decides how its body is framed (RFC 9112 section 6.3):
    /// by length where it is known, else chunked to HTTP/1.1 and by closing to HTTP/1.0.
    pub fn encode_head(
        &mut self,
        response: &Response,
        surroundings: Surroundings,
        out: &mut Vec<u8>,
    ) {
        debug_assert_eq!(self.sending, Sending::NotStarted);
        let is_head = self.requested && self.is_method(b"HEAD");
        let is_http11 = self.requested && self.head.minor_version == 1;
        let length = match response.code() {
            // RFC 9110 section 8.6: none on 204; on 304 that of the body which is not sent, and
            // only the application knows it.
            204 => None,
            304 => response.content_length(),
            // RFC 9110 section 15.3.6
            205 => Some(0),
            _ => response.content_length().or(surroundings.body_bytes),
        };
        response.write_to(out, surroundings.date, surroundings.server);
        self.sending = match length {
            _ if is_head || response.is_bodiless() => Sending::Bodiless,
            Some(left) => Sending::Sized { left },
            None if is_http11 => Sending::Chunked,
            None => Sending::UntilClose,
        };
        match (self.sending, length) {
            (Sending::Chunked, _) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            (_, Some(length)) => {
                out.extend_from_slice(b"Content-Length: ");
                push_decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        self.keep_alive = matches!(self.receiving, Receiving::Body | Receiving::Complete)
            && self.head.keep_alive
            && !surroundings.closing
            && !self.peer_closed
            && self.sending != Sending::UntilClose
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
        match &mut self.sending {
            Sending::NotStarted | Sending::Bodiless => 0,
            Sending::Sized { left } => {
                let room = (*left).min(block.len() as u64) as usize;
                *left -= room as u64;
                out.extend_from_slice(&block[..room]);
                room
            }
            // An empty chunk would end the body.
            Sending::Chunked if block.is_empty() => 0,
            Sending::Chunked => {
                push_hexadecimal(out, block.len());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(block);
                out.extend_from_slice(b"\r\n");
                block.len()
            }
            Sending::UntilClose => {
                out.extend_from_slice(block);
                block.len()
            }
        }
    }

    /// True when the response has no body: to HEAD, 204, 304.
    pub fn is_bodiless(&self) -> bool {
        self.sending == Sending::Bodiless
    }

    /// True when the length of the body is fixed, so that it has no framing of its own.
    pub fn has_known_length(&self) -> bool {
        matches!(self.sending, Sending::Bodiless | Sending::Sized { .. })
    }

    /// The next `bytes` of a body of known length go to the peer by another way; returns how many
    /// there is room for.
    pub fn pass_over_data(&mut self, bytes: u64) -> u64 {
        match &mut self.sending {
            Sending::Sized { left } => {
                let room = bytes.min(*left);
                *left -= room;
                room
            }
            _ => 0,
        }
    }

    /// True when nothing more of a body can be sent: it has its length, or it never has a body.
    pub fn is_response_full(&self) -> bool {
        matches!(self.sending, Sending::Bodiless | Sending::Sized { left: 0 })
    }

    /// Ends the response and says what becomes of the connection. `complete` is false when the
    /// application failed after its head was sent.
    pub fn finish(&mut self, complete: bool, out: &mut Vec<u8>) -> Finished {
        let short = match self.sending {
            Sending::NotStarted => true,
            Sending::Bodiless => false,
            Sending::Sized { left } => left > 0,
            Sending::Chunked | Sending::UntilClose => !complete,
        };
        if short {
            self.receiving = Receiving::Ended;
            return Finished::Truncated { reset: self.sending == Sending::UntilClose };
        }
        if self.sending == Sending::Chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        if !self.keep_alive {
            self.receiving = Receiving::Ended;
            return Finished::Close;
        }
        if self.receiving == Receiving::Complete {
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
        self.sending = Sending::NotStarted;
        let body_bytes = Some(body.len() as u64);
        self.encode_head(response, Surroundings { body_bytes, ..surroundings }, out);
        self.encode_data(body, out);
        self.finish(true, out);
    }

    pub fn is_method(&self, method: &[u8]) -> bool {
        let (head, bytes) = self.head();
        &bytes[head.method.clone()] == method
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
        self.head.expects_continue && self.start == self.end
    }
}

/// Decimal without an allocation.
pub fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn push_hexadecimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; 16];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[number % 16];
        number /= 16;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
