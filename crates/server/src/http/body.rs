//! The request body decoder for sized and chunked framing (RFC 9112 sections 6.3 and 7.1).
//!
//! A decoder reports which of the bytes are data. It keeps no bytes, so the result does not depend
//! on how they are split. Chunk extensions and trailers are validated and then dropped: a recipient
//! must not merge trailers into the head unless it knows that their fields allow it (RFC 9110
//! section 6.5.1).

use super::chunk_extension::ChunkExtension;
use super::framing::Framing;
use super::octets::{is_text, is_token};
use super::rejection::Rejection;

/// The most bytes by which chunk extensions and trailers together may exceed the data that comes
/// with them. An application cannot see them, and they make a server work without receiving data.
const MAX_CHUNK_EXTRAS: u64 = 8_192;

#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of extensions and trailers so far, minus the bytes of data.
    extras: u64,
    /// The bytes of data that further chunks may announce.
    allowed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sized { left: u64 },
    ChunkSize { size: u64, digits: u8 },
    ChunkExtension { size: u64, extension: ChunkExtension },
    ChunkSizeLineFeed { size: u64 },
    ChunkData { left: u64 },
    ChunkDataReturn,
    ChunkDataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    EndLineFeed,
    End,
}

/// The meaning of the given bytes. The first `framing` bytes are framing and not data.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All bytes were framing; the body continues.
    NeedData,
    /// `framing` bytes are followed by `data` bytes of the body.
    Data { framing: usize, data: usize },
    /// The body ended after `framing` bytes; the following bytes belong to the next request.
    End { framing: usize },
}

impl BodyDecoder {
    /// Creates a decoder. The chunks of a chunked body may contain `max_bytes` of data in total;
    /// the caller has already checked the length of a sized body.
    pub fn new(framing: Framing, max_bytes: u64) -> Self {
        let state = match framing {
            Framing::Empty => State::End,
            Framing::Sized(left) => State::Sized { left },
            Framing::Chunked => State::ChunkSize { size: 0, digits: 0 },
        };
        Self { state, extras: 0, allowed: max_bytes }
    }

    /// Returns true if the whole body has been decoded.
    pub fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// Returns the bytes of data that are known to follow: the rest of a sized body, or of the
    /// current chunk.
    pub fn known_left(&self) -> u64 {
        match self.state {
            State::Sized { left } | State::ChunkData { left } => left,
            _ => 0,
        }
    }

