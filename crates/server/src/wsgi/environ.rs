//! Builds the environ of a request (PEP 3333, "environ Variables"; RFC 3875 for CGI's names).
//!
//! Each worker thread keeps its own template and its own keys: shared ones would make
//! free-threaded threads fight for their reference counts.

use super::origin::OriginKeys;
use super::object::{Object, PyResult, Raised, set_item};
use crate::http::head::split_absolute;
use crate::http::{Framing, Head};
use crate::worker::{Exchange, Forwarding};
use pyo3_ffi::*;
use std::collections::HashMap;

/// Environ keys of field names are remembered up to this many names.
const MAX_FIELD_KEYS: usize = 256;

pub struct EnvironBuilder {
    /// What is the same for every request.
    template: Object,
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
    /// By field name as it was sent. `None`: the field is left out.
    field_keys: HashMap<Box<[u8]>, Option<Object>>,
    path: Vec<u8>,
    origins: OriginKeys,
}

impl EnvironBuilder {
    /// `template` is a dict with everything that is the same for every request.
    pub fn new(template: Object) -> PyResult<Self> {
        let method = |text: &'static std::ffi::CStr| -> PyResult<_> {
            Ok((text.to_bytes(), Object::interned(text)?))
        };
        Ok(Self {
            template,
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
            field_keys: HashMap::new(),
            path: Vec::new(),
            origins: OriginKeys::new()?,
        })
    }

    pub fn build(&mut self, exchange: &Exchange, input: &Object) -> PyResult<Object> {
        let (head, bytes) = exchange.head();
        // SAFETY: the template is a dict (checked when the thread began).
        let environ = unsafe { Object::from_new(PyDict_Copy(self.template.as_ptr()))? };
        let method = &bytes[head.method.clone()];
        match self.methods.iter().find(|known| known.0 == method) {
            Some((_, known)) => set_item(&environ, &self.request_method, known)?,
            None => set_latin1(&environ, &self.request_method, method)?,
        }
        let target = &bytes[head.target.clone()];
        set_latin1(&environ, &self.request_uri, target)?;
        let (host, target) = match split_absolute(target) {
            Some((host, rest)) => (Some(host), rest),
            None => (None, target),
        };
        let query_start = target.iter().position(|byte| *byte == b'?');
        let (path, query) = match query_start {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (target, &b""[..]),
        };
        self.path.clear();
        decode_percent(path, &mut self.path);
        set_latin1(&environ, &self.path_info, &self.path)?;
        set_latin1(&environ, &self.query_string, query)?;
        let protocol = if head.minor_version == 1 { &self.http_11 } else { &self.http_10 };
        set_item(&environ, &self.server_protocol, protocol)?;
        let (ip, port) = exchange.client();
        set_latin1(&environ, &self.remote_addr, ip.as_bytes())?;
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
        for field in &head.fields {
            let name = &bytes[field.name.clone()];
            let fresh;
            let key = match self.field_keys.get(name) {
                Some(Some(key)) => key,
                Some(None) => continue,
                None => {
                    let Some(text) = environ_key(name) else {
                        self.remember(name, None);
                        continue;
                    };
                    let made = Object::from_latin1(text.as_bytes())?;
                    // SAFETY: a live object.
                    fresh = unsafe { Object::from_borrowed(made.as_ptr()) };
                    self.remember(name, Some(made));
                    &fresh
                }
            };
            set_latin1(environ, key, &bytes[field.value.clone()])?;
            // SAFETY: a dict.
            let now = unsafe { PyDict_Size(environ.as_ptr()) };
            if now == size {
                // The key was there: this field is repeated.
                set_latin1(environ, key, &join_repeated(head, bytes, name))?;
            }
            size = now;
        }
        Ok(())
    }

    fn remember(&mut self, name: &[u8], key: Option<Object>) {
        if self.field_keys.len() < MAX_FIELD_KEYS {
            self.field_keys.insert(name.into(), key);
        }
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
    crate::http::connection::push_decimal(&mut digits, number);
    set_latin1(environ, key, &digits)
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

/// All values of one field as one (RFC 3875 section 4.1.18); cookies with their own separator
/// (RFC 6265 section 4.2.1). A repeated Content-Length has equal values, so the first one counts.
fn join_repeated(head: &Head, bytes: &[u8], name: &[u8]) -> Vec<u8> {
    let same =
        |field: &&crate::http::head::Field| bytes[field.name.clone()].eq_ignore_ascii_case(name);
    let values = head.fields.iter().filter(same).map(|field| &bytes[field.value.clone()]);
    let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
    if name.eq_ignore_ascii_case(b"content-length") {
        return values.take(1).flatten().copied().collect();
    }
    values.collect::<Vec<_>>().join(separator)
}

/// Decodes `%41` and leaves what is no valid escape as it is.
fn decode_percent(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        let digit = |at: usize| rest.get(at).and_then(|byte| (*byte as char).to_digit(16));
        match (digit(at + 1), digit(at + 2)) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &rest[at + 3..];
            }
            _ => {
                out.push(b'%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_become_cgi_names() {
        assert_eq!(environ_key(b"X-Forwarded-For").as_deref(), Some("HTTP_X_FORWARDED_FOR"));
        assert_eq!(environ_key(b"content-type").as_deref(), Some("CONTENT_TYPE"));
        assert_eq!(environ_key(b"X_Forwarded_For"), None);
        assert_eq!(environ_key(b"Proxy"), None);
    }

    #[test]
    fn paths_are_decoded_once() {
        let decode = |path: &[u8]| {
            let mut out = Vec::new();
            decode_percent(path, &mut out);
            out
        };
        assert_eq!(decode(b"/a%20b%2Fc%2525"), b"/a b/c%25");
        assert_eq!(decode(b"/%zz%4"), b"/%zz%4");
        assert_eq!(decode(b"/%C3%A9"), "/é".as_bytes());
    }

    #[test]
    fn repeated_fields_are_joined() {
        let text =
            b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nCookie: a=1\r\nx: 2\r\nCookie: b=2\r\n\r\n";
        let mut head = Head::default();
        head.parse(text).unwrap();
        assert_eq!(join_repeated(&head, text, b"X"), b"1, 2");
        assert_eq!(join_repeated(&head, text, b"Cookie"), b"a=1; b=2");
    }
}
