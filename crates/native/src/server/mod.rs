//! `_native.server_*`: the server's functions for `headway.server`, which checks arguments and
//! says what they mean. A server is a capsule.
//!
//! `interpreters` are what requests are run in, a capsule each; `options` reads what there is to serve and how, `tls` makes the capsule of certificate and key that
//! belongs to it, `requests` says what was served.

use headway_python::object::{Object, PyResult, Raised, raise, without_gil};
use headway_server::interpreters::interruption::interrupt_next;
use headway_server::interpreters::server::Server;
use headway_server::limits::inbox::Received;
use pyo3_ffi::*;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Duration;

use crate::{Methods, method};
use options::OpenError;

mod interpreters;
mod options;
pub use options::items;
mod requests;
mod tls;

const CAPSULE_NAME: &CStr = c"headway._native.server";

static METHODS: Methods<11> = Methods([
    method(
        c"server_open",
        server_open,
        c"server_open(listeners, routes, groups, options)\n\
          listeners: descriptors of listening sockets, which are taken over, as is log_fd.\n\
          routes: pairs of a URL path and the index of the group that has it.\n\
          groups: triples of a number of interpreters, their maximum_requests, and the switch interval in\n\
          ns of their threads where they share a GIL, or 0. Interpreters have places, numbered group by group, and come there by server_admit.\n\
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
        c"server_work(server)\nServes on this thread until the server has stopped. Where an interpreter of\n\
          interpreter_of_caller is admitted, it must be this thread's.",
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
        c"server_interrupt(server) -> bool\n\
          Waits for a request that runs too long and sets its interpreter's exception in its thread.\n\
          False once the server is over.",
    ),
    method(
        c"server_next_wanted",
        server_next_wanted,
        c"server_next_wanted(server, timeout_ns) -> int or None\n\
          Waits for a place that needs an interpreter, because it has none and a request came, or\n\
          because its own has served maximum_requests. -1 if there is none in time (a negative\n\
          timeout_ns: ever), None once the server is over.",
    ),
    method(
        c"server_admit",
        server_admit,
        c"server_admit(server, place, interpreter)\n\
          From now on the interpreter, which interpreter_enter has prepared, has the place's requests.\n\
          With None: there is none to be had, and who waits for it is told.",
    ),
    method(
        c"server_retire",
        server_retire,
        c"server_retire(server, interpreter, timeout_ns) -> bool\n\
          Lets no request into the interpreter, waits for those that run there, and has the worker\n\
          threads leave it, which makes it ready for interpreter_end. False if one is left.",
    ),
    method(c"server_abort", server_abort, c"server_abort(server)\nEnds without waiting."),
    method(
        c"server_requests",
        server_requests,
        c"server_requests(server) -> list of (place, path, requests, errors, response_p50, response_p99,\n\
          gil_wait_p50, gil_wait_p99, gil_wait_total, application_total, cpu_total), times in ns\n\
          and None where unknown.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

pub fn interpreter_methods() -> *mut PyMethodDef {
    interpreters::methods()
}

unsafe extern "C" fn server_open(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut listeners, mut routes) = (ptr::null_mut(), ptr::null_mut());
    let (mut groups, mut options) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the format matches the places that follow it, and CPython checks the types that it
    // names. The descriptors are given away, as the function's doc says. The capsule owns the server.
    unsafe {
        let parsed = PyArg_ParseTuple(
            arguments,
            c"O!OOO!:server_open".as_ptr(),
            &raw mut PyList_Type,
            &raw mut listeners,
            &raw mut routes,
            &raw mut groups,
            &raw mut PyDict_Type,
            &raw mut options,
        );
        if parsed == 0 {
            return ptr::null_mut();
        }
        let listeners = Object::from_borrowed(listeners);
        let routes = Object::from_borrowed(routes);
        let groups = Object::from_borrowed(groups);
        let settings = options::pool_settings(&listeners, Object::from_borrowed(options));
        let opened = settings.and_then(|settings| {
            let groups = options::application_groups(&routes, &groups)?;
            Server::open(groups, settings).map_err(OpenError::System)
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
        match server_argument(arguments, c"O:server_work").and_then(Server::work) {
            Ok(()) => Object::from_borrowed(Py_None()).into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_interrupt(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments, which keeps the capsule alive.
    unsafe {
        match server_argument(arguments, c"O:server_interrupt") {
            Ok(server) => PyBool_FromLong(interrupt_next(server).into()),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_next_wanted(
    _: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments, which keeps the capsule alive.
    unsafe {
        let wanted = server_and_argument(arguments, c"OO:server_next_wanted").and_then(
            |(server, timeout)| {
                let timeout = u64::try_from(Object::from_borrowed(timeout).to_i64()?);
                let patience = timeout.map_or(Duration::MAX, Duration::from_nanos);
                Ok(without_gil(|| server.next_wanted(patience)))
            },
        );
        match wanted {
            Ok(Received::Task(place)) => PyLong_FromSize_t(place),
            Ok(Received::Nothing) => PyLong_FromLong(-1),
            Ok(Received::Over) => Object::from_borrowed(Py_None()).into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_admit(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut capsule, mut interpreter) = (ptr::null_mut(), ptr::null_mut());
    let mut place: Py_ssize_t = 0;
    // SAFETY: the format matches the places that follow it; the tuple keeps the objects alive.
    unsafe {
        let parsed = PyArg_ParseTuple(
            arguments,
            c"OnO:server_admit".as_ptr(),
            &raw mut capsule,
            &raw mut place,
            &raw mut interpreter,
        );
        if parsed == 0 {
            return ptr::null_mut();
        }
        let admitted = server_in(capsule).and_then(|server| {
            if interpreter == Py_None() {
                server.groups().fail(place as usize);
            } else {
                let interpreter = interpreters::interpreter_in(interpreter)?;
                server.groups().admit(place as usize, interpreter);
            }
            Ok(())
        });
        match admitted {
            Ok(()) => Object::from_borrowed(Py_None()).into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn server_retire(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut capsule, mut interpreter) = (ptr::null_mut(), ptr::null_mut());
    let mut timeout_ns = 0_i64;
    // SAFETY: the format matches the places that follow it; the tuple keeps the objects alive.
    unsafe {
        let parsed = PyArg_ParseTuple(
            arguments,
            c"OOL:server_retire".as_ptr(),
            &raw mut capsule,
            &raw mut interpreter,
            &raw mut timeout_ns,
        );
        if parsed == 0 {
            return ptr::null_mut();
        }
        let retired = server_in(capsule).and_then(|server| {
            let interpreter = interpreters::interpreter_in(interpreter)?;
            let patience = Duration::from_nanos(timeout_ns.max(0) as u64);
            Ok(without_gil(|| server.retire(&interpreter, patience)))
        });
        match retired {
            Ok(retired) => PyBool_FromLong(retired.into()),
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
pub unsafe fn server_in<'a>(capsule: *mut PyObject) -> PyResult<&'a Server> {
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
