//! Short texts in shared memory.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

pub const NAME_BYTES: usize = 64;

/// A name of at most 64 bytes of UTF-8.
pub type Name = Text<NAME_BYTES>;

/// At most `N` bytes of UTF-8. Writers: holders of the registry lock, or the only thread of a
/// process. A reader in another process may see a text that is partly written.
#[repr(C)]
pub struct Text<const N: usize> {
    length: AtomicU32,
    bytes: [AtomicU8; N],
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Self { length: AtomicU32::new(0), bytes: [const { AtomicU8::new(0) }; N] }
    }

    /// Stores as much of `text` as fits, cut between characters. For hooks.
    pub fn set(&self, text: &[u8]) {
        let mut length = text.len().min(N);
        let continues = |at: usize| text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        while length > 0 && continues(length) {
            length -= 1;
        }
        for (byte, value) in self.bytes.iter().zip(text).take(length) {
            byte.store(*value, Relaxed);
        }
        self.length.store(length as u32, Relaxed);
    }

    /// Copies the text into `buffer` and returns the part that it fills. For hooks.
    pub fn get<'a>(&self, buffer: &'a mut [u8; N]) -> &'a [u8] {
        let length = (self.length.load(Relaxed) as usize).min(N);
        for (value, byte) in buffer.iter_mut().zip(&self.bytes).take(length) {
            *value = byte.load(Relaxed);
        }
        buffer.get(..length).unwrap_or_default()
    }

    /// The text for people: bytes that are not UTF-8 are replaced. Allocates.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(self.get(&mut [0; N])).into_owned()
    }

    pub fn is_empty(&self) -> bool {
        self.length.load(Relaxed) == 0
    }

    pub fn copy_from(&self, other: &Self) {
        let mut buffer = [0; N];
        self.set(other.get(&mut buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = Text::<4>::new();
        for (long, cut) in [("abcdef", "abcd"), ("abcé", "abc"), ("abéf", "abé"), ("", "")] {
            text.set(long.as_bytes());
            assert_eq!(text.to_text(), cut);
        }
    }
}
