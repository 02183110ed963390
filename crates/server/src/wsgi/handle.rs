//! The Python object behind a request: `wsgi.input`, and what `start_response` and `write` are
//! bound to.
//!
//! An application may keep these objects beyond the request or use them from other threads, so
//! the object does not own the request: it lends it out to one method at a time and forgets it
//! when the request is over.

use super::input;
use crate::http::Response;
use crate::request::Exchange;
use crate::wsgi::route::Sighting;
use headway_python::object::{Object, PyResult, Raised, raise, without_gil};
use pyo3_ffi::*;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

/// A request while its application runs. Lives on the stack of the worker thread.
pub struct InFlight<'a, 'b> {
    pub exchange: &'a mut Exchange<'b>,
    pub response: &'a mut Response,
    /// `start_response` was called.
    pub started: bool,
    /// What is to see that it is.
    pub sighting: Option<&'a Sighting>,
}

/// The object's memory. `lent` is one atomic word:
///
/// | value | state |
/// |---|---|
/// | null | over: the request has ended |
/// | `BORROWED` | a method, in whatever thread, uses the request |
/// | else | free: the request may be borrowed |
///
/// Writers: methods (free to BORROWED and back), the worker thread (free to null). AcqRel, since
/// it hands the request from thread to thread.
#[repr(C)]
pub struct HandleObject {
    base: PyObject,
    lent: AtomicPtr<c_void>,
}

const BORROWED: *mut c_void = ptr::without_provenance_mut(1);

/// The request, borrowed; returned to the object when dropped.
pub struct Borrowed {
    lent: *const AtomicPtr<c_void>,
    request: *mut c_void,
}

impl Borrowed {
    pub fn get(&mut self) -> &mut InFlight<'_, '_> {
        // SAFETY: the pointer was put there by `Handle::lend`, is valid until `end`, and `end`
        // waits while it is borrowed. The word makes this the only reference. The lifetimes are
        // those of the borrow.
        unsafe { &mut *self.request.cast() }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: the object outlives the method that borrowed from it.
        unsafe { (*self.lent).store(self.request, Release) };
    }
}

/// Borrows the request behind `handle`.
///
/// # Safety
/// `handle` is an instance of a type that `make_type` made.
pub unsafe fn borrow(handle: *mut PyObject) -> PyResult<Borrowed> {
    // SAFETY: as the caller promises.
    let lent = unsafe { &(*handle.cast::<HandleObject>()).lent };
    let mut request = lent.load(Acquire);
    loop {
        // SAFETY: exception classes of this interpreter.
        unsafe {
            if request.is_null() {
                return Err(raise(PyExc_RuntimeError, "this request is over"));
            }
            if request == BORROWED {
                return Err(raise(PyExc_RuntimeError, "another thread is using this request"));
            }
        }
        match lent.compare_exchange_weak(request, BORROWED, AcqRel, Acquire) {
            Ok(_) => return Ok(Borrowed { lent, request }),
            Err(current) => request = current,
        }
    }
}

/// The worker's side of the object.
pub struct Handle(pub Object);

impl Handle {
    pub fn new(handle_type: &Object) -> PyResult<Self> {
        // SAFETY: a live type; its memory comes zeroed, so `lent` is null.
        unsafe { Object::from_new(PyType_GenericAlloc(handle_type.as_ptr().cast(), 0)).map(Self) }
    }

    fn lent(&self) -> &AtomicPtr<c_void> {
        // SAFETY: made by `new`.
        unsafe { &(*self.0.as_ptr().cast::<HandleObject>()).lent }
    }

    /// Lends the request out until `end`.
    ///
    /// # Safety
    /// The caller calls `end` before `request` moves or dies, and does not touch it in between
    /// except through `borrow`.
    pub unsafe fn lend(&self, request: &mut InFlight) {
        self.lent().store(ptr::from_mut(request).cast(), Release);
    }

    /// Makes the object forget the request. Waits, without the GIL, for another thread that uses
    /// it right now.
    pub fn end(&self) {
        let mut request = self.lent().load(Acquire);
        while !request.is_null() {
            if request == BORROWED {
                without_gil(|| std::thread::sleep(Duration::from_micros(100)));
                request = self.lent().load(Acquire);
                continue;
            }
            match self.lent().compare_exchange_weak(request, ptr::null_mut(), AcqRel, Acquire) {
                Ok(_) => return,
                Err(current) => request = current,
            }
        }
    }
}

/// Makes the object's type, for one interpreter.
pub fn make_type() -> PyResult<Object> {
    let mut slots = [
        PyType_Slot { slot: Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        PyType_Slot { slot: Py_tp_methods, pfunc: input::methods().cast() },
        PyType_Slot { slot: Py_tp_iter, pfunc: input::iterate as *mut c_void },
        PyType_Slot { slot: Py_tp_iternext, pfunc: input::next_line as *mut c_void },
        PyType_Slot { slot: Py_tp_doc, pfunc: c"The body of a request.".as_ptr() as *mut c_void },
        PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    let mut spec = PyType_Spec {
        name: c"headway.server.Input".as_ptr(),
        basicsize: size_of::<HandleObject>() as c_int,
        itemsize: 0,
        flags: (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec and its slots live through the call, which copies them; the method table
    // is static.
    unsafe { Object::from_new(PyType_FromSpec(&mut spec)) }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: called once by CPython when the last reference is gone. Instances of heap types
    // hold a reference to their type.
    unsafe {
        let class = Py_TYPE(object);
        if let Some(free) = (*class).tp_free {
            free(object.cast());
        }
        Py_DECREF(class.cast());
    }
}

/// A bound builtin function, `method` with `handle` as its self.
///
/// # Safety
/// `method` is static, `handle` a live instance of a type that `make_type` made.
pub unsafe fn bind(method: *mut PyMethodDef, handle: *mut PyObject) -> PyResult<Object> {
    // SAFETY: as the caller promises.
    unsafe { Object::from_new(PyCFunction_NewEx(method, handle, ptr::null_mut())) }
}

/// Turns a result into what a C function returns.
pub fn to_pointer(result: PyResult<Object>) -> *mut PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// A method table that CPython keeps pointers into.
pub struct Methods<const N: usize>(pub [PyMethodDef; N]);

// SAFETY: constant data; CPython reads it only.
unsafe impl<const N: usize> Sync for Methods<N> {}
