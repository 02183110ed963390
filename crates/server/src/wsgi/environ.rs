//! Builds the environ of a request (PEP 3333, "environ Variables"; RFC 3875 for CGI's names).
//!
//! Each worker thread keeps its own template and its own keys: shared ones would make
//! free-threaded threads fight for their reference counts.

use crate::connection::preamble::Forwarding;
use crate::http::{Framing, Head};
use crate::request::Exchange;
use crate::wsgi::origin::OriginKeys;
use crate::wsgi::path::{Target, decode_path};
use headway_python::object::{Object, PyResult, Raised, raise, set_item};
use pyo3_ffi::*;
use rustc_hash::FxHashMap;

/// Environ keys are remembered of up to this many field names. Then all are forgotten: who sends
/// names at random shall not leave the usual ones without a place.
const MAX_FIELD_KEYS: usize = 256;
/// Nor is a longer name remembered; no registered one is longer than 44.
const MAX_NAME_BYTES: usize = 64;
/// A value that is as long is not remembered.
const MAX_REMEMBERED_BYTES: usize = 256;

pub struct EnvironBuilder {
    /// What is the same for every request that comes by a listener, for each of them.
    templates: Vec<Object>,
    request_method: Object,
    request_uri: Object,
    path_info: Object,
    query_string: Object,
    server_protocol: Object,
    remote_addr: Object,
    remote_port: Object,
    content_length: Object,
    http_host: Object,
    wsgi_input: Object,
    http_10: Object,
    http_11: Object,
    methods: Vec<(&'static [u8], Object)>,
    /// `None`: the field is left out.
    field_keys: Vec<Option<FieldKey>>,
    /// Where a field's key is, by its name as it was sent. Bounded, so that clients cannot make a
    /// quick hash slow.
    field_places: FxHashMap<Box<[u8]>, usize>,
    last_address: Remembered,
    path: Vec<u8>,
    origins: OriginKeys,
}

/// An environ key, and the value that it had last: most of a client's fields never change.
struct FieldKey {
    key: Object,
    last: Remembered,
    /// False for what is secret: it must not stay in memory longer than its request.
    remembers: bool,
}

/// The last str that was made of some bytes.
#[derive(Default)]
struct Remembered(Option<(Box<[u8]>, Object)>);

impl Remembered {
    /// The str, made anew unless the bytes are the same again.
    fn text(&mut self, bytes: &[u8]) -> PyResult<&Object> {
        if self.0.as_ref().is_none_or(|(last, _)| &last[..] != bytes) {
            self.0 = Some((bytes.into(), Object::from_latin1(bytes)?));
        }
        self.0.as_ref().map(|(_, text)| text).ok_or(Raised)
    }
}

impl EnvironBuilder {
    /// `templates` are dicts, for each listener one with everything that is the same for all its
    /// requests.
    pub fn new(templates: Vec<Object>) -> PyResult<Self> {
        let method = |text: &'static std::ffi::CStr| -> PyResult<_> {
            Ok((text.to_bytes(), Object::interned(text)?))
        };
        let builder = Self {
            templates,
            request_method: Object::interned(c"REQUEST_METHOD")?,
            request_uri: Object::interned(c"REQUEST_URI")?,
            path_info: Object::interned(c"PATH_INFO")?,
            query_string: Object::interned(c"QUERY_STRING")?,
            server_protocol: Object::interned(c"SERVER_PROTOCOL")?,
            remote_addr: Object::interned(c"REMOTE_ADDR")?,
            remote_port: Object::interned(c"REMOTE_PORT")?,
            content_length: Object::interned(c"CONTENT_LENGTH")?,
            http_host: Object::interned(c"HTTP_HOST")?,
            wsgi_input: Object::interned(c"wsgi.input")?,
            http_10: Object::interned(c"HTTP/1.0")?,
            http_11: Object::interned(c"HTTP/1.1")?,
            methods: vec![method(c"GET")?, method(c"POST")?, method(c"HEAD")?, method(c"PUT")?],
            field_keys: Vec::new(),
            field_places: FxHashMap::default(),
            last_address: Remembered::default(),
            path: Vec::new(),
            origins: OriginKeys::new()?,
        };
        for template in &builder.templates {
            builder.make_room(template)?;
        }
        Ok(builder)
    }

