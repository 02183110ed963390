//! What TLS and trusted proxies change in an environ: scheme, host, port, and which of the fields
//! about a request's origin an application gets to see.
//!
//! Once an operator says which proxies are trusted, these fields are the proxies' word or they are
//! not there, as with mod_wsgi's WSGITrustedProxies: an application that reads them itself cannot
//! be lied to either.

use crate::connection::preamble::Forwarding;
use crate::http::forwarding::{FIELDS, split_port};
use crate::request::Exchange;
use crate::wsgi::environ::{set_decimal, set_latin1};
use headway_python::object::{Object, PyResult, Raised, set_item};
use pyo3_ffi::*;
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
    fields: Vec<Object>,
    url_scheme: Object,
    https: Object,
    http_host: Object,
    server_name: Object,
    server_port: Object,
    /// Values.
    scheme_http: Object,
    scheme_https: Object,
    on: Object,
}

impl OriginKeys {
    pub fn new() -> PyResult<Self> {
        Ok(Self {
            fields: FIELD_KEYS.iter().map(|key| Object::interned(key)).collect::<PyResult<_>>()?,
            url_scheme: Object::interned(c"wsgi.url_scheme")?,
            https: Object::interned(c"HTTPS")?,
            http_host: Object::interned(c"HTTP_HOST")?,
            server_name: Object::interned(c"SERVER_NAME")?,
            server_port: Object::interned(c"SERVER_PORT")?,
            scheme_http: Object::interned(c"http")?,
            scheme_https: Object::interned(c"https")?,
            on: Object::interned(c"on")?,
        })
    }

    pub fn describe(&self, environ: &Object, exchange: &Exchange) -> PyResult<()> {
        self.hide_what_nobody_said(environ, exchange.forwarding())?;
        let origin = exchange.origin();
        let said_https = origin.and_then(|origin| origin.is_https);
        let is_https = said_https.unwrap_or(exchange.is_encrypted());
        let scheme = if is_https { &self.scheme_https } else { &self.scheme_http };
        set_item(environ, &self.url_scheme, scheme)?;
        if is_https {
            set_item(environ, &self.https, &self.on)?;
        }
        let Some(origin) = origin else { return Ok(()) };
        if let Some(host) = &origin.host {
            set_latin1(environ, &self.http_host, host)?;
            set_latin1(environ, &self.server_name, split_port(host).0)?;
        }
        if said_https.is_some() || origin.host.is_some() || origin.host_port.is_some() {
            let usual = if is_https { 443 } else { 80 };
            let port = origin.host_port.unwrap_or(usual);
            set_decimal(environ, &self.server_port, u64::from(port))?;
        }
        Ok(())
    }

    fn hide_what_nobody_said(&self, environ: &Object, forwarding: Forwarding) -> PyResult<()> {
        for (index, key) in self.fields.iter().enumerate() {
            match forwarding {
                Forwarding::Unknown => return Ok(()),
                Forwarding::Believed(believed) if believed.has(index) => continue,
                Forwarding::Believed(_) | Forwarding::Hidden => {}
            }
            // SAFETY: a dict and a str, both live.
            unsafe {
                match PyDict_Contains(environ.as_ptr(), key.as_ptr()) {
                    0 => {}
                    1 if PyDict_DelItem(environ.as_ptr(), key.as_ptr()) == 0 => {}
                    _ => return Err(Raised),
                }
            }
        }
        Ok(())
    }
}
