//! Numbers of variable length: seven bits a byte, the least first (LEB128); signed ones in zigzag.

use super::{Malformed, malformed};

pub fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn push_signed(out: &mut Vec<u8>, number: i64) {
    push(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Takes a number off the beginning of `bytes`.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    // Most are short.
    if let [byte @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Ok(u64::from(*byte));
    }
    take_long(bytes)
}

#[inline(never)]
fn take_long(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            break;
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(number);
        }
    }
    malformed("a number of variable length does not end")
}

pub fn take_signed(bytes: &mut &[u8]) -> Result<i64, Malformed> {
    let number = take(bytes)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

/// Takes `length` bytes off the beginning of `bytes`.
pub fn take_bytes<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], Malformed> {
    match usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length)) {
        Some((taken, rest)) => {
            *bytes = rest;
            Ok(taken)
        }
        None => malformed(format!("{length} bytes are announced and {} are there", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, u64::MAX / 2, u64::MAX] {
            let mut out = Vec::new();
            push(&mut out, number);
            push_signed(&mut out, number as i64);
            let mut rest = &out[..];
            assert_eq!(take(&mut rest), Ok(number));
            assert_eq!(take_signed(&mut rest), Ok(number as i64));
            assert!(rest.is_empty());
        }
        assert!(take(&mut &[0xff; 10][..]).is_err());
        assert!(take(&mut &[0x80][..]).is_err());
        assert!(take_bytes(&mut &[1][..], u64::MAX).is_err());
    }
}
