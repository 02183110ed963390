//! An interpreter that requests are run in: the one that the worker threads come from, or a
//! sub-interpreter that was made for an application group, and ends before the process does.
//!
//! Sub-interpreters are made, entered and ended by one thread of Python's, the keeper, which has the
//! thread state that each of them came with. Worker threads have states of their own in them, which
//! are kept here. Each ends its own, when it is told to between two requests: from 3.12 on CPython has a
//! thread-local pointer to the state that its thread attached last (for `PyGILState_Ensure`), and
//! another thread that deletes the state clears its own pointer instead.

use crate::http::Rejection;
use crate::interpreters::thread_state::{Attachment, ThreadMeter};
use crate::request::Exchange;
use crate::wsgi::adapter::Adapter;
use headway_python::object::{Object, PyResult, Raised, take_raised, without_gil};
use pyo3_ffi::*;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the keeper looks whether a thread has come out of the interpreter.
const LOOK: Duration = Duration::from_millis(2);
/// For threads of the application that were told to end, and are about to.
const MOMENT: Duration = Duration::from_millis(200);

pub struct Interpreter {
    /// `None`: the worker threads come with a thread state of it, and outlive nothing of it.
    own: Option<SubInterpreter>,
    /// Which one this is, of all that the process ever had; from 1.
    pub number: usize,
    /// Taken out at the end. Locked while a visitor waits for the GIL, so never with a GIL held that
    /// others may want here.
    adapter: Mutex<Option<Arc<Adapter>>>,
    /// Of each worker thread, by number. Locked by the thread while it runs a request here, and
    /// emptied by it.
    attachments: Box<[Mutex<Option<Attachment>>]>,
    /// No request begins here any more. Set by the keeper before it looks at `attachments`, read by
    /// threads that have locked theirs; `SeqCst`.
    is_retired: AtomicBool,
    /// Nor does one run: threads are to empty their `attachments`. Set by the keeper; `SeqCst`.
    is_vacant: AtomicBool,
    /// Requests that began here. Written by worker threads; relaxed.
    requests: AtomicU64,
    has_ended: AtomicBool,
}

struct SubInterpreter {
    state: *mut PyInterpreterState,
    /// The thread state that it came with, of the keeper's thread.
    first: *mut PyThreadState,
}

// SAFETY: the interpreter's state is valid until `end`, which waits until nobody else uses it. `first`
// is used by the keeper's thread only.
unsafe impl Send for SubInterpreter {}
// SAFETY: as above.
unsafe impl Sync for SubInterpreter {}

/// The interpreter takes no more requests.
pub struct Retired;

impl Interpreter {
    /// The one that the calling thread is attached to.
    pub fn of_callers(adapter: Adapter) -> Self {
        Self::new(None, Some(Arc::new(adapter)), 0)
    }

    /// A new sub-interpreter, for up to `threads` worker threads. Called attached, and returns so. The
    /// error is what CPython says.
    pub fn create(own_gil: bool, threads: usize) -> Result<Self, String> {
        // SAFETY: a thread state is attached; it is attached again whatever happens.
        unsafe {
            let caller = PyThreadState_Get();
            let first = new_interpreter(own_gil)?;
            let own = SubInterpreter { state: PyThreadState_GetInterpreter(first), first };
            PyEval_SaveThread();
            PyEval_RestoreThread(caller);
            Ok(Self::new(Some(own), None, threads))
        }
    }

