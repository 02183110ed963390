//! A capsule with a certificate and its key, which are read once and used by one or more servers.

use headway_python::attached::Attached;
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::arguments;
use headway_python::exception::Exception;
use headway_python::object::{Object, PyResult};
use headway_server::{TlsConfig, read_config};
use std::ffi::CStr;
use std::sync::Arc;

struct Config(Arc<TlsConfig>);

// SAFETY: no other type has this name.
unsafe impl InCapsule for Config {
    const NAME: &'static CStr = c"headway._native.tls";
}

pub fn server_read_tls<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (certificate, key): (&str, &str) = arguments(py, "server_read_tls", given)?;
    let config = read_config(certificate, key)
        .map_err(|message| Exception::ValueError.raise(py, &message))?;
    capsule::new(py, Config(config))
}

/// Returns the configuration in a capsule of `server_read_tls`.
pub fn config_in(capsule: &Object) -> PyResult<Arc<TlsConfig>> {
    capsule::value(capsule).map(|Config(config)| Arc::clone(config))
}