    /// Decodes the beginning of `bytes`, up to `max_data` bytes of data, which are not 0. Before
    /// the next call the caller advances past the bytes that the result covers.
    pub fn decode(&mut self, bytes: &[u8], max_data: usize) -> Result<Decoded, Rejection> {
        let mut at = 0;
        loop {
            match self.state {
                State::End => return Ok(Decoded::End { framing: at }),
                State::Sized { left } | State::ChunkData { left } => {
                    let data = left.min((bytes.len() - at).min(max_data) as u64);
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

    /// Returns the state after one byte of chunked framing.
    fn next(&mut self, byte: u8) -> Result<State, Rejection> {
        let rejected = Err(Rejection::ChunkSyntax);
        Ok(match (self.state, byte) {
            (State::ChunkSize { size, digits }, _) if byte.is_ascii_hexdigit() => {
                // A size of 15 hexadecimal digits is less than an exbibyte and cannot overflow.
                if digits == 15 {
                    return rejected;
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                State::ChunkSize { size: size * 16 + digit, digits: digits + 1 }
            }
            (State::ChunkSize { digits: 0, .. }, _) => return rejected,
            (State::ChunkSize { size, .. }, b'\r') => State::ChunkSizeLineFeed { size },
            (State::ChunkSize { size, .. }, _) => {
                self.count_extra()?;
                let extension =
                    ChunkExtension::default().next(byte).ok_or(Rejection::ChunkSyntax)?;
                State::ChunkExtension { size, extension }
            }
            (State::ChunkExtension { size, extension }, b'\r') if extension.is_complete() => {
                State::ChunkSizeLineFeed { size }
            }
            (State::ChunkExtension { size, extension }, _) => {
                self.count_extra()?;
                let extension = extension.next(byte).ok_or(Rejection::ChunkSyntax)?;
                State::ChunkExtension { size, extension }
            }
            (State::ChunkSizeLineFeed { size: 0 }, b'\n') => State::TrailerStart,
            (State::ChunkSizeLineFeed { size }, b'\n') => {
                self.allowed = self.allowed.checked_sub(size).ok_or(Rejection::BodyTooLarge)?;
                self.extras = self.extras.saturating_sub(size);
                State::ChunkData { left: size }
            }
            (State::ChunkDataReturn, b'\r') => State::ChunkDataLineFeed,
            (State::ChunkDataLineFeed, b'\n') => State::ChunkSize { size: 0, digits: 0 },
            (State::TrailerStart, b'\r') => State::EndLineFeed,
            // A field line. Its name is validated, so that a next request cannot pass for a
            // trailer.
            (State::TrailerStart | State::TrailerName, _) if is_token(byte) => {
                self.count_extra()?;
                State::TrailerName
            }
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, _) if is_text(byte) => {
                self.count_extra()?;
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerLineFeed,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::EndLineFeed, b'\n') => State::End,
            _ => return rejected,
        })
    }

    fn count_extra(&mut self) -> Result<(), Rejection> {
        self.extras += 1;
        if self.extras > MAX_CHUNK_EXTRAS { Err(Rejection::ChunkSyntax) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(framing: Framing, bytes: &[u8]) -> Result<(Vec<u8>, usize), Rejection> {
        decode_at_most(u64::MAX, framing, bytes)
    }

    /// The same, whatever a piece of data may have.
    fn decode_at_most(
        max_bytes: u64,
        framing: Framing,
        bytes: &[u8],
    ) -> Result<(Vec<u8>, usize), Rejection> {
        let decoded = decode_in_pieces(usize::MAX, max_bytes, framing, bytes);
        for max_data in [1, 3] {
            assert_eq!(decode_in_pieces(max_data, max_bytes, framing, bytes), decoded);
        }
        decoded
    }

    fn decode_in_pieces(
        max_data: usize,
        max_bytes: u64,
        framing: Framing,
        mut bytes: &[u8],
    ) -> Result<(Vec<u8>, usize), Rejection> {
        let mut decoder = BodyDecoder::new(framing, max_bytes);
        let mut body = Vec::new();
        loop {
            match decoder.decode(bytes, max_data)? {
                Decoded::NeedData => return Err(Rejection::BodyCutShort),
                Decoded::Data { framing, data } => {
                    assert!((1..=max_data).contains(&data));
                    body.extend_from_slice(&bytes[framing..framing + data]);
                    bytes = &bytes[framing + data..];
                }
                Decoded::End { framing } => return Ok((body, bytes.len() - framing)),
            }
        }
    }

    #[test]
    fn chunks_are_joined_and_extras_dropped() {
        let bytes = b"3;a=b\r\nabc\r\nA ; c\r\n0123456789\r\n0\r\nX: y\r\nZ:\r\n\r\nGET";
        assert_eq!(decode_all(Framing::Chunked, bytes), Ok((b"abc0123456789".to_vec(), 3)));
    }

    #[test]
    fn a_sized_body_ends_after_its_length() {
        assert_eq!(decode_all(Framing::Sized(3), b"abcdef"), Ok((b"abc".to_vec(), 3)));
        assert_eq!(decode_all(Framing::Sized(9), b"abc"), Err(Rejection::BodyCutShort));
    }

    #[test]
    fn malformed_chunks_are_rejected() {
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
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"3 5\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"3\r\nabc\r\n0\n\r\n",
            b"3;a\nbc\r\nabc\r\n0\r\n\r\n",
            b"0\r\nTrailer: x\n\r\n",
            b"0\r\n Trailer: x\r\n\r\n",
            b"0\r\nTrailer: x\r\n folded\r\n\r\n",
            b"0\r\n: x\r\n\r\n",
            b"0\r\nTrailer\r\n\r\n",
            b"0\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(
                decode_all(Framing::Chunked, bytes),
                Err(Rejection::ChunkSyntax),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn extras_have_a_limit() {
        let max = MAX_CHUNK_EXTRAS as usize;
        let body = |extension: usize, trailer: usize| {
            let (extension, trailer) = ("e".repeat(extension), "t".repeat(trailer));
            format!("4;{extension}\r\ndata\r\n0\r\n{trailer}:\r\n\r\n").into_bytes()
        };
        assert!(decode_all(Framing::Chunked, &body(max - 1, 4)).is_ok());
        for (extension, trailer) in [(max, 1), (max - 1, 5), (1, max + 3)] {
            let decoded = decode_all(Framing::Chunked, &body(extension, trailer));
            assert_eq!(decoded, Err(Rejection::ChunkSyntax), "{extension} {trailer}");
        }
        // Many chunks do not raise the limit, but data does.
        let many = format!("1;{}\r\nx\r\n", "e".repeat(100)).repeat(100) + "0\r\n\r\n";
        assert_eq!(decode_all(Framing::Chunked, many.as_bytes()), Err(Rejection::ChunkSyntax));
        let signed = format!("64;{}\r\n{}\r\n", "s".repeat(100), "x".repeat(100)).repeat(1000);
        assert!(decode_all(Framing::Chunked, (signed + "0\r\n\r\n").as_bytes()).is_ok());
    }

    #[test]
    fn a_body_beyond_the_limit_is_rejected_at_the_chunk_that_announces_it() {
        let body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(decode_at_most(5, Framing::Chunked, body), Ok((b"abcde".to_vec(), 0)));
        assert_eq!(decode_at_most(4, Framing::Chunked, body), Err(Rejection::BodyTooLarge));
        let announced = b"3\r\nabc\r\nfffffffffffffff\r\n";
        assert_eq!(decode_at_most(4, Framing::Chunked, announced), Err(Rejection::BodyTooLarge));
    }
}
