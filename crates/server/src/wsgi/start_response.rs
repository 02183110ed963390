//! `start_response` and `write` (PEP 3333, "The start_response() Callable").

use crate::http::response::InvalidResponse;
use crate::wsgi::call::make_room;
use crate::wsgi::handle::{InFlight, Methods, bind, borrow, to_pointer};
use headway_python::object::{
    Object, PyResult, Raised, bytes_of, raise, type_name, with_latin1, without_gil,
};
use pyo3_ffi::*;

static START_RESPONSE: Methods<1> = Methods([PyMethodDef {
    ml_name: c"start_response".as_ptr(),
    ml_meth: PyMethodDefPointer { PyCFunctionFast: start_response },
    ml_flags: METH_FASTCALL,
    ml_doc: c"start_response(status, response_headers, exc_info=None): see PEP 3333.".as_ptr(),
}]);

static WRITE: Methods<1> = Methods([PyMethodDef {
    ml_name: c"write".as_ptr(),
    ml_meth: PyMethodDefPointer { PyCFunction: write },
    ml_flags: METH_O,
    ml_doc: c"write(body_data): sends a block of the body at once; see PEP 3333.".as_ptr(),
}]);

pub fn make_start_response(handle: &Object) -> PyResult<Object> {
    // SAFETY: a static definition and a live handle.
    unsafe { bind(START_RESPONSE.0.as_ptr().cast_mut(), handle.as_ptr()) }
}

unsafe extern "C" fn start_response(
    handle: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython calls with `count` arguments and the handle that the function is bound to.
    to_pointer(unsafe { start(handle, arguments_in(arguments, count)) })
}

/// # Safety
/// `arguments` points to `count` live objects that outlive the slice; it may be null if `count` is
/// 0, as where CPython calls without arguments (`_PyObject_CallNoArgs`).
unsafe fn arguments_in<'a>(
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> &'a [*mut PyObject] {
    match count {
        // A slice's pointer is never null.
        0 => &[],
        // SAFETY: as the caller promises.
        _ => unsafe { std::slice::from_raw_parts(arguments, count as usize) },
    }
}

/// # Safety
/// `handle` is an instance of the handle type, the arguments are live objects.
unsafe fn start(handle: *mut PyObject, arguments: &[*mut PyObject]) -> PyResult<Object> {
    // SAFETY: as the caller promises; exception classes are this interpreter's.
    unsafe {
        let (status, headers, exc_info) = match *arguments {
            [status, headers] => (status, headers, None),
            [status, headers, none] if Py_IsNone(none) != 0 => (status, headers, None),
            [status, headers, exc_info] => (status, headers, Some(exc_info)),
            _ => {
                let message =
                    format!("start_response() takes 2 or 3 arguments ({} given)", arguments.len());
                return Err(raise(PyExc_TypeError, &message));
            }
        };
        let mut borrowed = borrow(handle)?;
        let request = borrowed.get();
        match exc_info {
            Some(exc_info) if request.exchange.is_head_sent() => return Err(reraise(exc_info)),
            Some(_) => {}
            None if request.started => {
                return Err(raise(
                    PyExc_AssertionError,
                    "start_response() was called before; only an error handler may call it \
                     again, with exc_info",
                ));
            }
            None => {}
        }
        request.started = false;
        take_status(request, status)?;
        take_headers(request, headers)?;
        request.started = true;
        if let Some(sighting) = request.sighting {
            sighting.note_start();
        }
        bind(WRITE.0.as_ptr().cast_mut(), handle)
    }
}

/// # Safety
/// `status` is a live object.
unsafe fn take_status(request: &mut InFlight, status: *mut PyObject) -> PyResult<()> {
    // SAFETY: as the caller promises.
    unsafe {
        with_latin1(status, "the status", |bytes| {
            request
                .response
                .begin(bytes)
                .map_err(|invalid| refuse(invalid, &String::from_utf8_lossy(bytes)))
        })
    }
}

