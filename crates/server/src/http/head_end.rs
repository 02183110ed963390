//! Where the head of a request ends, sought while its bytes arrive, so that what is too long or no
//! request at all is refused before the rest of it comes (RFC 9112 sections 2.2 and 3).
//!
//! Looks at line ends and lengths; what is between them is for `head`.

use super::limits::{Limits, MAX_METHOD_BYTES};
use super::rejection::Rejection;

/// Where the first head in `bytes` ends (past its empty line), or `None` while it is incomplete.
/// `scanned` holds how far earlier calls have looked, so that a trickled head costs no more.
///
/// A lone LF ends no line. RFC 9112 section 2.2 would allow it; but what one recipient takes for
/// the end of a line is to another a part of it, and that is how requests are smuggled.
///
/// The checks come in the order of the bytes that they need, so that the answer does not depend on
/// how the bytes were split.
pub fn find_head_end(
    bytes: &[u8],
    scanned: &mut usize,
    limits: &Limits,
) -> Result<Option<usize>, Rejection> {
    match bytes {
        // This carriage return may belong to one of the empty lines that precede a request.
        [] | [b'\r'] => return Ok(None),
        // No method begins with anything but a letter: say so without waiting for a line end
        // that, in a TLS handshake, may never come.
        [first, ..] if !first.is_ascii_alphabetic() => return Err(Rejection::RequestLine),
        _ => {}
    }
    let seen = &bytes[..bytes.len().min(limits.max_head_bytes)];
    check_method_length(seen)?;
    check_target_length(seen, limits)?;
    // The line feed that ends the last field may lie just before what is new.
    let mut from = scanned.saturating_sub(2);
    while let Some(found) = memchr::memchr(b'\n', &seen[from..]) {
        let after = from + found + 1;
        if !seen[..after].ends_with(b"\r\n") {
            return Err(Rejection::LineEnd);
        }
        if seen[after..].starts_with(b"\r\n") {
            return Ok(Some(after + 2));
        }
        from = after;
    }
    *scanned = seen.len();
    if seen.len() == limits.max_head_bytes { Err(Rejection::HeadTooLarge) } else { Ok(None) }
}

/// `bytes` begin with a request line, of which any part may be still to come.
fn check_method_length(bytes: &[u8]) -> Result<(), Rejection> {
    match bytes.get(..=MAX_METHOD_BYTES) {
        Some(start) if start.iter().all(|byte| !byte.is_ascii_whitespace()) => {
            Err(Rejection::MethodTooLong)
        }
        _ => Ok(()),
    }
}

/// As `check_method_length`, for the target.
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

    /// What becomes of `bytes` that arrive one by one, or all at once.
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
    fn what_is_no_request_is_refused_at_its_first_byte() {
        let limits = Limits::default();
        for wrong in [&b"\x16\x03\x01"[..], b" GET", b"\0", b"\n", b"\rG", b"1"] {
            assert_eq!(find(wrong, &limits), Err(Rejection::RequestLine), "{wrong:?}");
        }
        assert_eq!(find(b"\r", &limits), Ok(None), "an empty line may be on its way");
    }
}
