//! Functions and slots that CPython calls, written as safe Rust functions.
//!
//! Each is a zero-sized function item, so that a wrapper with CPython's signature can be made for
//! it at compile time. The wrapper makes the token, and lets no panic pass.

use crate::attached::Attached;
use crate::c_api::*;
use crate::object::{Object, PyResult, Raised};
use crate::panics::barrier;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};

/// An entry of a table of methods.
#[repr(transparent)]
pub struct Method(PyMethodDef);

/// The end of a table of methods.
pub const END: Method = Method(PyMethodDef::zeroed());

/// A table of methods, of which CPython keeps pointers.
pub struct Methods<const N: usize>([Method; N]);

// SAFETY: constant data, which CPython only reads.
unsafe impl<const N: usize> Sync for Methods<N> {}

impl<const N: usize> Methods<N> {
    /// One function or more, then `END`.
    pub const fn new(methods: [Method; N]) -> Self {
        assert!(N > 1 && methods[N - 1].0.ml_name.is_null());
        Self(methods)
    }

    pub fn as_ptr(&'static self) -> *mut PyMethodDef {
        self.0.as_ptr().cast_mut().cast()
    }

    /// A built-in function: the first entry, with `this` as its self.
    pub fn bind<'py>(&'static self, this: &Object<'py>) -> PyResult<Object<'py>> {
        // SAFETY: the definition is static, and the table has an entry before `END`.
        unsafe {
            let (module, class) = (ptr::null_mut(), ptr::null_mut());
            let function = PyCMethod_New(self.as_ptr(), this.as_ptr(), module, class);
            Object::from_new(this.py(), function)
        }
    }

    /// Whether `object` is a built-in function made by `bind`.
    pub fn is_bound_in(&'static self, object: &Object) -> bool {
        // SAFETY: the function of a built-in function object is compared with ours, not called.
        unsafe {
            PyCFunction_Check(object.as_ptr()) != 0
                && PyCFunction_GetFunction(object.as_ptr()).map(|function| function as usize)
                    == Some(self.0[0].0.ml_meth.PyCFunction as usize)
        }
    }
}

/// The self of a built-in function; `None` for other objects and for functions without one.
pub fn self_of_builtin<'py>(object: &Object<'py>) -> Option<Object<'py>> {
    // SAFETY: a live object, and a borrowed reference that the function keeps alive, or null.
    unsafe {
        if PyCFunction_Check(object.as_ptr()) == 0 {
            return None;
        }
        let this = PyCFunction_GetSelf(object.as_ptr());
        (!this.is_null()).then(|| Object::from_borrowed(object.py(), this))
    }
}

