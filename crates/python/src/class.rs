//! Types whose instances hold Rust data.

use crate::attached::Attached;
use crate::c_api::*;
use crate::object::{Object, PyResult};
use crate::panics::barrier_without_exception;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

/// The memory of an instance: CPython's head, then the data.
#[repr(C)]
pub struct Instance<T> {
    base: PyObject,
    pub data: T,
}

/// A slot of a type and its function or table.
pub type Slot = (c_int, *mut c_void);

/// Makes a type for one interpreter. It cannot be subclassed.
///
/// # Safety
/// Each slot's pointer is what CPython expects there. Zero bytes are a valid `T` that needs no
/// drop. With Py_TPFLAGS_HAVE_GC among the flags, the slots traverse, clear and deallocate;
/// otherwise this function adds the slot that deallocates.
pub unsafe fn make<'py, T>(
    py: Attached<'py>,
    name: &'static CStr,
    doc: &'static CStr,
    flags: std::ffi::c_ulong,
    slots: &[Slot],
) -> PyResult<Object<'py>> {
    let mut all = vec![PyType_Slot { slot: Py_tp_doc, pfunc: doc.as_ptr() as *mut c_void }];
    if flags & Py_TPFLAGS_HAVE_GC == 0 {
        all.push(PyType_Slot { slot: Py_tp_dealloc, pfunc: deallocate as *mut c_void });
    }
    all.extend(slots.iter().map(|(slot, pointer)| PyType_Slot { slot: *slot, pfunc: *pointer }));
    all.push(PyType_Slot { slot: 0, pfunc: ptr::null_mut() });
    let mut spec = PyType_Spec {
        name: name.as_ptr(),
        basicsize: size_of::<Instance<T>>() as c_int,
        itemsize: 0,
        flags: (Py_TPFLAGS_DEFAULT | flags) as u32,
        slots: all.as_mut_ptr(),
    };
    // SAFETY: the spec and its slots live through the call, which copies them; the rest is the
    // caller's promise.
    unsafe { Object::from_new(py, PyType_FromSpec(&mut spec)) }
}

/// A new instance, whose data is zero bytes.
///
/// # Safety
/// `class` is a type that `make` made.
pub unsafe fn instantiate<'py>(class: &Object<'py>) -> PyResult<Object<'py>> {
    // SAFETY: a live type.
    unsafe { Object::from_new(class.py(), PyType_GenericAlloc(class.as_ptr().cast(), 0)) }
}

/// # Safety
/// `instance` is an instance of a type that `make::<T>` made.
pub unsafe fn data<'a, T>(instance: &'a Object) -> &'a T {
    // SAFETY: the caller's; the data lives as long as the instance.
    unsafe { &(*instance.as_ptr().cast::<Instance<T>>()).data }
}

/// Frees an instance that holds no references. Instances of heap types hold one to their type.
///
/// # Safety
/// CPython calls it once, when the last reference is gone.
pub unsafe extern "C" fn deallocate(object: *mut PyObject) {
    // SAFETY: the caller's.
    barrier_without_exception(|| unsafe {
        let class = Py_TYPE(object);
        if let Some(free) = (*class).tp_free {
            free(object.cast());
        }
        Py_DECREF(class.cast());
    });
}
