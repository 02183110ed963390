//! Classes of bytes, looked up in a table: every byte of every head passes through here.

/// RFC 9110 section 5.6.2: what methods and field names are made of.
const TOKEN: u8 = 1;
/// RFC 9110 section 5.5: visible characters, obs-text, space and tab.
const FIELD_TEXT: u8 = 2;
/// RFC 3986's `reg-name`, percent-encoding aside, and without the comma: `a,b` is what two Host
/// fields become when joined.
const HOST_NAME: u8 = 4;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let this = byte as u8;
        if this.is_ascii_alphanumeric() {
            classes[byte] |= TOKEN | HOST_NAME;
        }
        if this == b'\t' || (this >= b' ' && this != 0x7f) {
            classes[byte] |= FIELD_TEXT;
        }
        byte += 1;
    }
    add(&mut classes, b"!#$%&'*+-.^_`|~", TOKEN);
    add(&mut classes, b"-._~!$&'()*+;=", HOST_NAME);
    classes
}

const fn add(classes: &mut [u8; 256], members: &[u8], class: u8) {
    let mut at = 0;
    while at < members.len() {
        classes[members[at] as usize] |= class;
        at += 1;
    }
}

fn is_in(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

fn are_all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|byte| is_in(*byte, class))
}

pub fn is_token_byte(byte: u8) -> bool {
    is_in(byte, TOKEN)
}

pub fn is_field_text_byte(byte: u8) -> bool {
    is_in(byte, FIELD_TEXT)
}

/// At least one byte, all of them of a token.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && are_all(bytes, TOKEN)
}

pub fn is_field_text(bytes: &[u8]) -> bool {
    are_all(bytes, FIELD_TEXT)
}

/// Perhaps empty.
pub fn is_host_name(bytes: &[u8]) -> bool {
    are_all(bytes, HOST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_bytes() {
        assert!(is_token(b"X-Y_1") && !is_token(b"") && !is_token(b"a b") && !is_token(b"a:"));
        assert!(is_field_text(b"a\tb \xff") && !is_field_text(b"a\r") && !is_field_text(b"\x7f"));
        assert!(is_host_name(b"a-b.c~d") && !is_host_name(b"a/b") && !is_host_name(b"a,b"));
    }
}
