//! `_native.stacks_*`: Python stacks of threads, without the GIL; see `headway.stacks`.

use headway_reporter::stacks;
use headway_server::wsgi::object::{Object, raise, without_gil};
use pyo3_ffi::*;
use std::ffi::c_uint;
use std::ptr;
use std::time::Duration;

use crate::{Methods, method};

static METHODS: Methods<4> = Methods([
    method(
        c"stacks_open",
        open,
        c"stacks_open() -> (signal, fd)\n\
          A signal that nobody handles, and where to write the stack of the thread that gets it. OSError\n\
          if there is none. Both are kept.",
    ),
    method(
        c"stacks_register",
        register,
        c"stacks_register() -> bool\n\
          Stacks can be read from now on, if faulthandler is registered for what stacks_open returned.",
    ),
    method(
        c"stacks_read",
        read,
        c"stacks_read(native_id, patience_ns) -> str\n\
          The Python stack of another thread, one line per call, most recent call first. RuntimeError\n\
          says why there is none.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn open(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: an exception class of this interpreter; the format takes two ints.
    unsafe {
        match stacks::open() {
            Ok((signal, fd)) => Py_BuildValue(c"(ii)".as_ptr(), signal, fd),
            Err(error) => {
                raise(PyExc_OSError, &error.to_string());
                ptr::null_mut()
            }
        }
    }
}

unsafe extern "C" fn register(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: attached, as any function that Python calls.
    unsafe { PyBool_FromLong(stacks::register(state_key()).is_ok().into()) }
}

/// The pthread key under which CPython finds a thread's state, up to 3.11: a thread that has states in
/// several interpreters keeps the first one there. From 3.12 on it is the one that is attached.
fn state_key() -> Option<u32> {
    #[cfg(Py_3_12)]
    return None;
    #[cfg(not(Py_3_12))]
    // SAFETY: attached. Keys that were never made have no value; one that has this value is given it
    // back at once, and it is CPython's if that finds none meanwhile.
    unsafe {
        const PTHREAD_KEYS_MAX: u32 = 1024;
        let state = PyGILState_GetThisThreadState();
        (0..PTHREAD_KEYS_MAX).find(|&key| {
            if state.is_null() || libc::pthread_getspecific(key) != state.cast() {
                return false;
            }
            libc::pthread_setspecific(key, ptr::null());
            let is_key = PyGILState_GetThisThreadState().is_null();
            libc::pthread_setspecific(key, state.cast());
            is_key
        })
    }
}

unsafe extern "C" fn read(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut native_id, mut patience_ns): (c_uint, u64) = (0, 0);
    // SAFETY: the format matches the places that follow it; the message's pointer and length are valid.
    unsafe {
        let format = c"IK:stacks_read".as_ptr();
        if PyArg_ParseTuple(arguments, format, &raw mut native_id, &raw mut patience_ns) == 0 {
            return ptr::null_mut();
        }
        let patience = Duration::from_nanos(patience_ns);
        match without_gil(|| stacks::read(native_id, patience)) {
            Ok(stack) => Object::from_latin1(stack.calls.as_bytes())
                .map_or(ptr::null_mut(), Object::into_ptr),
            Err(missing) => {
                raise(PyExc_RuntimeError, missing.as_str());
                ptr::null_mut()
            }
        }
    }
}
