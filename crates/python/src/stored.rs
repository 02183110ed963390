//! References that are kept while no thread state is attached.

use crate::attached::Attached;
use crate::c_api::*;
use crate::object::{Object, PyResult};
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A reference that outlives the token.
///
/// It knows its interpreter. Dropped by a thread that has a thread state of this interpreter
/// attached it gives the reference back; dropped by any other it leaks the reference and counts
/// that in [`leaked_references`].
pub struct Stored {
    pointer: NonNull<PyObject>,
    interpreter: i64,
}

// SAFETY: the object is used with a token only and its reference given back with a thread state
// attached. Reference counts may change on any attached thread.
unsafe impl Send for Stored {}
// SAFETY: as for Send; a shared `Stored` gives out nothing without a token.
unsafe impl Sync for Stored {}

impl Stored {
    pub fn new(object: Object) -> Self {
        let interpreter = object.py().interpreter_id();
        // SAFETY: an object's address is not null.
        let pointer = unsafe { NonNull::new_unchecked(object.into_ptr()) };
        Self { pointer, interpreter }
    }

    /// An interned string, for a key.
    pub fn interned(py: Attached, text: &CStr) -> PyResult<Self> {
        Object::interned(py, text).map(Self::new)
    }

    /// The object, for a thread that is attached to its interpreter.
    ///
    /// # Panics
    /// If the thread is attached to another one: the token does not tell, see [`Attached`].
    pub fn get<'py>(&self, py: Attached<'py>) -> &Object<'py> {
        assert_eq!(py.interpreter_id(), self.interpreter, "an object of another interpreter");
        // SAFETY: `Object` is a transparent wrapper of this pointer, whose reference `self` owns.
        unsafe { &*ptr::from_ref(&self.pointer).cast() }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if attached_interpreter() == Some(self.interpreter) {
            // SAFETY: the reference is ours, and a thread state of its interpreter is attached.
            unsafe { Py_DECREF(self.pointer.as_ptr()) }
        } else {
            LEAKED.fetch_add(1, Relaxed);
        }
    }
}

/// The number of the interpreter that the calling thread is attached to, if it is attached.
fn attached_interpreter() -> Option<i64> {
    // SAFETY: reads the thread's current state. Where there is one, its interpreter is alive.
    unsafe {
        let state = PyThreadState_GetUnchecked();
        (!state.is_null()).then(|| PyInterpreterState_GetID(PyThreadState_GetInterpreter(state)))
    }
}

/// Written by `Stored::drop` in any thread, read by `leaked_references`; a counter, so relaxed.
static LEAKED: AtomicU64 = AtomicU64::new(0);

/// References that this process leaked since no thread state of their interpreter was attached.
pub fn leaked_references() -> u64 {
    LEAKED.load(Relaxed)
}
