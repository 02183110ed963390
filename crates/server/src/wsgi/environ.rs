//! Builds the environ of a request (PEP 3333, "environ Variables"; RFC 3875 for CGI's names).
//!
//! Each worker thread keeps its own template and its own keys: shared ones would make
//! free-threaded threads compete for their reference counts.

use crate::connection::state::Forwarding;
use crate::http::Framing;
use crate::http::path::{Target, decode_path};
use crate::request::RequestContext;
use crate::wsgi::fields::Fields;
use crate::wsgi::origin::OriginKeys;
use crate::wsgi::text::{Remembered, set_decimal, set_latin1};
use headway_python::attached::Attached;
use headway_python::exception::Exception;
use headway_python::object::{Object, PyResult};
use headway_python::stored::Stored;

pub struct EnvironBuilder {
    /// For each listener a dict with the items that are the same for all its requests.
    templates: Vec<Stored>,
    request_method: Stored,
    request_uri: Stored,
    path_info: Stored,
    query_string: Stored,
    server_protocol: Stored,
    remote_addr: Stored,
    remote_port: Stored,
    content_length: Stored,
    transfer_encoding: Stored,
    http_host: Stored,
    wsgi_input: Stored,
    http_10: Stored,
    http_11: Stored,
    methods: Vec<(&'static [u8], Stored)>,
    fields: Fields,
    last_address: Remembered,
    /// The buffer of decoded paths.
    path: Vec<u8>,
    origins: OriginKeys,
}

impl EnvironBuilder {
    /// `templates` are dicts, one for each listener.
    pub fn new(py: Attached, templates: Vec<Stored>) -> PyResult<Self> {
        let key = |text| Stored::interned(py, text);
        let method = |text: &'static std::ffi::CStr| -> PyResult<_> {
            Ok((text.to_bytes(), Stored::interned(py, text)?))
        };
        let builder = Self {
            templates,
            request_method: key(c"REQUEST_METHOD")?,
            request_uri: key(c"REQUEST_URI")?,
            path_info: key(c"PATH_INFO")?,
            query_string: key(c"QUERY_STRING")?,
            server_protocol: key(c"SERVER_PROTOCOL")?,
            remote_addr: key(c"REMOTE_ADDR")?,
            remote_port: key(c"REMOTE_PORT")?,
            content_length: key(c"CONTENT_LENGTH")?,
            transfer_encoding: key(c"HTTP_TRANSFER_ENCODING")?,
            http_host: key(c"HTTP_HOST")?,
            wsgi_input: key(c"wsgi.input")?,
            http_10: key(c"HTTP/1.0")?,
            http_11: key(c"HTTP/1.1")?,
            methods: vec![method(c"GET")?, method(c"POST")?, method(c"HEAD")?, method(c"PUT")?],
            fields: Fields::default(),
            last_address: Remembered::default(),
            path: Vec::new(),
            origins: OriginKeys::new(py)?,
        };
        for template in &builder.templates {
            builder.make_room(template.get(py))?;
        }
        Ok(builder)
    }

    /// Gives a template the keys that every request sets, and room for more, so that a copy of it
    /// does not have to grow.
    fn make_room(&self, template: &Object) -> PyResult<()> {
        let py = template.py();
        let none = Object::none(py);
        for key in [
            &self.request_method,
            &self.request_uri,
            &self.path_info,
            &self.query_string,
            &self.server_protocol,
            &self.remote_addr,
            &self.wsgi_input,
        ] {
            template.set_item(key.get(py), &none)?;
        }
        // A dict grows when an item is added, and keeps its size when items are removed and when it
        // is copied.
        let passing = [c"1", c"2", c"3", c"4"].map(|key| Object::interned(py, key));
        for key in &passing {
            template.set_item(key.as_ref().map_err(|raised| *raised)?, &none)?;
        }
        for key in passing.iter().flatten() {
            template.remove_item(key)?;
        }
        Ok(())
    }

    pub fn build<'py>(
        &mut self,
        context: &RequestContext,
        input: &Object<'py>,
    ) -> PyResult<Object<'py>> {
        let py = input.py();
        let (head, bytes) = context.head();
        let template = self.templates.get(context.listener()).ok_or_else(|| {
            Exception::IndexError.raise(py, "there is no environ template for this listener")
        })?;
        let environ = template.get(py).copy_dict()?;
        let method = &bytes[head.method.clone()];
        match self.methods.iter().find(|known| known.0 == method) {
            Some((_, known)) => environ.set_item(self.request_method.get(py), known.get(py))?,
            None => set_latin1(&environ, &self.request_method, method)?,
        }
        let target = &bytes[head.target.clone()];
        let request_uri = Object::from_latin1(py, target)?;
        environ.set_item(self.request_uri.get(py), &request_uri)?;
        let Target { host, path, query } = Target::split(target);
        let path_info = decode_path(path, context.limits().normalizes_path, &mut self.path);
        if path_info == target {
            environ.set_item(self.path_info.get(py), &request_uri)?;
        } else {
            set_latin1(&environ, &self.path_info, path_info)?;
        }
        set_latin1(&environ, &self.query_string, query)?;
        let protocol = if head.minor_version == 1 { &self.http_11 } else { &self.http_10 };
        environ.set_item(self.server_protocol.get(py), protocol.get(py))?;
        let (ip, port) = context.client();
        let address = self.last_address.text(py, ip.as_bytes())?;
        environ.set_item(self.remote_addr.get(py), address)?;
        if port != 0 {
            set_decimal(&environ, &self.remote_port, u64::from(port))?;
        }
        environ.set_item(self.wsgi_input.get(py), input)?;
        self.fields.set(&environ, head, bytes)?;
        // The host of an absolute target overrides the field (RFC 9112 section 3.2.2).
        if let Some(host) = host {
            set_latin1(&environ, &self.http_host, host)?;
        }
        if context.is_encrypted() || context.forwarding() != Forwarding::Unknown {
            self.origins.describe(&environ, context)?;
        }
        if head.framing == Framing::Chunked && context.is_body_complete() {
            self.set_known_length(&environ, context.body().len())?;
        }
        Ok(environ)
    }

    /// A chunked body that has arrived completely is passed on as a sized one, as RFC 9112 section
    /// 7.1.3 decodes it: frameworks look at CONTENT_LENGTH.
    fn set_known_length(&self, environ: &Object, length: usize) -> PyResult<()> {
        set_decimal(environ, &self.content_length, length as u64)?;
        // The field is there: the body is chunked.
        environ.remove_item(self.transfer_encoding.get(environ.py()))
    }
}