    /// Gives a template the keys that every request sets, and room for more, so that a copy of
    /// it does not have to grow.
    fn make_room(&self, template: &Object) -> PyResult<()> {
        // SAFETY: a live object.
        let none = unsafe { Object::from_borrowed(Py_None()) };
        for key in [
            &self.request_method,
            &self.request_uri,
            &self.path_info,
            &self.query_string,
            &self.server_protocol,
            &self.remote_addr,
            &self.wsgi_input,
        ] {
            set_item(template, key, &none)?;
        }
        // A dict grows when an item is added, and keeps its size when it is taken away or copied.
        let passing = [c"1", c"2", c"3", c"4"];
        for key in passing {
            set_item(template, &Object::interned(key)?, &none)?;
        }
        for key in passing {
            // SAFETY: a dict (checked when the thread began), and a key that ends with zero.
            if unsafe { PyDict_DelItemString(template.as_ptr(), key.as_ptr()) } < 0 {
                return Err(Raised);
            }
        }
        Ok(())
    }

    pub fn build(&mut self, exchange: &Exchange, input: &Object) -> PyResult<Object> {
        let (head, bytes) = exchange.head();
        let template = self.templates.get(exchange.listener()).ok_or_else(|| {
            // SAFETY: an exception class of this interpreter.
            unsafe { raise(PyExc_IndexError, "there is no environ template for this listener") }
        })?;
        // SAFETY: the template is a dict (checked when the thread began).
        let environ = unsafe { Object::from_new(PyDict_Copy(template.as_ptr()))? };
        let method = &bytes[head.method.clone()];
        match self.methods.iter().find(|known| known.0 == method) {
            Some((_, known)) => set_item(&environ, &self.request_method, known)?,
            None => set_latin1(&environ, &self.request_method, method)?,
        }
        let target = &bytes[head.target.clone()];
        let request_uri = Object::from_latin1(target)?;
        set_item(&environ, &self.request_uri, &request_uri)?;
        let Target { host, path, query } = Target::split(target);
        let path_info = decode_path(path, &mut self.path);
        if path_info == target {
            set_item(&environ, &self.path_info, &request_uri)?;
        } else {
            set_latin1(&environ, &self.path_info, path_info)?;
        }
        set_latin1(&environ, &self.query_string, query)?;
        let protocol = if head.minor_version == 1 { &self.http_11 } else { &self.http_10 };
        set_item(&environ, &self.server_protocol, protocol)?;
        let (ip, port) = exchange.client();
        set_item(&environ, &self.remote_addr, self.last_address.text(ip.as_bytes())?)?;
        if port != 0 {
            set_decimal(&environ, &self.remote_port, u64::from(port))?;
        }
        set_item(&environ, &self.wsgi_input, input)?;
        self.set_fields(&environ, head, bytes)?;
        // The host of an absolute target overrides the field (RFC 9112 section 3.2.2).
        if let Some(host) = host {
            set_latin1(&environ, &self.http_host, host)?;
        }
        if exchange.is_encrypted() || exchange.forwarding() != Forwarding::Unknown {
            self.origins.describe(&environ, exchange)?;
        }
        if head.framing == Framing::Chunked && exchange.is_body_complete() {
            self.set_known_length(&environ, exchange.body().len())?;
        }
        Ok(environ)
    }

