//! What one connection has received: the head of the request that is being answered, and behind it
//! what nobody has looked at yet.
//!
//! Knows nothing of HTTP: who reads says how much of it was a head.
//!
//! ```text
//!   0                       kept        start               end
//!   │ to be kept, with a head │ was read  │ not looked at yet │ free │
//! ```

use std::ops::Range;

/// What a buffer starts with.
const INITIAL_BYTES: usize = 8_192;

#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    kept: usize,
    start: usize,
    end: usize,
    /// Where the last head lies. Its bytes may be overwritten once it is released.
    head: Range<usize>,
}

impl ReceiveBuffer {
    /// Free room for `wanted` bytes or more. What was read goes, but for the kept head, so ranges
    /// are no longer true.
    pub fn space(&mut self, wanted: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = self.kept;
            self.end = self.kept;
        }
        if self.end == self.bytes.len() && self.start > self.kept {
            self.bytes.copy_within(self.start..self.end, self.kept);
            self.end -= self.start - self.kept;
            self.start = self.kept;
        }
        if self.bytes.len() - self.end < wanted {
            let doubled = (2 * self.bytes.len()).max(INITIAL_BYTES);
            self.bytes.resize(doubled.max(self.end + wanted), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// The first `count` bytes of `space` hold what was received.
    pub fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The next `count` unread bytes were read. Returns where they are.
    pub fn advance(&mut self, count: usize) -> Range<usize> {
        let from = self.start;
        self.start += count;
        debug_assert!(self.start <= self.end);
        from..self.start
    }

    pub fn advance_to_end(&mut self) {
        self.start = self.end;
    }

    /// The next `length` unread bytes are a head, which is to be kept.
    pub fn keep_head(&mut self, length: usize) {
        self.head = self.advance(length);
        self.kept = self.start;
    }

    /// The head need not be kept any longer. It is still there until the next `space`.
    pub fn release_head(&mut self) {
        self.kept = 0;
    }

    pub fn head(&self) -> &[u8] {
        &self.bytes[self.head.clone()]
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Gives a buffer that has no memory some: all of `bytes`, whatever it holds.
    pub fn lend(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.bytes.is_empty());
        self.bytes = bytes;
    }

    /// Takes the memory away, with what is in it.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(buffer: &mut ReceiveBuffer, bytes: &[u8]) {
        buffer.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        buffer.filled(bytes.len());
    }

    #[test]
    fn what_was_read_makes_room_and_the_head_stays() {
        let mut buffer = ReceiveBuffer::default();
        receive(&mut buffer, b"skipped head body");
        buffer.advance(8);
        buffer.keep_head(5);
        let body = buffer.advance(4);
        assert_eq!(buffer.bytes(body), b"body");
        assert_eq!(buffer.unread(), b"");
        let room = INITIAL_BYTES - "skipped head ".len();
        assert_eq!(buffer.space(1).len(), room, "the body is gone");
        receive(&mut buffer, &vec![b'y'; room]);
        buffer.advance(room - 3);
        assert_eq!(buffer.space(1).len(), room - 3, "what was read is gone");
        assert_eq!(buffer.unread(), b"yyy");
        assert_eq!(buffer.space(room).len(), 2 * INITIAL_BYTES - 16, "grown");
        assert_eq!(buffer.head(), b"head ");
    }

    #[test]
    fn a_released_head_makes_room_too() {
        let mut buffer = ReceiveBuffer::default();
        receive(&mut buffer, b"head ");
        buffer.keep_head(5);
        buffer.release_head();
        assert_eq!(buffer.head(), b"head ");
        assert_eq!(buffer.space(1).len(), INITIAL_BYTES);
        assert_eq!(buffer.take().len(), INITIAL_BYTES);
        assert_eq!((buffer.head(), buffer.unread()), (&b""[..], &b""[..]));
    }
}