    fn new(own: Option<SubInterpreter>, adapter: Option<Arc<Adapter>>, threads: usize) -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        Self {
            own,
            number: LAST.fetch_add(1, Relaxed) + 1,
            adapter: Mutex::new(adapter),
            attachments: (0..threads).map(|_| Mutex::default()).collect(),
            is_retired: AtomicBool::new(false),
            is_vacant: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    pub fn adapter(&self) -> Option<Arc<Adapter>> {
        self.adapter.lock().expect("no panic under this lock").clone()
    }

    /// From now on requests may be run here. Called inside `enter`.
    pub fn settle(&self, adapter: Adapter) {
        *self.adapter.lock().expect("no panic under this lock") = Some(Arc::new(adapter));
    }

    pub fn is_of_callers(&self) -> bool {
        self.own.is_none()
    }

    /// Counts a request; returns how many there were.
    pub fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed) + 1
    }

    /// Runs a request on the calling thread, a sub-interpreter's. Called detached; `number` is the
    /// thread's.
    pub fn run(
        &self,
        number: usize,
        meter: &mut ThreadMeter,
        exchange: &mut Exchange,
    ) -> Result<(), Retired> {
        let own = self.own.as_ref().ok_or(Retired)?;
        let mut mine = self.attachments[number].lock().expect("no panic under this lock");
        if self.is_retired.load(SeqCst) {
            return Err(Retired);
        }
        if mine.is_none() {
            let adapter = self.adapter().ok_or(Retired)?;
            // SAFETY: `end` comes after `retire`, which waits until this one is empty.
            *mine = unsafe { Attachment::make(&adapter, own.state) };
        }
        match &mut *mine {
            Some(attachment) => attachment.run(meter, exchange),
            None => exchange.refuse(Rejection::ApplicationUnavailable),
        }
        Ok(())
    }

    /// The end of worker thread `number`'s business here. Called detached, by that thread.
    pub fn leave(&self, number: usize) {
        let Some(mine) = self.attachments.get(number) else { return };
        if let Some(attachment) = mine.lock().expect("no panic under this lock").take() {
            // SAFETY: made by `run` on this thread; `end` comes when all are empty.
            unsafe { attachment.discard() };
        }
    }

    /// Whether worker threads are to `leave`.
    pub fn is_vacant(&self) -> bool {
        self.is_vacant.load(SeqCst)
    }

    /// Runs `act` attached to this interpreter, on whatever thread, unless it has come to its end.
    /// Called detached.
    pub fn visit(&self, act: impl FnOnce(&Adapter)) {
        let adapter = self.adapter.lock().expect("no panic under this lock");
        if let (Some(adapter), Some(own)) = (&*adapter, &self.own) {
            // SAFETY: `end` takes the adapter first, so it has not come while the lock is held. The
            // state is new, and gone before the lock is.
            unsafe {
                let state = PyThreadState_New(own.state);
                if state.is_null() {
                    return;
                }
                PyEval_RestoreThread(state);
                act(adapter);
                PyThreadState_Clear(state);
                PyThreadState_DeleteCurrent();
            }
        }
    }

    /// Runs `act` with the first thread state attached, on the keeper's thread, which is attached to its own
    /// interpreter before and after.
    pub fn enter<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let own = self.own.as_ref().filter(|_| !self.has_ended.load(Relaxed))?;
        // SAFETY: both states are this thread's; one is attached at a time.
        unsafe {
            let caller = PyEval_SaveThread();
            PyEval_RestoreThread(own.first);
            let result = act();
            PyEval_SaveThread();
            PyEval_RestoreThread(caller);
            Some(result)
        }
    }

    /// Lets no request in any more and waits, for so long, until those that run here are done and the
    /// worker threads have left, which `call` makes them do. True if nobody is left. Called detached.
    pub fn retire(&self, patience: Duration, call: impl Fn()) -> bool {
        let deadline = Instant::now() + patience;
        self.is_retired.store(true, SeqCst);
        let mut called = false;
        loop {
            let (mut running, mut staying) = (false, false);
            for attachment in &self.attachments {
                match attachment.try_lock() {
                    Ok(attachment) => staying |= attachment.is_some(),
                    Err(_) => running = true,
                }
            }
            if !(running || staying) {
                return true;
            }
            // Not before: a thread that leaves waits for the GIL of those that run.
            if !running && !called {
                self.is_vacant.store(true, SeqCst);
                call();
                called = true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends a sub-interpreter that is retired, as the end of a program does: its non-daemon threads are
    /// waited for, its atexit handlers run. If threads of the application are left after that the
    /// interpreter is too, and the error says how many. On the keeper's thread.
    pub fn end(&self) -> Result<(), usize> {
        let Some(own) = self.own.as_ref().filter(|_| !self.has_ended.load(Relaxed)) else {
            return Ok(());
        };
        // SAFETY: both states are this thread's; one is attached at a time. CPython ends the process if it
        // finds states beside the one that it is given: they are counted before.
        unsafe {
            let caller = PyEval_SaveThread();
            let adapter = self.adapter.lock().expect("no panic under this lock").take();
            PyEval_RestoreThread(own.first);
            drop(adapter);
            run_end_of_program();
            let left = count_threads_left(own.state);
            if left > 0 {
                PyEval_SaveThread();
                PyEval_RestoreThread(caller);
                return Err(left);
            }
            self.has_ended.store(true, Relaxed);
            Py_EndInterpreter(own.first);
            PyThreadState_Swap(caller);
        }
        Ok(())
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        if self.own.is_some() {
            // Whatever of Python is left belongs to another interpreter than the calling thread's.
            std::mem::forget(self.adapter.lock().map(|mut adapter| adapter.take()));
            for attachment in &mut self.attachments {
                std::mem::forget(attachment.get_mut().map(Option::take));
            }
        }
    }
}

/// Makes an interpreter and leaves its first thread state attached.
///
/// # Safety
/// A thread state is attached, and is again if this fails.
unsafe fn new_interpreter(own_gil: bool) -> Result<*mut PyThreadState, String> {
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
    // SAFETY: as the caller promises.
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

/// What `Py_EndInterpreter` does first, and what the application can start threads in or tell them to end:
/// CPython ends the process if it finds one after that. CPython up to 3.12 asserts that threads are waited
/// for once, so then it finds a function that does nothing, and no atexit handlers. Errors are for
/// `sys.unraisablehook`.
fn run_end_of_program() {
    // SAFETY: a thread state is attached; names end with zero.
    unsafe {
        let import = |name: &CStr| Object::from_new(PyImport_ImportModule(name.as_ptr()));
        let waited = import(c"threading").and_then(|threading| {
            let shutdown = PyObject_GetAttrString(threading.as_ptr(), c"_shutdown".as_ptr());
            let shutdown = Object::from_new(shutdown)?;
            let nothing = (&raw mut PyLong_Type).cast();
            PyObject_SetAttrString(threading.as_ptr(), c"_shutdown".as_ptr(), nothing);
            Object::from_new(PyObject_CallNoArgs(shutdown.as_ptr()))
        });
        if waited.is_err() {
            PyErr_WriteUnraisable(ptr::null_mut());
        }
        let ended = import(c"atexit").and_then(|atexit| {
            let run = PyObject_GetAttrString(atexit.as_ptr(), c"_run_exitfuncs".as_ptr());
            Object::from_new(PyObject_CallNoArgs(Object::from_new(run)?.as_ptr()))
        });
        if ended.is_err() {
            PyErr_WriteUnraisable(ptr::null_mut());
        }
    }
}

/// Those of the application that do not end in a moment.
///
/// # Safety
/// Called attached to the interpreter, by a thread that is not counted.
unsafe fn count_threads_left(interpreter: *mut PyInterpreterState) -> usize {
    let deadline = Instant::now() + MOMENT;
    loop {
        // SAFETY: as the caller promises.
        let left = unsafe { thread_states(interpreter) } - 1;
        if left == 0 || Instant::now() >= deadline {
            return left;
        }
        without_gil(|| std::thread::sleep(LOOK));
    }
}

/// The thread states of the interpreter, the caller's included.
///
/// # Safety
/// Called attached to the interpreter.
#[cfg(not(Py_GIL_DISABLED))]
unsafe fn thread_states(interpreter: *mut PyInterpreterState) -> usize {
    // SAFETY: the caller holds the GIL, without which no thread takes its state out of the list.
    unsafe { walk_thread_states(interpreter) }
}

/// The thread states of the interpreter, the caller's included.
///
/// Without a GIL a thread may free its state at any time, under a lock that CPython does not
/// export. `PyUnstable_GC_VisitObjects` holds this lock, and stops the interpreter's other threads,
/// while it calls back.
///
/// # Safety
/// Called attached to the interpreter.
#[cfg(Py_GIL_DISABLED)]
unsafe fn thread_states(interpreter: *mut PyInterpreterState) -> usize {
    use std::ffi::{c_int, c_void};
    type Visitor = unsafe extern "C" fn(*mut PyObject, *mut c_void) -> c_int;
    unsafe extern "C" {
        // From CPython 3.12 on (Include/cpython/objimpl.h); pyo3-ffi does not declare it.
        fn PyUnstable_GC_VisitObjects(visitor: Visitor, argument: *mut c_void);
    }
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
    // SAFETY: as the caller promises.
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

/// What there is to say of an exception that is set, where its interpreter's objects cannot go.
pub fn take_raised_as_text() -> String {
    let text = |exception: Object| -> PyResult<String> {
        // SAFETY: live objects.
        unsafe {
            let text = Object::from_new(PyObject_Str(exception.as_ptr()))?.to_text()?;
            Ok(format!("{}: {text}", headway_python::object::type_name(exception.as_ptr())))
        }
    };
    take_raised().map_or_else(String::new, |exception| {
        text(exception).unwrap_or_else(|Raised| {
            drop(take_raised());
            "an exception that cannot be shown".into()
        })
    })
}
