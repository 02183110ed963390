//! `wsgi.input`: read, readline, readlines and iteration, as PEP 3333 asks ("Input and Error
//! Streams"). It ends where the body ends, whatever its framing (`wsgi.input_terminated`).

use crate::request::{Broken, Exchange};
use crate::wsgi::handle::{Methods, borrow, to_pointer};
use headway_python::object::{Object, PyResult, raise, type_name, without_gil};
use pyo3_ffi::*;
use std::ptr;

static METHODS: Methods<4> = Methods([
    PyMethodDef {
        ml_name: c"read".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFast: read },
        ml_flags: METH_FASTCALL,
        ml_doc: c"read(size=-1): up to size bytes, or all; waits for them.".as_ptr(),
    },
    PyMethodDef {
        ml_name: c"readline".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFast: readline },
        ml_flags: METH_FASTCALL,
        ml_doc: c"readline(size=-1): a line, its end included, or its first size bytes.".as_ptr(),
    },
    PyMethodDef {
        ml_name: c"readlines".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFast: readlines },
        ml_flags: METH_FASTCALL,
        ml_doc: c"readlines(hint=-1): lines until hint bytes are reached, or all.".as_ptr(),
    },
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn read(
    handle: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython calls with an instance and `count` arguments.
    to_pointer(unsafe { size_argument(arguments, count, "read") }.and_then(|size| {
        // SAFETY: a method of the type.
        let mut borrowed = unsafe { borrow(handle)? };
        let exchange = &mut *borrowed.get().exchange;
        let wanted = size.unwrap_or(usize::MAX);
        while exchange.body().len() < wanted {
            if !receive_more(exchange)? {
                break;
            }
        }
        take(exchange, wanted)
    }))
}

unsafe extern "C" fn readline(
    handle: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython calls with an instance and `count` arguments.
    to_pointer(unsafe {
        size_argument(arguments, count, "readline")
            .and_then(|size| read_line(handle, size.unwrap_or(usize::MAX)))
    })
}

unsafe extern "C" fn readlines(
    handle: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython calls with an instance and `count` arguments; the list is new and ours.
    to_pointer(unsafe {
        size_argument(arguments, count, "readlines").and_then(|hint| {
            let lines = Object::from_new(PyList_New(0))?;
            let mut total = 0;
            // A hint of 0 means no limit, as for files.
            let enough = hint.filter(|hint| *hint > 0).unwrap_or(usize::MAX);
            while total < enough {
                let line = read_line(handle, usize::MAX)?;
                let length = PyBytes_Size(line.as_ptr()) as usize;
                if length == 0 {
                    break;
                }
                total += length;
                if PyList_Append(lines.as_ptr(), line.as_ptr()) < 0 {
                    return Err(headway_python::object::Raised);
                }
            }
            Ok(lines)
        })
    })
}

/// `__iter__`
///
/// # Safety
/// Called by CPython with an instance of the handle type, attached.
pub unsafe extern "C" fn iterate(handle: *mut PyObject) -> *mut PyObject {
    // SAFETY: a live instance.
    unsafe { Object::from_borrowed(handle).into_ptr() }
}

/// `__next__`: a line; null without an exception at the end.
///
/// # Safety
/// As `iterate`.
pub unsafe extern "C" fn next_line(handle: *mut PyObject) -> *mut PyObject {
    // SAFETY: a live instance; a line is a bytes object.
    unsafe {
        match read_line(handle, usize::MAX) {
            Ok(line) if PyBytes_Size(line.as_ptr()) == 0 => ptr::null_mut(),
            result => to_pointer(result),
        }
    }
}

/// # Safety
/// `handle` is an instance of the handle type.
unsafe fn read_line(handle: *mut PyObject, wanted: usize) -> PyResult<Object> {
    // SAFETY: as the caller promises.
    let mut borrowed = unsafe { borrow(handle)? };
    let exchange = &mut *borrowed.get().exchange;
    let mut sought = 0;
    loop {
        let body = exchange.body();
        if let Some(at) = memchr::memchr(b'\n', &body[sought..]) {
            let length = sought + at + 1;
            return take(exchange, length.min(wanted));
        }
        sought = body.len();
        if sought >= wanted || !receive_more(exchange)? {
            return take(exchange, wanted);
        }
    }
}

/// Takes up to `wanted` bytes of what is here.
fn take(exchange: &mut Exchange, wanted: usize) -> PyResult<Object> {
    let length = exchange.body().len().min(wanted);
    let bytes = Object::from_bytes(&exchange.body()[..length])?;
    exchange.consume_body(length);
    Ok(bytes)
}

/// Gets more of the body: what is already received, else by waiting without the GIL. False at
/// the end of the body. What goes wrong with the client is an OSError.
fn receive_more(exchange: &mut Exchange) -> PyResult<bool> {
    loop {
        let result = match exchange.decode_body() {
            Ok(true) => return Ok(true),
            Ok(false) if exchange.is_body_complete() => return Ok(false),
            Ok(false) => without_gil(|| exchange.receive_body()),
            Err(broken) => Err(broken),
        };
        if let Err(broken) = result {
            // SAFETY: exception classes of this interpreter.
            return Err(unsafe {
                match broken {
                    Broken::PeerGone => raise(
                        PyExc_ConnectionResetError,
                        "the client closed the connection before its request was complete",
                    ),
                    Broken::TimedOut => {
                        raise(PyExc_TimeoutError, "the client did not send its request in time")
                    }
                    Broken::Interrupted => raise(
                        PyExc_TimeoutError,
                        "the client did not send its request within request-timeout",
                    ),
                    Broken::Malformed(rejection) => {
                        raise(PyExc_OSError, &rejection.explanation(exchange.limits()))
                    }
                }
            });
        }
    }
}

/// The one optional argument: `None` or a negative number mean no limit.
///
/// # Safety
/// `arguments` points to `count` live objects.
unsafe fn size_argument(
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
    name: &str,
) -> PyResult<Option<usize>> {
    // SAFETY: as the caller promises; the class is this interpreter's.
    unsafe {
        if count > 1 {
            let message = format!("{name}() takes at most 1 argument ({count} given)");
            return Err(raise(PyExc_TypeError, &message));
        }
        if count == 0 || Py_IsNone(*arguments) != 0 {
            return Ok(None);
        }
        let argument = *arguments;
        if PyIndex_Check(argument) == 0 {
            let found = type_name(argument);
            let message = format!("{name}() takes an int or None, not {found}");
            return Err(raise(PyExc_TypeError, &message));
        }
        let size = PyNumber_AsSsize_t(argument, PyExc_OverflowError);
        if size == -1 && !PyErr_Occurred().is_null() {
            return Err(headway_python::object::Raised);
        }
        Ok(usize::try_from(size).ok())
    }
}
