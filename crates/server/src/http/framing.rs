//! The framing of a request body (RFC 9112 section 6), from the fields Content-Length and
//! Transfer-Encoding.
//!
//! A request is rejected if recipients could disagree about the end of its body.

use super::digits::parse_decimal;
use super::rejection::Rejection;

/// How the body of a request is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    #[default]
    Empty,
    Sized(u64),
    Chunked,
}

/// The framing fields of one head so far.
#[derive(Debug, Default)]
pub struct FramingFields {
    length: Option<u64>,
    chunked: bool,
}

impl FramingFields {
    /// Adds a Content-Length field. Several fields with equal lengths are allowed.
    pub fn add_content_length(&mut self, value: &[u8]) -> Result<(), Rejection> {
        let length = parse_decimal(value).ok_or(Rejection::ContentLengthSyntax)?;
        if self.length.is_some_and(|other| other != length) {
            return Err(Rejection::ContentLengthsDiffer);
        }
        self.length = Some(length);
        Ok(())
    }

    /// Adds a Transfer-Encoding field. HTTP/1.0 has no transfer codings; `minor_version` is that of
    /// the request.
    pub fn add_transfer_encoding(
        &mut self,
        value: &[u8],
        minor_version: u8,
    ) -> Result<(), Rejection> {
        if minor_version == 0 {
            return Err(Rejection::CodingOnHttp10);
        }
        if self.chunked {
            return Err(Rejection::CodingNotChunked);
        }
        self.chunked = true;
        check_coding(value)
    }

    /// Returns the framing once all fields are added.
    pub fn framing(&self) -> Result<Framing, Rejection> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(Rejection::LengthAndChunked),
            (None, true) => Ok(Framing::Chunked),
            (None | Some(0), false) => Ok(Framing::Empty),
            (Some(length), false) => Ok(Framing::Sized(length)),
        }
    }
}

fn check_coding(value: &[u8]) -> Result<(), Rejection> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    let repeated = value
        .split(|byte| *byte == b',')
        .filter(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
        .count();
    if last.eq_ignore_ascii_case(b"chunked") && repeated == 1 {
        Err(Rejection::UnknownCoding)
    } else {
        Err(Rejection::CodingNotChunked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the framing of `fields`, each of which is `l` and a Content-Length, or `c` and a
    /// Transfer-Encoding.
    fn framing(fields: &[(char, &str)]) -> Result<Framing, Rejection> {
        let mut framing_fields = FramingFields::default();
        for (which, value) in fields {
            match which {
                'l' => framing_fields.add_content_length(value.as_bytes())?,
                _ => framing_fields.add_transfer_encoding(value.as_bytes(), 1)?,
            }
        }
        framing_fields.framing()
    }

    #[test]
    fn a_body_is_empty_sized_or_chunked() {
        assert_eq!(framing(&[]), Ok(Framing::Empty));
        assert_eq!(framing(&[('l', "0")]), Ok(Framing::Empty));
        assert_eq!(framing(&[('l', "3"), ('l', "3")]), Ok(Framing::Sized(3)));
        assert_eq!(framing(&[('c', "Chunked")]), Ok(Framing::Chunked));
    }

    #[test]
    fn ambiguous_framing_is_rejected() {
        use Rejection::*;
        for value in ["-1", "+1", "1_0", "1, 1", "", "99999999999999999999"] {
            assert_eq!(framing(&[('l', value)]), Err(ContentLengthSyntax), "{value:?}");
        }
        assert_eq!(framing(&[('l', "1"), ('l', "2")]), Err(ContentLengthsDiffer));
        assert_eq!(framing(&[('l', "1"), ('c', "chunked")]), Err(LengthAndChunked));
        assert_eq!(framing(&[('c', "chunked"), ('l', "0")]), Err(LengthAndChunked));
        for value in ["x", "xchunked", "chunked, chunked", "chunked, x"] {
            assert_eq!(framing(&[('c', value)]), Err(CodingNotChunked), "{value:?}");
        }
        assert_eq!(framing(&[('c', "chunked"), ('c', "x")]), Err(CodingNotChunked));
        assert_eq!(framing(&[('c', "gzip, chunked")]), Err(UnknownCoding));
        let on_http10 = FramingFields::default().add_transfer_encoding(b"chunked", 0);
        assert_eq!(on_http10, Err(CodingOnHttp10));
    }
}
