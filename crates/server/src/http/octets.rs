//! Classes of bytes, in a table, because every byte of every head is classified.

const TOKEN: u8 = 1;
const TEXT: u8 = 2;
const REGISTERED_NAME: u8 = 4;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let octet = byte as u8;
        if octet.is_ascii_alphanumeric() {
            classes[byte] |= TOKEN | REGISTERED_NAME;
        }
        if octet == b'\t' || (octet >= b' ' && octet != 0x7f) {
            classes[byte] |= TEXT;
        }
        byte += 1;
    }
    add(&mut classes, b"!#$%&'*+-.^_`|~", TOKEN);
    add(&mut classes, b"-._~!$&'()*+;=", REGISTERED_NAME);
    classes
}

const fn add(classes: &mut [u8; 256], members: &[u8], class: u8) {
    let mut at = 0;
    while at < members.len() {
        classes[members[at] as usize] |= class;
        at += 1;
    }
}

fn is_in(class: u8, byte: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Returns true for the characters of methods and field names (RFC 9110 section 5.6.2).
pub fn is_token(byte: u8) -> bool {
    is_in(TOKEN, byte)
}

/// Returns true for the characters of field values: visible characters, obs-text, space and tab
/// (RFC 9110 section 5.5).
pub fn is_text(byte: u8) -> bool {
    is_in(TEXT, byte)
}

/// Returns true for the characters of RFC 3986's `reg-name`, except the percent sign and the comma:
/// `a,b` is the result of joining two Host fields.
pub fn is_registered_name(byte: u8) -> bool {
    is_in(REGISTERED_NAME, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_exactly_its_bytes() {
        let members = |is_member: fn(u8) -> bool| (0..=255).filter(|byte| is_member(*byte)).count();
        assert_eq!(members(is_token), 62 + 15);
        assert_eq!(members(is_text), 256 - 33 + 1);
        assert_eq!(members(is_registered_name), 62 + 14);
        assert!(is_token(b'~') && !is_token(b':') && !is_token(b' ') && !is_token(0xe9));
        assert!(
            is_text(b'\t') && is_text(0xff) && !is_text(b'\r') && !is_text(0) && !is_text(0x7f)
        );
        assert!(
            !is_registered_name(b',') && !is_registered_name(b'@') && !is_registered_name(b'/')
        );
    }
}
