//! Sub-interpreters: making, entering and ending them.

use crate::attached::Attached;
use crate::c_api::*;
use crate::exception::{clear_raised, write_unraisable};
use crate::object::{Object, PyResult};
use crate::thread_state::ThreadState;
#[cfg(Py_3_12)]
use std::ffi::CStr;
use std::mem::ManuallyDrop;
#[cfg(Py_3_12)]
use std::ptr;

/// A sub-interpreter, with the thread state that it came with.
pub struct SubInterpreter {
    state: *mut PyInterpreterState,
    /// Belongs to the thread that made the interpreter.
    first: ThreadState,
}

// SAFETY: pointers; functions that use them demand the right thread and a live interpreter.
unsafe impl Send for SubInterpreter {}
// SAFETY: as for Send.
unsafe impl Sync for SubInterpreter {}

impl SubInterpreter {
    /// Makes an interpreter. The error is CPython's reason.
    pub fn create(py: Attached, own_gil: bool) -> Result<Self, String> {
        let caller = ThreadState::current(py);
        // SAFETY: a thread state is attached, and is attached again afterwards.
        unsafe {
            let first = ThreadState::from_ptr(make(own_gil)?);
            let state = PyThreadState_GetInterpreter(first.as_ptr());
            PyEval_SaveThread();
            PyEval_RestoreThread(caller.as_ptr());
            Ok(Self { state, first })
        }
    }

    /// A thread state in the interpreter for the calling thread. `None` for want of memory.
    ///
    /// # Safety
    /// The interpreter is alive.
    pub unsafe fn new_thread_state(&self) -> Option<ThreadState> {
        // SAFETY: the caller's.
        unsafe { ThreadState::new(self.state) }
    }

    /// Runs `act` inside the interpreter, with its first thread state.
    ///
    /// # Safety
    /// The calling thread made the interpreter, which is alive.
    pub unsafe fn enter<T: Send>(
        &self,
        py: Attached,
        act: impl for<'sub> FnOnce(Attached<'sub>) -> T + Send,
    ) -> T {
        // SAFETY: the caller's; `detach` leaves no thread state attached.
        py.detach(|| unsafe { self.first.attach(act) })
    }

    /// The thread states of the interpreter, the caller's included.
    ///
    /// # Safety
    /// The token is of this interpreter.
    pub unsafe fn count_thread_states(&self, _: Attached) -> usize {
        // SAFETY: the caller's.
        unsafe { count_thread_states(self.state) }
    }

    /// Runs `prepare` inside the interpreter and, unless that is an error, ends the interpreter
    /// (`Py_EndInterpreter`).
    ///
    /// # Safety
    /// The calling thread made the interpreter, which is alive. After `prepare` no other thread has
    /// a state in it: CPython ends the process if it finds one. The interpreter is not used after
    /// its end.
    pub unsafe fn end<E: Send>(
        &self,
        py: Attached,
        prepare: impl for<'sub> FnOnce(Attached<'sub>) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        /// Attaches the caller's thread state again, also when `prepare` panics.
        struct Attach(ThreadState);
        impl Drop for Attach {
            fn drop(&mut self) {
                // SAFETY: both thread states are this thread's; one is attached at a time.
                unsafe {
                    PyEval_SaveThread();
                    PyEval_RestoreThread(self.0.as_ptr());
                }
            }
        }
        let caller = Attach(ThreadState::current(py));
        // SAFETY: the caller's; as for `Attach`.
        unsafe {
            PyEval_SaveThread();
            PyEval_RestoreThread(self.first.as_ptr());
            prepare(Attached::assume())?;
            let Attach(caller) = &*ManuallyDrop::new(caller);
            Py_EndInterpreter(self.first.as_ptr());
            PyThreadState_Swap(caller.as_ptr());
            Ok(())
        }
    }
}

