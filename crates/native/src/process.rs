//! `_native.process_*`: what prctl(2) can say about the calling process, for `headway.server`.

use headway_python::object::{Object, raise};
use pyo3_ffi::*;
use std::ffi::{c_char, c_int, c_ulong};
use std::io::Error;
use std::ptr;

use crate::{Methods, method};

static METHODS: Methods<4> = Methods([
    method(
        c"process_set_name",
        set_name,
        c"process_set_name(name)\nThe first 15 bytes become what ps calls this thread, and the \
          process if it is the main one.",
    ),
    method(
        c"process_end_with_parent",
        end_with_parent,
        c"process_end_with_parent(signal)\nThis process gets the signal when the thread that \
          started it ends. Cleared by a change of user.",
    ),
    method(
        c"process_adopt_orphans",
        adopt_orphans,
        c"process_adopt_orphans()\nDescendants whose parent ends become children of this process.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn set_name(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut name: *const c_char = ptr::null();
    // SAFETY: the format has one place, for a C string that lives as long as the tuple.
    unsafe {
        if PyArg_ParseTuple(arguments, c"y:process_set_name".as_ptr(), &raw mut name) == 0 {
            return ptr::null_mut();
        }
        control(libc::PR_SET_NAME, name as c_ulong)
    }
}

unsafe extern "C" fn end_with_parent(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut number: c_int = 0;
    // SAFETY: the format has one place, for an int.
    unsafe {
        let format = c"i:process_end_with_parent".as_ptr();
        if PyArg_ParseTuple(arguments, format, &raw mut number) == 0 {
            return ptr::null_mut();
        }
        control(libc::PR_SET_PDEATHSIG, number as c_ulong)
    }
}

unsafe extern "C" fn adopt_orphans(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: the format has no place.
    unsafe {
        if PyArg_ParseTuple(arguments, c":process_adopt_orphans".as_ptr()) == 0 {
            return ptr::null_mut();
        }
        control(libc::PR_SET_CHILD_SUBREAPER, 1)
    }
}

/// # Safety
/// `argument` is what `operation` takes. Called attached.
unsafe fn control(operation: c_int, argument: c_ulong) -> *mut PyObject {
    // SAFETY: as the caller promises.
    unsafe {
        if libc::prctl(operation, argument, 0, 0, 0) < 0 {
            raise(PyExc_OSError, &Error::last_os_error().to_string());
            return ptr::null_mut();
        }
        Object::from_borrowed(Py_None()).into_ptr()
    }
}
