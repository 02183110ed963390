//! The limits on a client's requests. All connections of a server share one set of limits.

/// The longest method that is accepted. No registered method is longer than 17 bytes
/// (UPDATEREDIRECTREF). A method that is longer than all that a server knows is answered with 501
/// (RFC 9112 section 3).
pub const MAX_METHOD_BYTES: usize = 32;

/// Counts, sizes and forms that are checked while a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The request target, as the client sent it.
    pub max_target_bytes: usize,
    /// The request line and the fields together, including the final empty line.
    pub max_head_bytes: usize,
    pub max_fields: usize,
    /// The body without its transfer coding; 0 means no limit.
    pub max_body_bytes: u64,
    /// The path of a target is normalized as httpd does it: see `path`.
    pub normalizes_path: bool,
}

impl Default for Limits {
    /// For comparison: Apache allows 8,190 bytes for the request line, nginx 8 KiB for a line, h11
    /// 16 KiB for the head, and Apache and gunicorn 100 fields.
    fn default() -> Self {
        Self {
            max_target_bytes: 16_384,
            max_head_bytes: 65_536,
            max_fields: 100,
            max_body_bytes: 0,
            normalizes_path: false,
        }
    }
}

impl Limits {
    /// Returns the limit of the body; `u64::MAX` if there is none.
    pub fn body_bytes(&self) -> u64 {
        match self.max_body_bytes {
            0 => u64::MAX,
            bytes => bytes,
        }
    }
}