    fn set_fields(&mut self, environ: &Object, head: &Head, bytes: &[u8]) -> PyResult<()> {
        // SAFETY: a dict, here and below.
        let mut size = unsafe { PyDict_Size(environ.as_ptr()) };
        let mut is_any_repeated = false;
        for field in &head.fields {
            let name = &bytes[field.name.clone()];
            let mut fresh;
            let key = match self.field_places.get(name) {
                Some(place) => &mut self.field_keys[*place],
                None => {
                    fresh = FieldKey::new(name)?;
                    if self.field_keys.len() == MAX_FIELD_KEYS {
                        self.field_keys.clear();
                        self.field_places.clear();
                    }
                    if name.len() <= MAX_NAME_BYTES {
                        self.field_places.insert(name.into(), self.field_keys.len());
                        self.field_keys.push(fresh);
                        self.field_keys.last_mut().expect("pushed just now")
                    } else {
                        &mut fresh
                    }
                }
            };
            let Some(key) = key else { continue };
            key.set(environ, &bytes[field.value.clone()])?;
            // SAFETY: a dict.
            let now = unsafe { PyDict_Size(environ.as_ptr()) };
            // The dict has not grown if the key was there.
            is_any_repeated |= now == size;
            size = now;
        }
        for (name, value) in is_any_repeated.then(|| repeated(head, bytes)).into_iter().flatten() {
            if let Some(key) = environ_key(name) {
                set_latin1(environ, &Object::from_latin1(key.as_bytes())?, &value)?;
            }
        }
        Ok(())
    }

    /// A chunked body that is here to its end is passed on as a sized one, as RFC 9112 section
    /// 7.1.3 decodes it: frameworks look at CONTENT_LENGTH.
    fn set_known_length(&self, environ: &Object, length: usize) -> PyResult<()> {
        set_decimal(environ, &self.content_length, length as u64)?;
        // SAFETY: a dict, and a key that ends with zero. The field is there: the body is chunked.
        match unsafe { PyDict_DelItemString(environ.as_ptr(), c"HTTP_TRANSFER_ENCODING".as_ptr()) }
        {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }
}

pub fn set_decimal(environ: &Object, key: &Object, number: u64) -> PyResult<()> {
    let mut digits = Vec::with_capacity(20);
    crate::http::digits::push_decimal(&mut digits, number);
    set_latin1(environ, key, &digits)
}

impl FieldKey {
    /// `None` for a field that is left out.
    fn new(name: &[u8]) -> PyResult<Option<Self>> {
        let Some(text) = environ_key(name) else { return Ok(None) };
        let remembers =
            !matches!(&text[..], "HTTP_COOKIE" | "HTTP_AUTHORIZATION" | "HTTP_PROXY_AUTHORIZATION");
        let key = Object::from_latin1(text.as_bytes())?;
        Ok(Some(Self { key, last: Remembered::default(), remembers }))
    }

    fn set(&mut self, environ: &Object, value: &[u8]) -> PyResult<()> {
        if self.remembers && value.len() < MAX_REMEMBERED_BYTES {
            set_item(environ, &self.key, self.last.text(value)?)
        } else {
            set_latin1(environ, &self.key, value)
        }
    }
}

pub fn set_latin1(environ: &Object, key: &Object, value: &[u8]) -> PyResult<()> {
    set_item(environ, key, &Object::from_latin1(value)?)
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

/// The repeated fields, each with all its values as one (RFC 3875 section 4.1.18); cookies with their own
/// separator (RFC 6265 section 4.2.1). A repeated Content-Length has equal values, so the first one
/// counts. Takes n log n time for n fields, however they repeat.
fn repeated<'a>(head: &Head, bytes: &'a [u8]) -> Vec<(&'a [u8], Vec<u8>)> {
    let mut fields: Vec<(Vec<u8>, &[u8], &[u8])> = head
        .fields
        .iter()
        .map(|field| (&bytes[field.name.clone()], &bytes[field.value.clone()]))
        .map(|(name, value)| (name.to_ascii_lowercase(), name, value))
        .collect();
    // Stable: the values of a field keep their order.
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