/// # Safety
/// `headers` is a live object.
unsafe fn take_headers(request: &mut InFlight, headers: *mut PyObject) -> PyResult<()> {
    // SAFETY: a live list; its items are new references, so that another thread that changes the
    // list cannot take them away. Tuples do not change.
    unsafe {
        if PyList_Check(headers) == 0 {
            let found = type_name(headers);
            let message = format!("the response headers must be a list, not {found}");
            return Err(raise(PyExc_TypeError, &message));
        }
        for index in 0..PyList_Size(headers) {
            let item = Object::from_new(compat::PyList_GetItemRef(headers, index))?;
            let pair = item.as_ptr();
            if PyTuple_Check(pair) == 0 || PyTuple_Size(pair) != 2 {
                let found = type_name(pair);
                let message =
                    format!("response header {index} must be a (name, value) tuple, not {found}");
                return Err(raise(PyExc_TypeError, &message));
            }
            let (name, value) = (PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
            with_latin1(name, "a header name", |name| {
                with_latin1(value, "a header value", |value| {
                    request.response.push_field(name, value).map_err(|invalid| {
                        let text = [name, b": ", value].concat();
                        refuse(invalid, &String::from_utf8_lossy(&text))
                    })
                })
            })?;
        }
        Ok(())
    }
}

fn refuse(invalid: InvalidResponse, found: &str) -> Raised {
    // SAFETY: an exception class of this interpreter.
    unsafe { raise(PyExc_ValueError, &format!("{found:?}: {}", invalid.expected())) }
}

/// Raises what `exc_info` describes: the head is out, so nothing can be replaced.
///
/// # Safety
/// `exc_info` is a live object.
unsafe fn reraise(exc_info: *mut PyObject) -> Raised {
    // SAFETY: as the caller promises; the tuple keeps its items alive.
    unsafe {
        if PyTuple_Check(exc_info) == 0 || PyTuple_Size(exc_info) != 3 {
            return raise(PyExc_TypeError, "exc_info must be a (type, value, traceback) tuple");
        }
        let (class, value, traceback) = (
            PyTuple_GetItem(exc_info, 0),
            PyTuple_GetItem(exc_info, 1),
            PyTuple_GetItem(exc_info, 2),
        );
        if PyExceptionClass_Check(class) == 0 {
            return raise(PyExc_TypeError, "exc_info does not begin with an exception class");
        }
        if PyExceptionInstance_Check(value) != 0 && PyTraceBack_Check(traceback) != 0 {
            PyException_SetTraceback(value, traceback);
        }
        PyErr_SetObject(class, value);
        Raised
    }
}

unsafe extern "C" fn write(handle: *mut PyObject, block: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with the handle that the function is bound to and one live argument,
    // which the caller holds until this returns.
    to_pointer(unsafe {
        borrow(handle).and_then(|mut borrowed| {
            write_block(borrowed.get(), block)?;
            Ok(Object::from_borrowed(Py_None()))
        })
    })
}

/// # Safety
/// `block` is a live object.
unsafe fn write_block(request: &mut InFlight, block: *mut PyObject) -> PyResult<()> {
    // SAFETY: as the caller promises; exception classes are this interpreter's.
    unsafe {
        let bytes = check_block(block)?;
        // The first call sends the head, whatever its block; only an iterable's head waits for content.
        let is_first = !request.exchange.is_head_sent();
        if bytes.is_empty() && !is_first {
            return Ok(());
        }
        make_room(request.exchange, bytes.len())?;
        if is_first {
            request.exchange.send_head(request.response, None);
        }
        let (taken, transmitted) =
            without_gil(|| (request.exchange.send_data(bytes), request.exchange.transmit()));
        if transmitted.is_err() {
            return Err(raise(PyExc_ConnectionResetError, "the client is gone"));
        }
        if taken < bytes.len() && !request.exchange.is_bodiless() {
            return Err(raise(PyExc_ValueError, "write() past the Content-Length"));
        }
        Ok(())
    }
}

/// The bytes of a block of the body; TypeError for anything else than bytes.
///
/// # Safety
/// `block` is a live object and outlives the slice.
pub unsafe fn check_block<'a>(block: *mut PyObject) -> PyResult<&'a [u8]> {
    // SAFETY: as the caller promises.
    unsafe {
        if PyBytes_Check(block) == 0 {
            let message = format!("the body must consist of bytes, not {}", type_name(block));
            return Err(raise(PyExc_TypeError, &message));
        }
        Ok(bytes_of(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpython_calls_without_arguments_with_null() {
        // SAFETY: no arguments.
        assert!(unsafe { arguments_in(std::ptr::null_mut(), 0) }.is_empty());
    }
}
