//! The header fields of a request as items of its environ (RFC 3875 section 4.1.18).

use crate::http::Head;
use crate::wsgi::text::{Remembered, set_latin1};
use headway_python::attached::Attached;
use headway_python::object::{Object, PyResult};
use headway_python::stored::Stored;
use rustc_hash::FxHashMap;

/// Keys are remembered for up to this many field names, and then forgotten all at once: a client
/// that sends random names must not keep the usual ones out.
const MAX_FIELD_KEYS: usize = 256;
/// Longer names are not remembered; no registered one is longer than 44.
const MAX_NAME_BYTES: usize = 64;
/// Values of this length and more are not remembered.
const MAX_REMEMBERED_BYTES: usize = 256;

/// The environ keys of field names, for one thread.
#[derive(Default)]
pub struct Fields {
    /// `None`: the field is left out.
    keys: Vec<Option<FieldKey>>,
    /// The index of a field's key by the field's name as it was sent. Bounded, so that clients
    /// cannot make a fast hash slow.
    indexes: FxHashMap<Box<[u8]>, usize>,
}

/// An environ key, and the value that it had last: most of a client's fields never change.
struct FieldKey {
    key: Stored,
    last: Remembered,
    /// False for secrets, which must not stay in memory longer than their request.
    remembers: bool,
}

impl Fields {
    pub fn set(&mut self, environ: &Object, head: &Head, bytes: &[u8]) -> PyResult<()> {
        let py = environ.py();
        let mut size = environ.dict_length()?;
        let mut is_any_repeated = false;
        for field in &head.fields {
            let name = &bytes[field.name.clone()];
            let mut fresh;
            let key = match self.indexes.get(name) {
                Some(index) => &mut self.keys[*index],
                None => {
                    fresh = FieldKey::new(py, name)?;
                    if self.keys.len() == MAX_FIELD_KEYS {
                        self.keys.clear();
                        self.indexes.clear();
                    }
                    if name.len() <= MAX_NAME_BYTES {
                        self.indexes.insert(name.into(), self.keys.len());
                        self.keys.push(fresh);
                        self.keys.last_mut().expect("pushed just now")
                    } else {
                        &mut fresh
                    }
                }
            };
            let Some(key) = key else { continue };
            key.set(environ, &bytes[field.value.clone()])?;
            // The dict has not grown if it had the key.
            let now = environ.dict_length()?;
            is_any_repeated |= now == size;
            size = now;
        }
        for (name, value) in is_any_repeated.then(|| repeated(head, bytes)).into_iter().flatten() {
            if let Some(key) = environ_key(name) {
                set_latin1(
                    environ,
                    &Stored::new(Object::from_latin1(py, key.as_bytes())?),
                    &value,
                )?;
            }
        }
        Ok(())
    }
}

impl FieldKey {
    /// `None` for a field that is left out.
    fn new(py: Attached, name: &[u8]) -> PyResult<Option<Self>> {
        let Some(text) = environ_key(name) else { return Ok(None) };
        let remembers =
            !matches!(&text[..], "HTTP_COOKIE" | "HTTP_AUTHORIZATION" | "HTTP_PROXY_AUTHORIZATION");
        let key = Stored::new(Object::from_latin1(py, text.as_bytes())?);
        Ok(Some(Self { key, last: Remembered::default(), remembers }))
    }

    fn set(&mut self, environ: &Object, value: &[u8]) -> PyResult<()> {
        if self.remembers && value.len() < MAX_REMEMBERED_BYTES {
            let py = environ.py();
            environ.set_item(self.key.get(py), self.last.text(py, value)?)
        } else {
            set_latin1(environ, &self.key, value)
        }
    }
}

/// The environ's key for a field name; `None` for fields that an application must not see:
/// `Proxy` (it would become HTTP_PROXY, which HTTP clients obey), and names with characters that
/// would make two names one (`X_A` and `X-A`), as in Apache since 2.4.
fn environ_key(name: &[u8]) -> Option<String> {
    if name.eq_ignore_ascii_case(b"proxy") {
        return None;
    }
    let mut key = String::with_capacity(name.len() + 5);
    key.push_str("HTTP_");
    for byte in name {
        match byte {
            b'-' => key.push('_'),
            _ if byte.is_ascii_alphanumeric() => key.push(byte.to_ascii_uppercase() as char),
            _ => return None,
        }
    }
    match &key[..] {
        "HTTP_CONTENT_TYPE" | "HTTP_CONTENT_LENGTH" => Some(key.split_off(5)),
        _ => Some(key),
    }
}

/// The repeated fields, each with all its values joined by commas (RFC 3875 section 4.1.18), or for
/// cookies by semicolons (RFC 6265 section 4.2.1). A repeated Content-Length has equal values, so
/// the first one counts. Takes n log n time for n fields, however they repeat.
fn repeated<'a>(head: &Head, bytes: &'a [u8]) -> Vec<(&'a [u8], Vec<u8>)> {
    let mut fields: Vec<(Vec<u8>, &[u8], &[u8])> = head
        .fields
        .iter()
        .map(|field| (&bytes[field.name.clone()], &bytes[field.value.clone()]))
        .map(|(name, value)| (name.to_ascii_lowercase(), name, value))
        .collect();
    // A stable sort: the values of a field keep their order.
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
        .chunk_by(|one, other| one.0 == other.0)
        .filter(|same| same.len() > 1)
        .map(|same| {
            let (lowercase, name, first) = &same[0];
            let values = same.iter().map(|field| field.2);
            let value = match &lowercase[..] {
                b"content-length" => first.to_vec(),
                b"cookie" => values.collect::<Vec<_>>().join(&b"; "[..]),
                _ => values.collect::<Vec<_>>().join(&b", "[..]),
            };
            (*name, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Limits;

    #[test]
    fn field_names_become_cgi_names() {
        assert_eq!(environ_key(b"X-Forwarded-For").as_deref(), Some("HTTP_X_FORWARDED_FOR"));
        assert_eq!(environ_key(b"content-type").as_deref(), Some("CONTENT_TYPE"));
        assert_eq!(environ_key(b"X_Forwarded_For"), None);
        assert_eq!(environ_key(b"Proxy"), None);
    }

    #[test]
    fn repeated_fields_are_joined() {
        let text =
            b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nCookie: a=1\r\nx: 2\r\nCookie: b=2\r\n\r\n";
        let mut head = Head::default();
        head.parse(text, &Limits::default()).unwrap();
        let expected: [(&[u8], Vec<u8>); 2] =
            [(b"Cookie", b"a=1; b=2".to_vec()), (b"X", b"1, 2".to_vec())];
        assert_eq!(repeated(&head, text), expected);
    }
}
