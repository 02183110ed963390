//! The environ items that TLS and trusted proxies change: scheme, host, port, and the header fields
//! about a request's origin.
//!
//! If the operator configured trusted proxies, an application sees these fields only as a trusted
//! proxy sent them, as with mod_wsgi's WSGITrustedProxies. So a client cannot deceive an
//! application that reads the fields itself.

use crate::connection::state::Forwarding;
use crate::http::forwarding::{FIELDS, split_port};
use crate::request::RequestContext;
use crate::wsgi::text::{set_decimal, set_latin1};
use headway_python::attached::Attached;
use headway_python::object::{Object, PyResult};
use headway_python::stored::Stored;
use std::ffi::CStr;

/// The environ's keys for `forwarding::FIELDS`, in that order.
const FIELD_KEYS: [&CStr; FIELDS.len()] = [
    c"HTTP_FORWARDED",
    c"HTTP_X_FORWARDED_FOR",
    c"HTTP_X_FORWARDED_PROTO",
    c"HTTP_X_FORWARDED_HOST",
    c"HTTP_X_FORWARDED_PORT",
];

pub struct OriginKeys {
    fields: Vec<Stored>,
    url_scheme: Stored,
    https: Stored,
    http_host: Stored,
    server_name: Stored,
    server_port: Stored,
    scheme_http: Stored,
    scheme_https: Stored,
    on: Stored,
}

impl OriginKeys {
    pub fn new(py: Attached) -> PyResult<Self> {
        let key = |text| Stored::interned(py, text);
        Ok(Self {
            fields: FIELD_KEYS.into_iter().map(key).collect::<PyResult<_>>()?,
            url_scheme: key(c"wsgi.url_scheme")?,
            https: key(c"HTTPS")?,
            http_host: key(c"HTTP_HOST")?,
            server_name: key(c"SERVER_NAME")?,
            server_port: key(c"SERVER_PORT")?,
            scheme_http: key(c"http")?,
            scheme_https: key(c"https")?,
            on: key(c"on")?,
        })
    }

    pub fn describe(&self, environ: &Object, context: &RequestContext) -> PyResult<()> {
        let py = environ.py();
        self.remove_untrusted(environ, context.forwarding())?;
        let origin = context.origin();
        let forwarded_https = origin.and_then(|origin| origin.is_https);
        let is_https = forwarded_https.unwrap_or(context.is_encrypted());
        let scheme = if is_https { &self.scheme_https } else { &self.scheme_http };
        environ.set_item(self.url_scheme.get(py), scheme.get(py))?;
        if is_https {
            environ.set_item(self.https.get(py), self.on.get(py))?;
        }
        let Some(origin) = origin else { return Ok(()) };
        if let Some(host) = &origin.host {
            set_latin1(environ, &self.http_host, host)?;
            set_latin1(environ, &self.server_name, split_port(host).0)?;
        }
        if forwarded_https.is_some() || origin.host.is_some() || origin.host_port.is_some() {
            let default = if is_https { 443 } else { 80 };
            let port = origin.host_port.unwrap_or(default);
            set_decimal(environ, &self.server_port, u64::from(port))?;
        }
        Ok(())
    }

    /// Removes the fields that no trusted proxy sent, if the operator configured trusted proxies.
    fn remove_untrusted(&self, environ: &Object, forwarding: Forwarding) -> PyResult<()> {
        for (index, key) in self.fields.iter().enumerate() {
            match forwarding {
                Forwarding::Unknown => return Ok(()),
                Forwarding::Believed(believed) if believed.has(index) => continue,
                Forwarding::Believed(_) | Forwarding::Hidden => {}
            }
            let key = key.get(environ.py());
            if environ.has_item(key)? {
                environ.remove_item(key)?;
            }
        }
        Ok(())
    }
}
