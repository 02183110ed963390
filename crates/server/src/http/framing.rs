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

/// Checks a list of codings, whose empty elements do not count (RFC 9110 section 5.6.1.2): chunked
/// alone is known, once.
fn check_coding(value: &[u8]) -> Result<(), Rejection> {
    let mut codings =
        value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|each| !each.is_empty());
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let last_is_chunked = codings.next_back().as_ref().is_some_and(is_chunked);
    match (last_is_chunked, codings.next()) {
        (true, None) => Ok(()),
        (true, Some(first)) if !is_chunked(&first) && !codings.any(|each| is_chunked(&each)) => {
            Err(Rejection::UnknownCoding)
        }
        _ => Err(Rejection::CodingNotChunked),
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
        for value in ["Chunked", ", chunked", "chunked,", " ,\t, chunked , "] {
            assert_eq!(framing(&[('c', value)]), Ok(Framing::Chunked), "{value:?}");
        }
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
        for value in [
            "",
            ",",
            " , ",
            "x",
            "xchunked",
            "chunked, chunked",
            "chunked, , chunked",
            "chunked, x,",
        ] {
            assert_eq!(framing(&[('c', value)]), Err(CodingNotChunked), "{value:?}");
        }
        // A recipient that takes one of two fields must not find another end of the body.
        for value in ["x", "chunked", "", ","] {
            assert_eq!(
                framing(&[('c', "chunked"), ('c', value)]),
                Err(CodingNotChunked),
                "{value:?}"
            );
        }
        assert_eq!(framing(&[('c', ""), ('c', "chunked")]), Err(CodingNotChunked));
        assert_eq!(framing(&[('c', ", chunked"), ('l', "0")]), Err(LengthAndChunked));
        for value in ["gzip, chunked", "gzip,, chunked,"] {
            assert_eq!(framing(&[('c', value)]), Err(UnknownCoding), "{value:?}");
        }
        let on_http10 = FramingFields::default().add_transfer_encoding(b"chunked", 0);
        assert_eq!(on_http10, Err(CodingOnHttp10));
    }
}
