//! `_native.server_*`: the server's functions for `headway.server`, which checks arguments and
//! says what they mean. A server is a capsule.
//!
//! `options` reads what there is to serve and how, `tls` makes the capsule of certificate and key that
//! belongs to it, `requests` says what was served.

use headway_server::wsgi::interruption::interrupt_next;
use headway_server::wsgi::object::{Object, PyResult, Raised, raise, without_gil};
use headway_server::wsgi::server::{OpenError, Server, ServerSettings};
use pyo3_ffi::*;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::{Methods, method};

mod options;
mod requests;
mod tls;

const CAPSULE_NAME: &CStr = c"headway._native.server";

static METHODS: Methods<8> = Methods([
    method(
        c"server_open",
        server_open,
        c"server_open(application, report, listeners, options)\n\
          listeners: descriptors of listening sockets, which are taken over, as is log_fd.\n\
          options: a dict of numbers, of sequences of strings about whom to believe, and tls (None, or\n\
          what server_read_tls returned), all of them required; see Server in serving.py.",
    ),
    method(
        c"server_read_tls",
        tls::server_read_tls,
        c"server_read_tls(certificate, key) -> what server_open takes as tls\n\
          ValueError says which of the files is no good, and why.",
    ),
    method(
        c"server_work",
        server_work,
        c"server_work(server, environ)\nServes on this thread until the server has stopped.",
    ),
    method(
        c"server_stop",
        server_stop,
        c"server_stop(server, keep_idle_ns)\n\
          Stops accepting; lets requests end, and keeps connections without one for so long.",
    ),
    method(
        c"server_interrupt",
        server_interrupt,
        c"server_interrupt(server, exception) -> bool\n\
          Waits for a request that runs too long and sets an exception of that class in its thread.\n\
          False once the server is over.",
    ),
    method(c"server_abort", server_abort, c"server_abort(server)\nEnds without waiting."),
    method(
        c"server_requests",
        server_requests,
        c"server_requests(server) -> list of (path, requests, errors, response_p50, response_p99,\n\
          gil_wait_p50, gil_wait_p99, gil_wait_total, application_total, cpu_total), times in ns\n\
          and None where unknown.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn server_open(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut application, mut report) = (ptr::null_mut(), ptr::null_mut());
    let (mut listeners, mut options) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the format matches the places that follow it, and CPython checks the types that it
    // names. The descriptors are given away, as the function's doc says. The capsule owns the server.
    unsafe {
        let parsed = PyArg_ParseTuple(
            arguments,
            c"OOO!O!:server_open".as_ptr(),
            &raw mut application,
            &raw mut report,
            &raw mut PyList_Type,
            &raw mut listeners,
            &raw mut PyDict_Type,
            &raw mut options,
        );
        if parsed == 0 {
            return ptr::null_mut();
        }
        let listeners = Object::from_borrowed(listeners);
        let options = Object::from_borrowed(options);
        let opened = options::pool_settings(&listeners, options).and_then(|pool| {
            Server::open(ServerSettings {
                application: Object::from_borrowed(application),
                report: Object::from_borrowed(report),
                pool,
            })
        });
        match opened {
            Ok(server) => {
                let server = Box::into_raw(Box::new(server));
                PyCapsule_New(server.cast(), CAPSULE_NAME.as_ptr(), Some(drop_server))
            }
            Err(OpenError::Raised) => ptr::null_mut(),
            Err(OpenError::System(error)) => {
                raise(PyExc_OSError, &error.to_string());
                ptr::null_mut()
            }
        }
    }
}

/// The capsule's destructor. A thread that serves holds a reference to the capsule, so none does.
unsafe extern "C" fn drop_server(capsule: *mut PyObject) {
    // SAFETY: made by `server_open` and dropped once.
    unsafe {
        let server = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        drop(Box::from_raw(server.cast::<Server>()));
    }
}

unsafe extern "C" fn server_work(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments, which keeps the capsule alive.
    unsafe {
        let Ok((server, template)) = server_and_argument(arguments, c"OO:server_work") else {
            return ptr::null_mut();
        };
        match server.work(Object::from_borrowed(template)) {
            Ok(()) => Object::from_borrowed(Py_None()).into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_interrupt(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments, which keeps the capsule alive.
    unsafe {
        match server_and_argument(arguments, c"OO:server_interrupt") {
            Ok((server, exception)) => {
                let went_on = interrupt_next(server, &Object::from_borrowed(exception));
                PyBool_FromLong(went_on.into())
            }
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_stop(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments.
    unsafe {
        let stopped =
            server_and_argument(arguments, c"OO:server_stop").and_then(|(server, keep)| {
                let keep_idle_ns = Object::from_borrowed(keep).to_i64()?.max(0) as u64;
                without_gil(|| server.stop(keep_idle_ns));
                Ok(())
            });
        match stopped {
            Ok(()) => Object::from_borrowed(Py_None()).into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_abort(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments.
    unsafe { with_server(arguments, c"O:server_abort", |server| without_gil(|| server.abort())) }
}

unsafe extern "C" fn server_requests(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments.
    unsafe {
        match server_argument(arguments, c"O:server_requests").and_then(requests::request_rows) {
            Ok(rows) => rows.into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// # Safety
/// `arguments` is a live tuple; the server lives as long as it.
unsafe fn server_argument<'a>(arguments: *mut PyObject, format: &CStr) -> PyResult<&'a Server> {
    let mut capsule = ptr::null_mut();
    // SAFETY: the format has one object.
    unsafe {
        if PyArg_ParseTuple(arguments, format.as_ptr(), &raw mut capsule) == 0 {
            return Err(Raised);
        }
        server_in(capsule)
    }
}

/// # Safety
/// As `server_argument`.
unsafe fn server_and_argument<'a>(
    arguments: *mut PyObject,
    format: &CStr,
) -> PyResult<(&'a Server, *mut PyObject)> {
    let (mut capsule, mut argument) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the format has two objects.
    unsafe {
        let format: *const c_char = format.as_ptr();
        let parsed: c_int =
            PyArg_ParseTuple(arguments, format, &raw mut capsule, &raw mut argument);
        if parsed == 0 {
            return Err(Raised);
        }
        Ok((server_in(capsule)?, argument))
    }
}

/// # Safety
/// `capsule` is a live object that outlives the reference.
unsafe fn server_in<'a>(capsule: *mut PyObject) -> PyResult<&'a Server> {
    // SAFETY: a capsule of this name holds a server until it is dropped; for anything else an
    // exception is set and the pointer is null.
    unsafe {
        let server = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        server.cast::<Server>().as_ref().ok_or(Raised)
    }
}

/// # Safety
/// `arguments` is a live tuple.
unsafe fn with_server(
    arguments: *mut PyObject,
    format: &CStr,
    act: impl FnOnce(&Server),
) -> *mut PyObject {
    // SAFETY: as the caller promises.
    unsafe {
        match server_argument(arguments, format) {
            Ok(server) => {
                act(server);
                Object::from_borrowed(Py_None()).into_ptr()
            }
            Err(Raised) => ptr::null_mut(),
        }
    }
}
