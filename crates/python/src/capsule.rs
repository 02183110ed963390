//! Capsules: Rust values that Python keeps.

use crate::attached::Attached;
use crate::c_api::*;
use crate::object::{Object, PyResult, Raised};
use crate::panics::barrier_without_exception;
use std::ffi::CStr;

/// A value that a capsule can hold. Python may use it from several threads.
///
/// # Safety
/// No other type has this name.
pub unsafe trait InCapsule: Send + Sync {
    const NAME: &'static CStr;
}

/// A capsule that owns `value`.
pub fn new<T: InCapsule>(py: Attached<'_>, value: T) -> PyResult<Object<'_>> {
    let value = Box::into_raw(Box::new(value));
    // SAFETY: the name is static, and `destroy` takes back what was given here, once.
    unsafe {
        let capsule = PyCapsule_New(value.cast(), T::NAME.as_ptr(), Some(destroy::<T>));
        Object::from_new(py, capsule).inspect_err(|Raised| drop(Box::from_raw(value)))
    }
}

/// The value in a capsule; ValueError if the object is not a capsule with this name.
pub fn value<'a, T: InCapsule>(capsule: &'a Object) -> PyResult<&'a T> {
    // SAFETY: a capsule of this name holds a `T` as long as it lives; for anything else an
    // exception is set and the pointer is null.
    unsafe {
        let pointer = PyCapsule_GetPointer(capsule.as_ptr(), T::NAME.as_ptr());
        pointer.cast::<T>().as_ref().ok_or(Raised)
    }
}

unsafe extern "C" fn destroy<T: InCapsule>(capsule: *mut PyObject) {
    // SAFETY: CPython calls it once, attached, with a capsule that `new` made.
    barrier_without_exception(|| unsafe {
        let pointer = PyCapsule_GetPointer(capsule, T::NAME.as_ptr());
        drop(Box::from_raw(pointer.cast::<T>()));
    });
}
