//! The body of a request: decodes sized and chunked framing (RFC 9112 sections 6.3 and 7.1).
//!
//! A decoder sees bytes and says which of them are data. It keeps no bytes, so it does not matter
//! how they are cut. Chunk extensions and trailers are checked, then dropped.

use super::head::Framing;
use super::rejection::Rejection;

/// Extensions of one chunk, and all trailers together, may take this much; they carry nothing
/// that an application could see, and are a way to make a server work for no data.
const MAX_CHUNK_EXTRAS: usize = 8_192;

#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of extensions or trailers seen so far.
    extras: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sized { left: u64 },
    ChunkSize { size: u64, digits: u8 },
    ChunkExtension { size: u64 },
    ChunkSizeLineFeed { size: u64 },
    ChunkData { left: u64 },
    ChunkDataReturn,
    ChunkDataLineFeed,
    TrailerStart,
    TrailerLine,
    TrailerLineFeed,
    EndLineFeed,
    End,
}

/// What the bytes at hand are. `framing` bytes come first and are no data.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All of them were framing; the body goes on.
    NeedData,
    /// After `framing` bytes come `data` bytes of the body.
    Data { framing: usize, data: usize },
    /// The body ended after `framing` bytes; what follows belongs to the next request.
    End { framing: usize },
}

impl BodyDecoder {
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty => State::End,
            Framing::Sized(left) => State::Sized { left },
            Framing::Chunked => State::ChunkSize { size: 0, digits: 0 },
        };
        Self { state, extras: 0 }
    }

    /// True when the whole body has been decoded.
    pub fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// How many more bytes of data are known to come: all of a sized body, or of this chunk.
    pub fn known_left(&self) -> u64 {
        match self.state {
            State::Sized { left } | State::ChunkData { left } => left,
            _ => 0,
        }
    }

    pub fn decode(&mut self, bytes: &[u8]) -> Result<Decoded, Rejection> {
        let mut at = 0;
        loop {
            match self.state {
                State::End => return Ok(Decoded::End { framing: at }),
                State::Sized { left } | State::ChunkData { left } => {
                    let data = left.min((bytes.len() - at) as u64);
                    if data == 0 {
                        return Ok(Decoded::NeedData);
                    }
                    self.state = match self.state {
                        State::Sized { .. } if left == data => State::End,
                        State::Sized { .. } => State::Sized { left: left - data },
                        _ if left == data => State::ChunkDataReturn,
                        _ => State::ChunkData { left: left - data },
                    };
                    return Ok(Decoded::Data { framing: at, data: data as usize });
                }
                _ => {
                    let Some(byte) = bytes.get(at) else { return Ok(Decoded::NeedData) };
                    self.state = self.next(*byte)?;
                    at += 1;
                }
            }
        }
    }

    /// One byte of chunked framing.
    fn next(&mut self, byte: u8) -> Result<State, Rejection> {
        let refused = Err(Rejection::ChunkSyntax);
        Ok(match (self.state, byte) {
            (State::ChunkSize { size, digits }, _) if byte.is_ascii_hexdigit() => {
                // 15 digits are an exabyte and cannot overflow.
                if digits == 15 {
                    return refused;
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                State::ChunkSize { size: size * 16 + digit, digits: digits + 1 }
            }
            (State::ChunkSize { digits: 0, .. }, _) => return refused,
            (State::ChunkSize { size, .. }, b'\r') => State::ChunkSizeLineFeed { size },
            (State::ChunkSize { size, .. }, b';' | b' ' | b'\t') => {
                self.extras = 0;
                State::ChunkExtension { size }
            }
            (State::ChunkExtension { size }, b'\r') => State::ChunkSizeLineFeed { size },
            (State::ChunkExtension { .. }, _) if is_text(byte) => {
                self.count_extra()?;
                self.state
            }
            (State::ChunkSizeLineFeed { size: 0 }, b'\n') => {
                self.extras = 0;
                State::TrailerStart
            }
            (State::ChunkSizeLineFeed { size }, b'\n') => State::ChunkData { left: size },
            (State::ChunkDataReturn, b'\r') => State::ChunkDataLineFeed,
            (State::ChunkDataLineFeed, b'\n') => State::ChunkSize { size: 0, digits: 0 },
            (State::TrailerStart, b'\r') => State::EndLineFeed,
            (State::TrailerStart | State::TrailerLine, _) if is_text(byte) => {
                self.count_extra()?;
                State::TrailerLine
            }
            (State::TrailerLine, b'\r') => State::TrailerLineFeed,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::EndLineFeed, b'\n') => State::End,
            _ => return refused,
        })
    }

    fn count_extra(&mut self) -> Result<(), Rejection> {
        self.extras += 1;
        if self.extras > MAX_CHUNK_EXTRAS { Err(Rejection::ChunkSyntax) } else { Ok(()) }
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(framing: Framing, mut bytes: &[u8]) -> Result<(Vec<u8>, usize), Rejection> {
        let mut decoder = BodyDecoder::new(framing);
        let mut body = Vec::new();
        loop {
            match decoder.decode(bytes)? {
                Decoded::NeedData => return Err(Rejection::BodyCutShort),
                Decoded::Data { framing, data } => {
                    body.extend_from_slice(&bytes[framing..framing + data]);
                    bytes = &bytes[framing + data..];
                }
                Decoded::End { framing } => return Ok((body, bytes.len() - framing)),
            }
        }
    }

    #[test]
    fn chunks_are_joined_and_extras_dropped() {
        let bytes = b"3;a=b\r\nabc\r\nA \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET";
        assert_eq!(decode_all(Framing::Chunked, bytes), Ok((b"abc0123456789".to_vec(), 3)));
    }

    #[test]
    fn a_sized_body_ends_where_it_says() {
        assert_eq!(decode_all(Framing::Sized(3), b"abcdef"), Ok((b"abc".to_vec(), 3)));
        assert_eq!(decode_all(Framing::Sized(9), b"abc"), Err(Rejection::BodyCutShort));
    }

    #[test]
    fn chunks_that_must_be_refused() {
        for bytes in [
            &b"xyz\r\nabc\r\n0\r\n\r\n"[..],
            b"\r\nabc",
            b"-3\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"3\nabc\r\n0\r\n\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc0\r\n\r\n",
            b"3;\0\r\nabc\r\n0\r\n\r\n",
            b"1000000000000000\r\n",
            b"0\r\nTrailer: x\n\r\n",
        ] {
            assert_eq!(
                decode_all(Framing::Chunked, bytes),
                Err(Rejection::ChunkSyntax),
                "{bytes:?}"
            );
        }
        let mut endless = b"1;".to_vec();
        endless.resize(MAX_CHUNK_EXTRAS + 3, b'x');
        assert_eq!(decode_all(Framing::Chunked, &endless), Err(Rejection::ChunkSyntax));
    }
}
