//! `_native.refcount_*`: native threads that count references, in one of several ways, and how long that takes.

use headway_python::object::{Object, PyResult, Raised, raise, without_gil};
use headway_refcounts::{Found, Kind, MAX_THREADS};
use pyo3_ffi::*;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::ptr;

use crate::{Methods, method};

static METHODS: Methods<3> = Methods([
    method(
        c"refcount_kinds",
        kinds,
        c"refcount_kinds() -> list of str\nThe kinds that refcount_measure knows.",
    ),
    method(
        c"refcount_measure",
        measure,
        c"refcount_measure(kind, threads, pairs, shared) -> (ns, wrong_by)\n\
          So many native threads each increment and decrement a count so often: of one object, or\n\
          each of its own. How long all of it took, and by how much counts are wrong at its end. The\n\
          GIL is dropped meanwhile.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn kinds(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    names().map_or(ptr::null_mut(), Object::into_ptr)
}

fn names() -> PyResult<Object> {
    // SAFETY: attached, as any function that Python calls; the list keeps its own references.
    unsafe {
        let list = Object::from_new(PyList_New(0))?;
        for kind in Kind::ALL {
            let name = kind.name();
            let name = PyUnicode_FromStringAndSize(name.as_ptr().cast(), name.len() as Py_ssize_t);
            let name = Object::from_new(name)?;
            if PyList_Append(list.as_ptr(), name.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        Ok(list)
    }
}

unsafe extern "C" fn measure(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut name, mut threads, mut pairs, mut shared): (
        *const c_char,
        c_uint,
        c_ulonglong,
        c_int,
    ) = (ptr::null(), 0, 0, 0);
    // SAFETY: the format matches the places that follow it; the name lives as long as the tuple. Of
    // Python's, `Kind::measure` touches nothing.
    unsafe {
        let format = c"sIKp:refcount_measure".as_ptr();
        if PyArg_ParseTuple(
            arguments,
            format,
            &raw mut name,
            &raw mut threads,
            &raw mut pairs,
            &raw mut shared,
        ) == 0
        {
            return ptr::null_mut();
        }
        let name = CStr::from_ptr(name).to_string_lossy();
        let Some(kind) = Kind::parse(&name) else {
            let known = Kind::ALL.map(Kind::name).join(", ");
            raise(PyExc_ValueError, &format!("kind {name:?}: there are {known}"));
            return ptr::null_mut();
        };
        let threads = threads as usize;
        if !(1..=MAX_THREADS).contains(&threads) {
            let message = format!("threads: found {threads}; there may be 1 to {MAX_THREADS}");
            raise(PyExc_ValueError, &message);
            return ptr::null_mut();
        }
        let Found { ns, wrong_by } = without_gil(|| kind.measure(threads, pairs, shared != 0));
        Py_BuildValue(c"(KK)".as_ptr(), ns, wrong_by)
    }
}
