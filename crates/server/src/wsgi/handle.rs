//! The Python object behind a request: `wsgi.input`, and the self of `start_response` and `write`.
//!
//! An application may keep these objects beyond the request or use them from other threads. So the
//! object does not own the request: it lends the request to one method at a time, and forgets it
//! when the request ends.

use crate::http::Response;
use crate::request::RequestContext;
use crate::wsgi::route::RouteProbe;
use headway_python::attached::Attached;
use headway_python::class;
use headway_python::exception::Exception;
use headway_python::object::{Object, PyResult};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

/// A request while its application runs. It lives on the stack of the worker thread.
pub struct InFlight<'a, 'b> {
    pub context: &'a mut RequestContext<'b>,
    pub response: &'a mut Response,
    /// `start_response` was called.
    pub started: bool,
    /// Notes what the environ has when `start_response` is called.
    pub probe: Option<&'a RouteProbe>,
}

/// The data of a handle: a pointer to the request.
///
/// | value | state |
/// |---|---|
/// | null | over: the request has ended |
/// | `BORROWED` | a method, in any thread, uses the request |
/// | else | free: the request may be borrowed |
///
/// Writers: methods (free to BORROWED and back), the worker thread (free to null). AcqRel, since
/// it hands the request from thread to thread.
pub struct Lent(AtomicPtr<c_void>);

const BORROWED: *mut c_void = ptr::without_provenance_mut(1);

/// The request, borrowed; returned to the object when dropped.
pub struct Borrowed<'a> {
    lent: &'a AtomicPtr<c_void>,
    request: *mut c_void,
}

impl Borrowed<'_> {
    pub fn get(&mut self) -> &mut InFlight<'_, '_> {
        // SAFETY: `Handle::lend` stored the pointer, which is valid until `Handle::end`; that waits
        // while the request is borrowed. The atomic pointer makes this the only reference. The
        // lifetimes are those of the borrow.
        unsafe { &mut *self.request.cast() }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.lent.store(self.request, Release);
    }
}

impl Lent {
    fn borrow(&self, py: Attached) -> PyResult<Borrowed<'_>> {
        let mut request = self.0.load(Acquire);
        loop {
            if request.is_null() {
                return Err(Exception::RuntimeError.raise(py, "this request is over"));
            }
            if request == BORROWED {
                let message = "another thread is using this request";
                return Err(Exception::RuntimeError.raise(py, message));
            }
            match self.0.compare_exchange_weak(request, BORROWED, AcqRel, Acquire) {
                Ok(_) => return Ok(Borrowed { lent: &self.0, request }),
                Err(current) => request = current,
            }
        }
    }
}

/// Borrows the request behind `handle`.
///
/// # Safety
/// `handle` is an instance of a type that `class::make::<Lent>` made.
pub unsafe fn borrow<'a>(handle: &'a Object) -> PyResult<Borrowed<'a>> {
    // SAFETY: the caller's.
    unsafe { class::data::<Lent>(handle) }.borrow(handle.py())
}

/// The worker's side of the object.
pub struct Handle<'py>(Object<'py>);

impl<'py> Handle<'py> {
    /// # Safety
    /// `handle_type` is a type that `class::make::<Lent>` made.
    pub unsafe fn new(handle_type: &Object<'py>) -> PyResult<Self> {
        // SAFETY: the caller's. The memory is zeroed, so that the pointer is null.
        unsafe { class::instantiate(handle_type).map(Self) }
    }

    pub fn object(&self) -> &Object<'py> {
        &self.0
    }

    pub fn borrow(&self) -> PyResult<Borrowed<'_>> {
        self.lent().borrow(self.0.py())
    }

    fn lent(&self) -> &Lent {
        // SAFETY: `new` made the instance.
        unsafe { class::data(&self.0) }
    }

    /// Lends the request out until `end`.
    ///
    /// # Safety
    /// The caller calls `end` before `request` moves or dies, and until then uses it through
    /// `borrow` only.
    pub unsafe fn lend(&self, request: &mut InFlight) {
        self.lent().0.store(ptr::from_mut(request).cast(), Release);
    }

    /// Makes the object forget the request. Waits, without the GIL, while another thread uses it.
    pub fn end(&self) {
        let lent = &self.lent().0;
        let mut request = lent.load(Acquire);
        while !request.is_null() {
            if request == BORROWED {
                self.0.py().detach(|| std::thread::sleep(Duration::from_micros(100)));
                request = lent.load(Acquire);
                continue;
            }
            match lent.compare_exchange_weak(request, ptr::null_mut(), AcqRel, Acquire) {
                Ok(_) => return,
                Err(current) => request = current,
            }
        }
    }
}
