//! The receiving half of a connection: bytes in, events out.

use super::{Connection, Receiving};
use crate::http::body::{BodyDecoder, Decoded};
use crate::http::framing::Framing;
use crate::http::head_end::find_head_end;
use crate::http::rejection::Rejection;
use crate::http::response_body::BodyEncoder;
use std::ops::Range;

/// The most bytes of a body that one read receives.
pub(super) const BODY_STEP_BYTES: usize = 65_536;
/// A server should ignore an empty line before a request line (RFC 9112 section 2.2), because some
/// clients send one after a body. The number is limited so that a stream of empty lines does not
/// keep a thread busy.
const MAX_EMPTY_LINES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed for the next event.
    NeedData,
    /// A head is complete; see [`Connection::head`].
    Request,
    /// A piece of the body, as a range for [`Connection::bytes`]. The range is valid until the next
    /// call of `space`.
    Data(Range<usize>),
    /// The body is complete.
    EndOfMessage,
    /// The request is complete; the next one waits for [`Connection::finish`].
    Paused,
    /// The request is invalid: the caller answers with the rejection's status and closes the
    /// connection.
    Refused(Rejection),
    /// The connection carries no more requests.
    Closed,
}

impl Connection {
    /// Returns the space for received bytes, which is never empty. Ranges of earlier `Data` events
    /// become invalid.
    pub fn space(&mut self) -> &mut [u8] {
        let min_bytes = match self.receiving {
            // The space is as large as the data that is known to follow, so that a large body takes
            // few reads.
            Receiving::Body => self.body.known_left().min(BODY_STEP_BYTES as u64) as usize,
            _ => 0,
        };
        self.received.space(min_bytes.max(1))
    }

    /// Marks the first `count` bytes of `space` as received.
    pub fn filled(&mut self, count: usize) {
        self.received.filled(count);
    }

    /// Returns the part of `place` into which bytes of the body may be received instead of into
    /// `space`. It is empty unless such bytes are known to follow and no received byte is unread.
    pub fn space_in<'a>(&self, place: &'a mut [u8]) -> &'a mut [u8] {
        let left = match self.receiving {
            Receiving::Body if self.received.unread().is_empty() => self.body.known_left(),
            _ => 0,
        };
        let bytes = left.min(place.len() as u64) as usize;
        &mut place[..bytes]
    }

    /// Marks `bytes`, which are the beginning of `space_in`, as received and read.
    pub fn filled_in(&mut self, bytes: &[u8]) {
        let decoded = self.body.decode(bytes, bytes.len());
        debug_assert_eq!(decoded, Ok(Decoded::Data { framing: 0, data: bytes.len() }));
    }

    /// Records that the peer sends no more bytes. It may still read.
    pub fn peer_closed(&mut self) {
        self.peer_closed = true;
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.received.bytes(range)
    }

    pub fn next_event(&mut self) -> Event {
        match self.receiving {
            Receiving::Head => self.next_head(),
            Receiving::Body => self.next_body(usize::MAX),
            Receiving::Complete => Event::Paused,
            Receiving::Discard => self.next_discarded(),
            Receiving::Ended => Event::Closed,
        }
    }

    /// As `next_event`, with at most `max_bytes` of the body, which are not 0. The others remain
    /// for the next event.
    pub fn next_event_of(&mut self, max_bytes: usize) -> Event {
        match self.receiving {
            Receiving::Body => self.next_body(max_bytes),
            _ => self.next_event(),
        }
    }

    fn next_head(&mut self) -> Event {
        while self.received.unread().starts_with(b"\r\n") {
            if self.empty_lines == MAX_EMPTY_LINES {
                return self.end_with(Event::Refused(Rejection::RequestLine));
            }
            self.empty_lines += 1;
            self.received.advance(2);
        }
        let bytes = self.received.unread();
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
        self.received.keep_head(length);
        self.body = BodyDecoder::new(self.head.framing, self.limits.body_bytes());
        self.sending = BodyEncoder::NotStarted;
        if matches!(self.head.framing, Framing::Sized(length) if length > self.limits.body_bytes())
        {
            return self.end_with(Event::Refused(Rejection::BodyTooLarge));
        }
        self.receiving = Receiving::Body;
        Event::Request
    }

    fn next_body(&mut self, max_bytes: usize) -> Event {
        match self.body.decode(self.received.unread(), max_bytes) {
            Ok(Decoded::Data { framing, data }) => {
                self.received.advance(framing);
                Event::Data(self.received.advance(data))
            }
            Ok(Decoded::End { framing }) => {
                self.received.advance(framing);
                self.receiving = Receiving::Complete;
                Event::EndOfMessage
            }
            Ok(Decoded::NeedData) => {
                self.received.advance_to_end();
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
            match self.body.decode(self.received.unread(), usize::MAX) {
                Ok(Decoded::Data { framing, data }) => {
                    self.received.advance(framing + data);
                }
                Ok(Decoded::End { framing }) => {
                    self.received.advance(framing);
                    self.begin_next();
                    return self.next_head();
                }
                Ok(Decoded::NeedData) if !self.peer_closed => {
                    self.received.advance_to_end();
                    return Event::NeedData;
                }
                // The response was sent, so an error can no longer be reported.
                _ => return self.end_with(Event::Closed),
            }
        }
    }

    fn end_with(&mut self, event: Event) -> Event {
        self.receiving = Receiving::Ended;
        self.keep_alive = false;
        event
    }
}
