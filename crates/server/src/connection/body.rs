//! The decoded body of a request, between the connection that receives it and the application that
//! reads it in pieces.

/// Bytes in the order of the body, without those that the application has taken.
#[derive(Debug, Default)]
pub struct RequestBody {
    bytes: Vec<u8>,
    /// `bytes[..taken]` was taken, and is removed when bytes are added.
    taken: usize,
}

impl RequestBody {
    /// An empty body that uses the memory of `buffer`.
    pub fn with_memory(buffer: Vec<u8>) -> Self {
        let mut this = Self { bytes: buffer, taken: 0 };
        this.clear();
        this
    }

    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    /// The part that was received and not taken.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        // An upload has no bound, and an application that reads in pieces leaves a rest each time.
        // The rest is moved only once it is the smaller part, so each byte is moved at most once on
        // average.
        if self.taken > 0 && self.taken >= self.unread().len() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Forgets the first `count` bytes of `unread`.
    pub fn take(&mut self, count: usize) {
        debug_assert!(count <= self.unread().len());
        self.taken += count;
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_any_length_needs_little_memory() {
        let piece: Vec<u8> = (0..=250).cycle().take(65_536).collect();
        let mut body = RequestBody::default();
        let (mut received, mut seen) = (0, 0);
        // The first part is no multiple of a read's size.
        body.extend_from_slice(&piece[..40_000]);
        received += 40_000;
        for _ in 0..200 {
            while body.unread().len() < piece.len() {
                body.extend_from_slice(&piece[received % 251..][..60_000]);
                received += 60_000;
            }
            assert_eq!(
                &body.unread()[..piece.len() - 251],
                &piece[seen % 251..][..piece.len() - 251]
            );
            body.take(piece.len());
            seen += piece.len();
        }
        assert_eq!(body.unread().len(), received - seen);
        assert!(body.bytes.capacity() < 8 * piece.len(), "{}", body.bytes.capacity());
    }

    #[test]
    fn what_was_taken_is_gone_and_memory_is_used_again() {
        let mut body = RequestBody::with_memory(b"of another request".to_vec());
        assert!(body.unread().is_empty());
        body.extend_from_slice(b"abc");
        body.take(2);
        body.extend_from_slice(b"def");
        assert_eq!(body.unread(), b"cdef");
        body.take(4);
        body.extend_from_slice(b"g");
        assert_eq!(body.unread(), b"g");
        body.clear();
        assert!(body.unread().is_empty());
    }
}
