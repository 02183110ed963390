//! `_native.declares_no_gil`: what an extension module has declared of the GIL (PEP 703), for
//! `headway.server`. CPython keeps it for itself: where `-X gil=0` was given it heeds no such
//! declaration, and does not warn either.
//!
//! Called with a thread state attached.

use headway_python::object::{Object, raise};
use pyo3_ffi::*;
use std::ptr;

use crate::{Methods, method};

/// Of `moduleobject.h` since 3.13; `pyo3_ffi` names them for some versions only.
const SLOT_OF_GIL: i32 = 4;
const NOT_USED: usize = 1;

static METHODS: Methods<2> = Methods([
    method(
        c"declares_no_gil",
        declares_no_gil,
        c"declares_no_gil(module)\nWhether the extension module declares that it can run without \
          a GIL; None where that cannot be told.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

/// What follows the head of a `PyModuleObject` in the free-threaded builds of 3.13 and 3.14.
#[repr(C)]
struct Fields {
    dict: *mut PyObject,
    definition: *mut PyModuleDef,
    state: *mut libc::c_void,
    weak_references: *mut PyObject,
    name: *mut PyObject,
    gil: usize,
}

unsafe extern "C" fn declares_no_gil(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut module: *mut PyObject = ptr::null_mut();
    // SAFETY: the format has one place, for an object that the tuple keeps alive.
    unsafe {
        if PyArg_ParseTuple(arguments, c"O:declares_no_gil".as_ptr(), &raw mut module) == 0 {
            return ptr::null_mut();
        }
        if PyModule_Check(module) == 0 {
            raise(PyExc_TypeError, "declares_no_gil() takes a module");
            return ptr::null_mut();
        }
        let answer = match field_of(module).or_else(|| slot_of(module)) {
            Some(true) => Py_True(),
            Some(false) => Py_False(),
            None => Py_None(),
        };
        Object::from_borrowed(answer).into_ptr()
    }
}

/// What CPython has noted in the module, which is of the GIL where modules of one phase declare it.
///
/// # Safety
/// `module` is a live module. Called attached.
unsafe fn field_of(module: *mut PyObject) -> Option<bool> {
    if !cfg!(Py_GIL_DISABLED) {
        return None;
    }
    // SAFETY: a module is at least as large up to 3.14, and larger since. No field is believed
    // unless its neighbours are what the C API says that they are.
    unsafe {
        let fields = module.add(1).cast::<Fields>();
        let is_known = (*fields).dict == PyModule_GetDict(module)
            && (*fields).definition == PyModule_GetDef(module)
            && (*fields).state == PyModule_GetState(module);
        match (*fields).gil {
            gil @ (0 | NOT_USED) if is_known => Some(gil == NOT_USED),
            _ => None,
        }
    }
}

/// What the module's definition says, for modules of several phases; `None` for all others.
///
/// # Safety
/// `module` is a live module. Called attached.
unsafe fn slot_of(module: *mut PyObject) -> Option<bool> {
    // SAFETY: a definition outlives its modules, and its slots end with a zeroed one.
    unsafe {
        let definition = PyModule_GetDef(module);
        if definition.is_null() || (*definition).m_slots.is_null() {
            return None;
        }
        let mut slot = (*definition).m_slots;
        while (*slot).slot != 0 {
            if (*slot).slot == SLOT_OF_GIL {
                return Some((*slot).value as usize == NOT_USED);
            }
            slot = slot.add(1);
        }
        Some(false)
    }
}