/// Makes an interpreter and leaves its first thread state attached.
///
/// # Safety
/// A thread state is attached, and is again if this fails.
unsafe fn make(own_gil: bool) -> Result<*mut PyThreadState, String> {
    #[cfg(Py_3_12)]
    // SAFETY: the configuration lives through the call, and messages are CPython's constants.
    unsafe {
        let config = match own_gil {
            true => _PyInterpreterConfig_INIT,
            false => _PyInterpreterConfig_LEGACY_INIT,
        };
        let mut state = ptr::null_mut();
        let status = Py_NewInterpreterFromConfig(&mut state, &config);
        if PyStatus_Exception(status) != 0 || state.is_null() {
            let message = match status.err_msg.is_null() {
                true => "CPython gives no reason".into(),
                false => CStr::from_ptr(status.err_msg).to_string_lossy(),
            };
            return Err(message.into_owned());
        }
        Ok(state)
    }
    #[cfg(not(Py_3_12))]
    // SAFETY: the caller's.
    unsafe {
        if own_gil {
            return Err("an own GIL needs CPython 3.12 or later".into());
        }
        let caller = PyThreadState_Get();
        let state = Py_NewInterpreter();
        if state.is_null() {
            PyThreadState_Swap(caller);
            return Err("CPython gives no reason".into());
        }
        Ok(state)
    }
}

/// Does first what `Py_EndInterpreter` does first: waits for non-daemon threads and runs atexit
/// handlers. The application can start threads there, or tell them to end, and CPython ends the
/// process if it finds a thread after that.
///
/// CPython up to 3.12 asserts that threads are waited for once, so it finds a function that does
/// nothing in the place of `threading._shutdown`. Errors go to `sys.unraisablehook`.
pub fn run_exit_handlers(py: Attached) {
    let report = |result: PyResult<Object>| {
        if result.is_err() {
            write_unraisable(py, None);
        }
    };
    report(Object::import(py, c"threading").and_then(|threading| {
        let shutdown = threading.attribute(c"_shutdown")?;
        // SAFETY: a static type, which is always alive.
        let nothing = unsafe { Object::from_borrowed(py, (&raw mut PyLong_Type).cast()) };
        if threading.set_attribute(c"_shutdown", &nothing).is_err() {
            clear_raised(py);
        }
        shutdown.call([])
    }));
    report(
        Object::import(py, c"atexit").and_then(|atexit| atexit.call_method(c"_run_exitfuncs", [])),
    );
}

/// # Safety
/// A thread state of the interpreter is attached.
#[cfg(not(Py_GIL_DISABLED))]
unsafe fn count_thread_states(interpreter: *mut PyInterpreterState) -> usize {
    // SAFETY: the caller holds the GIL, without which no thread takes its state out of the list.
    unsafe { walk_thread_states(interpreter) }
}

/// Without a GIL a thread may free its state at any time, under a lock that CPython does not
/// export. `PyUnstable_GC_VisitObjects` holds this lock, and stops the interpreter's other threads,
/// while it calls back.
///
/// # Safety
/// A thread state of the interpreter is attached.
#[cfg(Py_GIL_DISABLED)]
unsafe fn count_thread_states(interpreter: *mut PyInterpreterState) -> usize {
    use std::ffi::{c_int, c_void};
    struct Visit {
        interpreter: *mut PyInterpreterState,
        states: usize,
    }
    unsafe extern "C" fn visit(_object: *mut PyObject, argument: *mut c_void) -> c_int {
        // SAFETY: `argument` is the `Visit` below, and the list's lock is held.
        unsafe {
            let visit = &mut *argument.cast::<Visit>();
            visit.states = walk_thread_states(visit.interpreter);
        }
        // One object is enough.
        0
    }
    // Should no object be visited, a thread counts as left: the interpreter then stays.
    let mut result = Visit { interpreter, states: 2 };
    // SAFETY: attached. A new list is visited even if every other object is frozen (`gc.freeze`).
    // `visit` touches neither objects nor memory of CPython's allocator.
    unsafe {
        let list = PyList_New(0);
        if list.is_null() {
            PyErr_Clear();
        }
        PyUnstable_GC_VisitObjects(visit, (&raw mut result).cast());
        Py_XDECREF(list);
    }
    result.states
}

/// # Safety
/// No thread can take its state out of the interpreter's list meanwhile.
unsafe fn walk_thread_states(interpreter: *mut PyInterpreterState) -> usize {
    // SAFETY: the caller's; so each state is alive while its successor is read.
    unsafe {
        let mut state = PyInterpreterState_ThreadHead(interpreter);
        let mut count = 0;
        while !state.is_null() {
            count += 1;
            state = PyThreadState_Next(state);
        }
        count
    }
}
