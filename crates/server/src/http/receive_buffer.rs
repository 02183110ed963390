//! The receive buffer of one connection: the head of the current request, followed by bytes that
//! were not read yet.
//!
//! The buffer does not depend on HTTP: its user states the length of the head.
//!
//! ```text
//!   0                       kept     start    end
//!   │ kept, contains a head │ read   │ unread │ free │
//! ```

use std::ops::Range;

/// The initial size of a buffer.
const INITIAL_BYTES: usize = 8_192;

#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    kept: usize,
    start: usize,
    end: usize,
    /// The range of the last head. Its bytes may be overwritten once it is released.
    head: Range<usize>,
}

impl ReceiveBuffer {
    /// Returns free space for `min_bytes` or more. Bytes that were read are discarded, except the
    /// kept head, so earlier ranges become invalid.
    pub fn space(&mut self, min_bytes: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = self.kept;
            self.end = self.kept;
        }
        if self.end == self.bytes.len() && self.start > self.kept {
            self.bytes.copy_within(self.start..self.end, self.kept);
            self.end -= self.start - self.kept;
            self.start = self.kept;
        }
        if self.bytes.len() - self.end < min_bytes {
            let doubled = (2 * self.bytes.len()).max(INITIAL_BYTES);
            self.bytes.resize(doubled.max(self.end + min_bytes), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Marks the first `count` bytes of `space` as received.
    pub fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Marks the next `count` unread bytes as read. Returns their range.
    pub fn advance(&mut self, count: usize) -> Range<usize> {
        let from = self.start;
        self.start += count;
        debug_assert!(self.start <= self.end);
        from..self.start
    }

    pub fn advance_to_end(&mut self) {
        self.start = self.end;
    }

    /// Marks the next `length` unread bytes as a head, and keeps them.
    pub fn keep_head(&mut self, length: usize) {
        self.head = self.advance(length);
        self.kept = self.start;
    }

    /// Stops keeping the head. Its bytes remain valid until the next call of `space`.
    pub fn release_head(&mut self) {
        self.kept = 0;
    }

    pub fn head(&self) -> &[u8] {
        &self.bytes[self.head.clone()]
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Gives memory to a buffer that has none: all of `bytes`, whatever their content.
    pub fn lend(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.bytes.is_empty());
        self.bytes = bytes;
    }

    /// Takes the memory, including its content.
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
    fn read_bytes_are_discarded_and_the_head_is_kept() {
        let mut buffer = ReceiveBuffer::default();
        receive(&mut buffer, b"skipped head body");
        buffer.advance(8);
        buffer.keep_head(5);
        let body = buffer.advance(4);
        assert_eq!(buffer.bytes(body), b"body");
        assert_eq!(buffer.unread(), b"");
        let room = INITIAL_BYTES - "skipped head ".len();
        assert_eq!(buffer.space(1).len(), room, "the body is discarded");
        receive(&mut buffer, &vec![b'y'; room]);
        buffer.advance(room - 3);
        assert_eq!(buffer.space(1).len(), room - 3, "read bytes are discarded");
        assert_eq!(buffer.unread(), b"yyy");
        assert_eq!(buffer.space(room).len(), 2 * INITIAL_BYTES - 16, "the buffer has grown");
        assert_eq!(buffer.head(), b"head ");
    }

    #[test]
    fn a_released_head_is_discarded() {
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
