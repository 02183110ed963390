//! `_native.server_*`: the server's functions for `headway.server`, which checks arguments and
//! says what they mean. A server is a capsule.

use headway_server::http::Limits;
use headway_server::http::forwarding::{Believed, FIELDS};
use headway_server::record::paths::percentile_ns;
use headway_server::record::{AccessLog, LogForm};
use headway_server::worker::networks::Networks;
use headway_server::worker::socket::Listener;
use headway_server::worker::tls::{TlsConfig, read_config};
use headway_server::worker::{Entrance, PoolSettings, ProcessLimits, Timeouts};
use headway_server::wsgi::interruption::interrupt_next;
use headway_server::wsgi::object::{Object, PyResult, Raised, raise, without_gil};
use headway_server::wsgi::server::{OpenError, Server, ServerSettings};
use pyo3_ffi::*;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use crate::{Methods, method};

const CAPSULE_NAME: &CStr = c"headway._native.server";
const TLS_NAME: &CStr = c"headway._native.tls";

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
        server_read_tls,
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
    // names. The capsule owns the server.
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
        let opened = pool_settings(listeners, options).and_then(|pool| {
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

/// # Safety
/// `listeners` is a live list of descriptors that the caller gives away, `options` a live dict.
unsafe fn pool_settings(
    listeners: *mut PyObject,
    options: *mut PyObject,
) -> Result<PoolSettings, OpenError> {
    // SAFETY: as the caller promises, here and below; so is the log's descriptor, where there is a
    // log.
    unsafe {
        let number = |name| option(options, name);
        let mut opened = Vec::new();
        for index in 0..PyList_Size(listeners) {
            let item = Object::from_new(PySequence_GetItem(listeners, index))?;
            let fd = OwnedFd::from_raw_fd(to_number(item.as_ptr())? as c_int);
            opened.push(Listener::from_fd(fd).map_err(OpenError::System)?);
        }
        let form = match number(c"log_form")? {
            1 => Some(LogForm::Common),
            2 => Some(LogForm::Json),
            3 => Some(LogForm::Combined),
            _ => None,
        };
        let access_log = match form {
            Some(form) => {
                let file = OwnedFd::from_raw_fd(number(c"log_fd")? as c_int);
                Some(AccessLog { form, file })
            }
            None => None,
        };
        Ok(PoolSettings {
            listeners: opened,
            shared_listeners: number(c"shared_listeners")? != 0,
            access_log,
            free_threaded: number(c"free_threaded")? != 0,
            timeouts: Timeouts {
                keep_alive_ns: number(c"keep_alive_timeout_ns")? as u64,
                head_ns: number(c"head_timeout_ns")? as u64,
                body_ns: number(c"body_timeout_ns")? as u64,
                write_ns: number(c"write_timeout_ns")? as u64,
            },
            max_connections: number(c"max_connections")? as usize,
            entrance: entrance(options)?,
            limits: Limits {
                max_target_bytes: number(c"max_target_bytes")? as usize,
                max_head_bytes: number(c"max_head_bytes")? as usize,
                max_fields: number(c"max_fields")? as usize,
                max_body_bytes: number(c"max_body_bytes")? as u64,
            },
            process_limits: ProcessLimits {
                maximum_requests: number(c"maximum_requests")? as u64,
                inactivity_ns: number(c"inactivity_timeout_ns")? as u64,
                request_ns: number(c"request_timeout_ns")? as u64,
                interrupt_ns: number(c"interrupt_timeout_ns")? as u64,
                deadlock_ns: number(c"deadlock_timeout_ns")? as u64,
                queue_ns: number(c"queue_timeout_ns")? as u64,
                control_fd: number(c"control_fd")? as c_int,
                stack_signal: number(c"stack_signal")? as c_int,
            },
        })
    }
}

/// # Safety
/// `options` is a live dict.
unsafe fn entrance(options: *mut PyObject) -> PyResult<Entrance> {
    // SAFETY: as the caller promises, here and below; an exception class of this interpreter.
    let strings = |name: &CStr| unsafe { strings_option(options, name) };
    let refuse = |message: &str| unsafe { raise(PyExc_ValueError, message) };
    let networks = |name: &CStr| {
        let texts = strings(name)?;
        Networks::parse(&texts).map_err(|text| {
            let name = name.to_string_lossy();
            refuse(&format!("{name}: {text:?} must be a network such as 10.0.0.0/8, or unix"))
        })
    };
    let believed = strings(c"trusted_proxy_headers")?;
    Ok(Entrance {
        // SAFETY: as the caller promises.
        tls: unsafe { tls_option(options) }?,
        proxy_protocol_from: networks(c"proxy_protocol_from")?,
        trusted_proxies: networks(c"trusted_proxies")?,
        believed: Believed::parse(&believed).map_err(|name| {
            refuse(&format!("trusted_proxy_headers: {name:?} must be one of {FIELDS:?}"))
        })?,
        ..Entrance::default()
    })
}

/// The list of strings under `name`; KeyError if there is none.
///
/// # Safety
/// `options` is a live dict.
unsafe fn strings_option(options: *mut PyObject, name: &CStr) -> PyResult<Vec<String>> {
    // SAFETY: a dict; the list is held while its items are read, and each item while its text is.
    unsafe {
        let list = PyDict_GetItemString(options, name.as_ptr());
        if list.is_null() {
            return Err(raise(PyExc_KeyError, &name.to_string_lossy()));
        }
        let list = Object::from_borrowed(list);
        let count = PySequence_Size(list.as_ptr());
        if count < 0 {
            return Err(Raised);
        }
        (0..count)
            .map(|index| text_of(&Object::from_new(PySequence_GetItem(list.as_ptr(), index))?))
            .collect()
    }
}

/// # Safety
/// A thread state is attached.
unsafe fn text_of(text: &Object) -> PyResult<String> {
    // SAFETY: a live object; the text lives as long as it.
    unsafe {
        let mut size = 0;
        let utf8 = PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut size);
        if utf8.is_null() {
            return Err(Raised);
        }
        let bytes = std::slice::from_raw_parts(utf8.cast::<u8>(), size as usize);
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// What `server_read_tls` has made, if it is there.
///
/// # Safety
/// `options` is a live dict.
unsafe fn tls_option(options: *mut PyObject) -> PyResult<Option<Arc<TlsConfig>>> {
    // SAFETY: a dict; the value is borrowed from it, and nothing of Python runs before it is read.
    // A capsule of this name holds a configuration until it is dropped.
    unsafe {
        let value = PyDict_GetItemString(options, c"tls".as_ptr());
        if value.is_null() || Py_IsNone(value) != 0 {
            return Ok(None);
        }
        let config = PyCapsule_GetPointer(value, TLS_NAME.as_ptr()).cast::<Arc<TlsConfig>>();
        config.as_ref().map(|config| Some(Arc::clone(config))).ok_or(Raised)
    }
}

/// The capsule's destructor.
unsafe extern "C" fn drop_tls(capsule: *mut PyObject) {
    // SAFETY: made by `server_read_tls` and dropped once.
    unsafe {
        let config = PyCapsule_GetPointer(capsule, TLS_NAME.as_ptr());
        drop(Box::from_raw(config.cast::<Arc<TlsConfig>>()));
    }
}

unsafe extern "C" fn server_read_tls(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut certificate, mut key) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: CPython calls with a live tuple of arguments; the format has two objects, which it
    // keeps alive.
    unsafe {
        let format = c"OO:server_read_tls".as_ptr();
        if PyArg_ParseTuple(arguments, format, &raw mut certificate, &raw mut key) == 0 {
            return ptr::null_mut();
        }
        let read = text_of(&Object::from_borrowed(certificate)).and_then(|certificate| {
            let key = text_of(&Object::from_borrowed(key))?;
            read_config(&certificate, &key).map_err(|message| raise(PyExc_ValueError, &message))
        });
        match read {
            Ok(config) => {
                let config = Box::into_raw(Box::new(config));
                PyCapsule_New(config.cast(), TLS_NAME.as_ptr(), Some(drop_tls))
            }
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// The number under `name`; KeyError if there is none.
///
/// # Safety
/// `options` is a live dict.
unsafe fn option(options: *mut PyObject, name: &CStr) -> PyResult<i64> {
    // SAFETY: a dict; the value is borrowed from it, and nothing of Python runs before it is read.
    unsafe {
        let value = PyDict_GetItemString(options, name.as_ptr());
        if value.is_null() {
            return Err(raise(PyExc_KeyError, &name.to_string_lossy()));
        }
        to_number(value)
    }
}

/// # Safety
/// `object` is a live object.
unsafe fn to_number(object: *mut PyObject) -> PyResult<i64> {
    // SAFETY: as the caller promises.
    unsafe {
        match PyLong_AsLongLong(object) {
            -1 if !PyErr_Occurred().is_null() => Err(Raised),
            number => Ok(number),
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
                let keep_idle_ns = to_number(keep)?.max(0) as u64;
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
        match server_argument(arguments, c"O:server_requests").and_then(request_rows) {
            Ok(rows) => rows.into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

fn request_rows(server: &Server) -> PyResult<Object> {
    let table = server.requests();
    // SAFETY: the list is new and ours; the tuple's items are new references that it takes over,
    // and `Py_BuildValue` gives them back if it fails.
    unsafe {
        let list = Object::from_new(PyList_New(0))?;
        for (path, row) in table.rows() {
            let known = row.gil_wait_count > 0;
            let wait = |share| percentile_ns(&row.gil_wait, share).filter(|_| known);
            let total_ns = row.gil_wait.read().sum_ns;
            let tuple = Object::from_new(Py_BuildValue(
                c"(NKKNNNNNKK)".as_ptr(),
                Object::from_latin1(path)?.into_ptr(),
                row.requests,
                row.errors,
                number_or_none(percentile_ns(&row.response, 0.5))?.into_ptr(),
                number_or_none(percentile_ns(&row.response, 0.99))?.into_ptr(),
                number_or_none(wait(0.5))?.into_ptr(),
                number_or_none(wait(0.99))?.into_ptr(),
                number_or_none(known.then_some(total_ns))?.into_ptr(),
                row.application_ns,
                row.cpu_ns,
            ))?;
            if PyList_Append(list.as_ptr(), tuple.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        Ok(list)
    }
}

fn number_or_none(number: Option<u64>) -> PyResult<Object> {
    // SAFETY: a new reference, or a live object.
    unsafe {
        match number {
            Some(number) => Object::from_new(PyLong_FromUnsignedLongLong(number)),
            None => Ok(Object::from_borrowed(Py_None())),
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
