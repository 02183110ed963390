//! Numbers in HTTP's syntax: decimal or hexadecimal digits only. Nothing here allocates.

pub fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

pub fn push_hexadecimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; 16];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[number % 16];
        number /= 16;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Parses the value of a Content-Length field of a request or a response. Returns `None` for more
/// than 18 digits too: 18 digits always fit, and no body is longer than an exabyte.
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_the_standard_library() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 1_000_000, u64::MAX] {
            let (mut decimal, mut hexadecimal) = (Vec::new(), Vec::new());
            push_decimal(&mut decimal, number);
            push_hexadecimal(&mut hexadecimal, number as usize);
            assert_eq!(decimal, number.to_string().as_bytes());
            assert_eq!(hexadecimal, format!("{number:x}").as_bytes());
        }
    }

    #[test]
    fn only_digits_are_a_number() {
        assert_eq!(parse_decimal(b"0"), Some(0));
        assert_eq!(parse_decimal(b"007"), Some(7));
        assert_eq!(parse_decimal(&[b'9'; 18]), Some(999_999_999_999_999_999));
        for other in [&b""[..], b"-1", b"+1", b" 1", b"1_0", b"0x1", b"1, 1", &[b'9'; 19]] {
            assert_eq!(parse_decimal(other), None, "{other:?}");
        }
    }
}
