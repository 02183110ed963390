//! Thread states: what a thread is attached to an interpreter with.

use crate::attached::Attached;
use crate::c_api::*;
use std::ptr::NonNull;

/// A thread state. Only the thread that it belongs to attaches it.
pub struct ThreadState(NonNull<PyThreadState>);

// SAFETY: a pointer; the functions that use it demand the thread that it belongs to.
unsafe impl Send for ThreadState {}
// SAFETY: as for Send.
unsafe impl Sync for ThreadState {}

impl ThreadState {
    /// The one that the calling thread has attached.
    pub fn current(_: Attached) -> Self {
        // SAFETY: a thread state is attached, so there is one and it is not null.
        unsafe { Self(NonNull::new_unchecked(PyThreadState_Get())) }
    }

    /// A new one in `interpreter` for the calling thread. `None` for want of memory.
    ///
    /// # Safety
    /// The interpreter is alive.
    pub unsafe fn new(interpreter: *mut PyInterpreterState) -> Option<Self> {
        // SAFETY: the caller's; no thread state need be attached.
        NonNull::new(unsafe { PyThreadState_New(interpreter) }).map(Self)
    }

    /// # Safety
    /// `pointer` is a thread state.
    pub unsafe fn from_ptr(pointer: *mut PyThreadState) -> Self {
        // SAFETY: a thread state's address is not null.
        unsafe { Self(NonNull::new_unchecked(pointer)) }
    }

    pub fn as_ptr(&self) -> *mut PyThreadState {
        self.0.as_ptr()
    }

    /// Attaches the thread state, runs `act`, and detaches it again.
    ///
    /// # Safety
    /// The thread state belongs to the calling thread, which has none attached; its interpreter is
    /// alive.
    pub unsafe fn attach<T>(&self, act: impl for<'py> FnOnce(Attached<'py>) -> T) -> T {
        /// Also detaches it when `act` panics.
        struct Detach;
        impl Drop for Detach {
            fn drop(&mut self) {
                // SAFETY: attached below; `act` leaves it so, as any function that Python calls.
                unsafe { PyEval_SaveThread() };
            }
        }
        // SAFETY: the caller's. The token is valid until `detach` is dropped.
        unsafe {
            PyEval_RestoreThread(self.as_ptr());
            let detach = Detach;
            let result = act(Attached::assume());
            drop(detach);
            result
        }
    }

    /// Attaches the thread state, runs `act`, and deletes it.
    ///
    /// # Safety
    /// As for `attach`; the thread state was made by `new`.
    pub unsafe fn delete_after<T>(self, act: impl for<'py> FnOnce(Attached<'py>) -> T) -> T {
        /// Also deletes it when `act` panics.
        struct Delete(ThreadState);
        impl Drop for Delete {
            fn drop(&mut self) {
                // SAFETY: attached below; `act` leaves it so, as any function that Python calls.
                unsafe {
                    PyThreadState_Clear(self.0.as_ptr());
                    PyThreadState_DeleteCurrent();
                }
            }
        }
        // SAFETY: the caller's. The token is valid until `delete` is dropped.
        unsafe {
            PyEval_RestoreThread(self.as_ptr());
            let delete = Delete(self);
            let result = act(Attached::assume());
            drop(delete);
            result
        }
    }
}
