//! A certificate and its key, read once: a capsule that one or more servers are opened with.

use headway_python::object::{Object, PyResult, Raised, raise};
use headway_server::net::tls::{TlsConfig, read_config};
use pyo3_ffi::*;
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

const CAPSULE_NAME: &CStr = c"headway._native.tls";

pub unsafe extern "C" fn server_read_tls(
    _: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let (mut certificate, mut key) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: CPython calls with a live tuple of arguments; the format has two objects, which it
    // keeps alive. The capsule owns the configuration.
    unsafe {
        let format = c"OO:server_read_tls".as_ptr();
        if PyArg_ParseTuple(arguments, format, &raw mut certificate, &raw mut key) == 0 {
            return ptr::null_mut();
        }
        let read = Object::from_borrowed(certificate).to_text().and_then(|certificate| {
            let key = Object::from_borrowed(key).to_text()?;
            read_config(&certificate, &key).map_err(|message| raise(PyExc_ValueError, &message))
        });
        match read {
            Ok(config) => {
                let config = Box::into_raw(Box::new(config));
                PyCapsule_New(config.cast(), CAPSULE_NAME.as_ptr(), Some(drop_config))
            }
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// What `server_read_tls` has put into `capsule`.
pub fn config_in(capsule: &Object) -> PyResult<Arc<TlsConfig>> {
    // SAFETY: a capsule of this name holds a configuration until it is dropped; for anything else an
    // exception is set and the pointer is null.
    unsafe {
        let config = PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE_NAME.as_ptr());
        config.cast::<Arc<TlsConfig>>().as_ref().map(Arc::clone).ok_or(Raised)
    }
}

/// The capsule's destructor.
unsafe extern "C" fn drop_config(capsule: *mut PyObject) {
    // SAFETY: made by `server_read_tls` and dropped once.
    unsafe {
        let config = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        drop(Box::from_raw(config.cast::<Arc<TlsConfig>>()));
    }
}