/// A module's function of positional arguments.
pub const fn function<F>(name: &'static CStr, call: F, doc: &'static CStr) -> Method
where
    F: for<'py> Fn(Attached<'py>, &[Object<'py>]) -> PyResult<Object<'py>> + Copy,
{
    unsafe extern "C" fn enter<F>(
        _: *mut PyObject,
        arguments: *mut *mut PyObject,
        count: Py_ssize_t,
    ) -> *mut PyObject
    where
        F: for<'py> Fn(Attached<'py>, &[Object<'py>]) -> PyResult<Object<'py>> + Copy,
    {
        // SAFETY: CPython calls attached, with `count` arguments that live until this returns.
        unsafe {
            barrier(ptr::null_mut(), |py| {
                let arguments = Object::borrow_array(py, arguments, count);
                to_pointer(instance::<F>()(py, arguments))
            })
        }
    }
    forget(call);
    fast(name, enter::<F>, doc)
}

/// A method of positional arguments.
pub const fn method<F>(name: &'static CStr, call: F, doc: &'static CStr) -> Method
where
    F: for<'py> Fn(&Object<'py>, &[Object<'py>]) -> PyResult<Object<'py>> + Copy,
{
    unsafe extern "C" fn enter<F>(
        this: *mut PyObject,
        arguments: *mut *mut PyObject,
        count: Py_ssize_t,
    ) -> *mut PyObject
    where
        F: for<'py> Fn(&Object<'py>, &[Object<'py>]) -> PyResult<Object<'py>> + Copy,
    {
        // SAFETY: CPython calls attached, with an object and `count` arguments that live until this
        // returns.
        unsafe {
            barrier(ptr::null_mut(), |py| {
                let arguments = Object::borrow_array(py, arguments, count);
                to_pointer(instance::<F>()(Object::borrow(py, &this), arguments))
            })
        }
    }
    forget(call);
    fast(name, enter::<F>, doc)
}

const fn fast(name: &'static CStr, enter: PyCFunctionFast, doc: &'static CStr) -> Method {
    Method(PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFast: enter },
        ml_flags: METH_FASTCALL,
        ml_doc: doc.as_ptr(),
    })
}

/// A method of one argument.
pub const fn method_of_one<F>(name: &'static CStr, call: F, doc: &'static CStr) -> Method
where
    F: for<'py> Fn(&Object<'py>, &Object<'py>) -> PyResult<Object<'py>> + Copy,
{
    unsafe extern "C" fn enter<F>(this: *mut PyObject, argument: *mut PyObject) -> *mut PyObject
    where
        F: for<'py> Fn(&Object<'py>, &Object<'py>) -> PyResult<Object<'py>> + Copy,
    {
        // SAFETY: CPython calls attached, with two objects that live until this returns.
        unsafe {
            barrier(ptr::null_mut(), |py| {
                let argument = Object::borrow(py, &argument);
                to_pointer(instance::<F>()(Object::borrow(py, &this), argument))
            })
        }
    }
    forget(call);
    plain(name, enter::<F>, METH_O, doc)
}

/// A method without arguments.
pub const fn method_of_none<F>(name: &'static CStr, call: F, doc: &'static CStr) -> Method
where
    F: for<'py> Fn(&Object<'py>) -> PyResult<Object<'py>> + Copy,
{
    unsafe extern "C" fn enter<F>(this: *mut PyObject, _: *mut PyObject) -> *mut PyObject
    where
        F: for<'py> Fn(&Object<'py>) -> PyResult<Object<'py>> + Copy,
    {
        // SAFETY: CPython calls attached, with an object that lives until this returns.
        unsafe {
            barrier(ptr::null_mut(), |py| to_pointer(instance::<F>()(Object::borrow(py, &this))))
        }
    }
    forget(call);
    plain(name, enter::<F>, METH_NOARGS, doc)
}

const fn plain(
    name: &'static CStr,
    enter: PyCFunction,
    flags: c_int,
    doc: &'static CStr,
) -> Method {
    Method(PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunction: enter },
        ml_flags: flags,
        ml_doc: doc.as_ptr(),
    })
}

/// The function of a slot such as `Py_tp_iternext`: null without an exception stands for `None`.
pub fn unary<F>(call: F) -> *mut c_void
where
    F: for<'py> Fn(&Object<'py>) -> PyResult<Option<Object<'py>>> + Copy,
{
    unsafe extern "C" fn enter<F>(this: *mut PyObject) -> *mut PyObject
    where
        F: for<'py> Fn(&Object<'py>) -> PyResult<Option<Object<'py>>> + Copy,
    {
        // SAFETY: CPython calls attached, with an object that lives until this returns.
        unsafe {
            barrier(ptr::null_mut(), |py| {
                let result = instance::<F>()(Object::borrow(py, &this));
                result.ok().flatten().map_or(ptr::null_mut(), Object::into_ptr)
            })
        }
    }
    forget(call);
    enter::<F> as *mut c_void
}

/// The function of `Py_mod_exec`.
pub const fn execution<F>(call: F) -> unsafe extern "C" fn(*mut PyObject) -> c_int
where
    F: for<'py> Fn(&Object<'py>) -> PyResult<()> + Copy,
{
    unsafe extern "C" fn enter<F>(module: *mut PyObject) -> c_int
    where
        F: for<'py> Fn(&Object<'py>) -> PyResult<()> + Copy,
    {
        // SAFETY: CPython calls attached, with a module that lives until this returns.
        unsafe {
            barrier(-1, |py| match instance::<F>()(Object::borrow(py, &module)) {
                Ok(()) => 0,
                Err(Raised) => -1,
            })
        }
    }
    forget(call);
    enter::<F>
}

/// The value of a function item's type, of which one was made: see `forget`.
fn instance<F: Copy>() -> F {
    // SAFETY: `forget` has checked at compile time that the type has no size, and was given a value
    // of it, which can be copied: so there is one, and it has no bytes to read.
    unsafe { NonNull::<F>::dangling().read() }
}

const fn forget<F: Copy>(_: F) {
    const { assert!(size_of::<F>() == 0) };
}

fn to_pointer(result: PyResult<Object>) -> *mut PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}
