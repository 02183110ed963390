//! Finds the end of a request head while its bytes arrive. A head that is too long or not a request
//! is rejected before the rest of it arrives (RFC 9112 sections 2.2 and 3).
//!
//! This module checks line ends and lengths; `head` parses what is between them.

use super::limits::{Limits, MAX_METHOD_BYTES};
use super::rejection::Rejection;

/// Returns the end of the first head in `bytes`, past its empty line, or `None` while the head is
/// incomplete. `scanned` holds the length that earlier calls have scanned, so that a head that
/// arrives in small pieces costs no more.
///
/// A lone LF does not end a line. RFC 9112 section 2.2 would allow that, but requests are smuggled
/// where one recipient accepts it as a line end and another treats it as a part of the line.
///
/// The checks are made in the order of the bytes that they need, so that the result does not depend
/// on how the bytes are split.
pub fn find_head_end(
    bytes: &[u8],
    scanned: &mut usize,
    limits: &Limits,
) -> Result<Option<usize>, Rejection> {
    match bytes {
        // The carriage return may belong to one of the empty lines that precede a request.
        [] | [b'\r'] => return Ok(None),
        // A method begins with a letter. Other bytes are rejected at once, because the line end may
        // never arrive: the bytes may be a TLS handshake.
        [first, ..] if !first.is_ascii_alphabetic() => return Err(Rejection::RequestLine),
        _ => {}
    }
    let bounded = &bytes[..bytes.len().min(limits.max_head_bytes)];
    check_method_length(bounded)?;
    check_target_length(bounded, limits)?;
    // The line feed that ends the last field may be just before the new bytes.
    let mut from = scanned.saturating_sub(2);
    while let Some(found) = memchr::memchr(b'\n', &bounded[from..]) {
        let after = from + found + 1;
        if !bounded[..after].ends_with(b"\r\n") {
            return Err(Rejection::LineEnd);
        }
        if bounded[after..].starts_with(b"\r\n") {
            return Ok(Some(after + 2));
        }
        from = after;
    }
    *scanned = bounded.len();
    if bounded.len() == limits.max_head_bytes { Err(Rejection::HeadTooLarge) } else { Ok(None) }
}

/// Checks the length of the method. `bytes` begin with a request line, any part of which may not
/// have arrived.
fn check_method_length(bytes: &[u8]) -> Result<(), Rejection> {
    match bytes.get(..=MAX_METHOD_BYTES) {
        Some(start) if start.iter().all(|byte| !byte.is_ascii_whitespace()) => {
            Err(Rejection::MethodTooLong)
        }
        _ => Ok(()),
    }
}

/// Checks the length of the target. `bytes` are as in `check_method_length`.
fn check_target_length(bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
    if bytes.len() <= limits.max_target_bytes {
        return Ok(());
    }
    let find_end = |bytes| memchr::memchr2(b' ', b'\n', bytes);
    match find_end(bytes) {
        Some(at) if bytes[at] == b' ' => match bytes[at + 1..].get(..=limits.max_target_bytes) {
            Some(start) if find_end(start).is_none() => Err(Rejection::TargetTooLong),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the head's end, and checks that the result is the same if the bytes arrive one by one.
    fn find(bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Rejection> {
        let whole = find_head_end(bytes, &mut 0, limits);
        let mut scanned = 0;
        let piecewise = (1..=bytes.len())
            .map(|length| find_head_end(&bytes[..length], &mut scanned, limits))
            .find(|found| *found != Ok(None));
        assert_eq!(piecewise.unwrap_or(Ok(None)), whole);
        whole
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        let limits = Limits::default();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(find(&[head, &b"rest"[..]].concat(), &limits), Ok(Some(head.len())));
        assert_eq!(find(&head[..head.len() - 1], &limits), Ok(None));
        for wrong in
            [&b"GET / HTTP/1.1\n"[..], b"GET / HTTP/1.1\r\nHost: a\n", b"GET / HTTP/1.1\r\n\n"]
        {
            assert_eq!(find(wrong, &limits), Err(Rejection::LineEnd));
        }
    }

    #[test]
    fn each_limit_is_exact() {
        let limits = Limits { max_target_bytes: 40, max_head_bytes: 120, ..Limits::default() };
        let head = |method: usize, target: usize, whole: usize| {
            let line =
                format!("{} {} HTTP/1.1\r\nHost: a\r\nX: ", "M".repeat(method), "/".repeat(target));
            format!("{line}{}\r\n\r\n", "x".repeat(whole - line.len() - 4)).into_bytes()
        };
        let found = |method, target, whole| find(&head(method, target, whole), &limits);
        assert_eq!(found(MAX_METHOD_BYTES, 40, 120), Ok(Some(120)));
        assert_eq!(found(MAX_METHOD_BYTES + 1, 40, 120), Err(Rejection::MethodTooLong));
        assert_eq!(found(MAX_METHOD_BYTES, 41, 120), Err(Rejection::TargetTooLong));
        assert_eq!(found(3, 41, 121), Err(Rejection::TargetTooLong));
        assert_eq!(found(3, 40, 121), Err(Rejection::HeadTooLarge));
    }

    #[test]
    fn a_first_byte_that_is_not_a_letter_is_rejected() {
        let limits = Limits::default();
        for wrong in [&b"\x16\x03\x01"[..], b" GET", b"\0", b"\n", b"\rG", b"1"] {
            assert_eq!(find(wrong, &limits), Err(Rejection::RequestLine), "{wrong:?}");
        }
        assert_eq!(find(b"\r", &limits), Ok(None), "it may be the beginning of an empty line");
    }
}
