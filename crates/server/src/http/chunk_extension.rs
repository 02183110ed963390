//! The validator of chunk extensions (RFC 9112 section 7.1.1), one byte at a time: any number of `;
//! name`, `; name=value` and `; name="value"`, with optional white space. Extensions have no effect
//! here. They are validated because servers that skipped them carelessly were tricked into reading
//! past a line end.

use super::octets::{is_text, is_token};

/// The last element of the extensions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkExtension {
    /// White space, or the beginning; only a semicolon may follow.
    #[default]
    Space,
    Semicolon,
    Name,
    NameSpace,
    Equals,
    Value,
    Quoted,
    QuotedPair,
    QuoteEnd,
}

impl ChunkExtension {
    /// Returns the state after one more byte, or `None` if the byte is invalid here.
    pub fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::QuoteEnd,
            (Self::Quoted, b'\\') => Self::QuotedPair,
            (Self::Quoted | Self::QuotedPair, _) if is_text(byte) => Self::Quoted,
            (Self::Quoted | Self::QuotedPair, _) => return None,
            (Self::Space | Self::Value | Self::QuoteEnd, b' ' | b'\t') => Self::Space,
            (Self::Semicolon | Self::Equals, b' ' | b'\t') => self,
            (Self::Name | Self::NameSpace, b' ' | b'\t') => Self::NameSpace,
            (Self::Semicolon | Self::Equals, b';' | b'=') => return None,
            (_, b';') => Self::Semicolon,
            (Self::Name | Self::NameSpace, b'=') => Self::Equals,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Semicolon | Self::Name, _) if is_token(byte) => Self::Name,
            (Self::Equals | Self::Value, _) if is_token(byte) => Self::Value,
            _ => return None,
        })
    }

    /// Returns true if the line may end here.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::QuoteEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(text: &str) -> bool {
        let end = text
            .bytes()
            .try_fold(ChunkExtension::default(), |extension, byte| extension.next(byte));
        end.is_some_and(ChunkExtension::is_complete)
    }

    #[test]
    fn the_grammar_is_that_of_rfc_9112() {
        for text in [";a", " ; a", ";a=b", "\t;\ta = b;c", ";a=\"\"", ";a=\"b;\\\"c\" ; d", ";a ;b"]
        {
            assert!(is_valid(text), "{text:?}");
        }
        for text in [
            "",
            " ",
            ";",
            "a",
            ";;a",
            ";=b",
            ";a=",
            ";a==b",
            ";a b",
            ";a=b c",
            ";a=\"b",
            ";a=\"b\"c",
            ";a=\"b\\",
            ";a ",
            ";a=b ",
            ";a[",
            ";a=[",
            ";\u{e9}",
            ";a=\"\u{7f}\"",
            ";a=\"\n\"",
        ] {
            assert!(!is_valid(text), "{text:?}");
        }
    }
}
