//! What a client may ask for. One set serves all connections of a server.

/// No registered method is longer than 17 (UPDATEREDIRECTREF); one that is longer than all that a
/// server knows is answered with 501 (RFC 9112 section 3).
pub const MAX_METHOD_BYTES: usize = 32;

/// Counts and bytes, checked while a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The request target as it was sent.
    pub max_target_bytes: usize,
    /// Request line and fields together, the final empty line included.
    pub max_head_bytes: usize,
    pub max_fields: usize,
    /// A body after its transfer coding was removed; 0 means no limit.
    pub max_body_bytes: u64,
}

impl Default for Limits {
    /// Apache allows 8,190 bytes of request line, h11 16 KiB of head, nginx 8 KiB of line; Apache
    /// and gunicorn 100 fields.
    fn default() -> Self {
        Self {
            max_target_bytes: 16_384,
            max_head_bytes: 65_536,
            max_fields: 100,
            max_body_bytes: 0,
        }
    }
}

impl Limits {
    /// The limit of a body as a number, where there is none too.
    pub fn body_bytes(&self) -> u64 {
        match self.max_body_bytes {
            0 => u64::MAX,
            bytes => bytes,
        }
    }
}
