//! `_native.fork_*`: no thread of Headway works during a fork. `os.register_at_fork` calls the
//! functions; see `headway.meter.forks`.
//!
//! Inside the fork itself they halt (`headway_threads::fork`). If the program has no other thread
//! than the forking one, they end before and start after it, because CPython 3.12 and later warn of
//! a fork in a process with several threads. The forking thread keeps the GIL meanwhile.
//!
//! Some CPythons count the threads of the parent after the functions that are registered as
//! `after_in_parent`, so the threads must not start again before that if the forking thread is the
//! only other one. A *pending call* starts them: CPython makes it before it goes on with the code
//! that has called `os.fork`, or earlier, in a Python function that the program has registered for
//! forks. Therefore `fork_ends_in_parent` is registered again at the first fork, behind those
//! functions, and its last call counts. Where a function is behind it nevertheless, the pending
//! call is made again, and at the next fork it is registered once more.

use crate::filters;
use crate::profile;
use crate::telemetry::reporting;
use headway_python::attached::Attached;
use headway_python::c_api::Py_AddPendingCall;
use headway_python::convert::arguments;
use headway_python::exception::clear_raised;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult, Raised};
use headway_python::panics::barrier_without_exception;
use headway_python::stored::Stored;
use headway_threads::lock::Lock;
use headway_threads::{fork, process_end};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub static FUNCTIONS: Methods<5> = Methods::new([
    function(
        c"fork_follow",
        follow,
        c"fork_follow(register)\n\
          \n\
          register() registers fork_ends_in_parent(), and runs no Python.",
    ),
    function(
        c"fork_begins",
        begins,
        c"fork_begins()\n\nEnds the threads of Headway if the caller is the only other one.",
    ),
    function(
        c"fork_ends_in_parent",
        ends_in_parent,
        c"fork_ends_in_parent()\n\
          \n\
          Starts them again, at the latest when the caller of os.fork() goes on.",
    ),
    function(
        c"fork_ends_in_child",
        ends_in_child,
        c"fork_ends_in_child()\n\nStarts the reporter of the child, if the parent has one.",
    ),
    END,
]);

/// Whether this CPython may count threads after the functions for forks: 3.13, where later releases
/// may do as 3.15 does, and 3.14 to be safe. 3.12 and 3.15 count them before.
const COUNTS_LATE: bool = cfg!(all(Py_3_13, not(Py_3_15)));
/// How often the pending call may be made again after one fork. CPython makes it up to 32 times at
/// each check of its loop, in less than a microsecond each; in long code the threads start before
/// its end.
const MAX_REPEATED: u32 = 10_000;
const MAX_REGISTRATIONS: u32 = 16;

struct State {
    /// Registers `fork_ends_in_parent` once more.
    register: Option<Stored>,
    registrations: u32,
    /// Whether a Python function may be behind the last registration.
    must_register: bool,
    /// The calls of `fork_ends_in_parent` that the forks in progress still bring. Several threads
    /// may fork at the same time.
    ends_due: u32,
    /// Whether the threads were ended.
    have_ended: bool,
    /// Whether a pending call will start the threads.
    is_pending: bool,
    repeated: u32,
    /// From the begin of a fork for which the threads end to their start: a frame keeps what its
    /// function refers to.
    caller: Option<Caller>,
}

/// Locked with the GIL by the functions below, and by the pending call. They run no Python and do
/// not release the GIL meanwhile, so a forked child finds it free.
static STATE: Lock<State> = Lock::new(State {
    register: None,
    registrations: 1,
    must_register: true,
    ends_due: 0,
    have_ended: false,
    is_pending: false,
    repeated: 0,
    caller: None,
});

fn follow<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (register,): (&Object,) = arguments(py, "fork_follow", given)?;
    let register = Stored::new(register.clone());
    STATE.lock().register = Some(register);
    Ok(Object::none(py))
}

/// Registers `fork_ends_in_parent` behind what the program has registered by now.
fn register_last(py: Attached) {
    let mut state = STATE.lock();
    if !std::mem::take(&mut state.must_register) || state.registrations == MAX_REGISTRATIONS {
        return;
    }
    let Some(register) = state.register.take() else { return };
    // Unlocked, because a new object may run the garbage collector.
    drop(state);
    let is_registered = match register.get(py).call([]) {
        Ok(_) => true,
        Err(Raised) => {
            clear_raised(py);
            false
        }
    };
    let mut state = STATE.lock();
    state.registrations += u32::from(is_registered);
    state.register = Some(register);
}

fn begins<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    // With further threads of the program CPython warns in any case.
    let must_end = cfg!(Py_3_12) && process_end::threads_of_program() == Some(1);
    let mut caller = None;
    if COUNTS_LATE && must_end {
        caller = Caller::of_this_call(py);
        register_last(py);
    }
    let mut state = STATE.lock();
    state.ends_due += state.registrations;
    state.have_ended |= must_end;
    if must_end {
        fork::wait_for(|| {
            let reporter = reporting::across_forks();
            reporter.iter().for_each(|reporter| reporter.begin_pause());
            profile::begin_to_stop_sampler();
            reporter.iter().for_each(|reporter| reporter.pause());
            profile::stop_sampler();
        });
    }
    let former = std::mem::replace(&mut state.caller, caller);
    drop(state);
    drop(former);
    Ok(Object::none(py))
}

fn ends_in_parent<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    let mut state = STATE.lock();
    state.ends_due = state.ends_due.saturating_sub(1);
    if state.ends_due > 0 || !state.have_ended {
        return Ok(Object::none(py));
    }
    state.repeated = 0;
    let is_alone = process_end::threads_of_program() == Some(1);
    // C code that forks without a Python caller is not warned, and may never run Python again.
    let has_caller = state.caller.is_some();
    if COUNTS_LATE && is_alone && has_caller && (state.is_pending || make_pending_call()) {
        state.is_pending = true;
        return Ok(Object::none(py));
    }
    let caller = state.caller.take();
    state.have_ended = false;
    start_again();
    drop(state);
    drop(caller);
    Ok(Object::none(py))
}

fn ends_in_child<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    let mut state = STATE.lock();
    (state.ends_due, state.have_ended, state.is_pending) = (0, false, false);
    let caller = state.caller.take();
    if !filters::were_added() && reporting::begin_in_child() {
        profile::begin_reported(py);
    }
    drop(state);
    drop(caller);
    Ok(Object::none(py))
}

/// Returns false if there are too many pending calls.
fn make_pending_call() -> bool {
    // SAFETY: the function is of the type that CPython calls, and needs no argument.
    unsafe { Py_AddPendingCall(Some(start_after_fork), null_mut()) == 0 }
}

/// The pending call. The main thread makes it, attached.
extern "C" fn start_after_fork(_: *mut c_void) -> c_int {
    barrier_without_exception(|| {
        // SAFETY: CPython makes pending calls attached.
        let py = unsafe { Attached::assume() };
        let mut state = STATE.lock();
        if !state.is_pending {
            return;
        }
        let is_within = state.caller.as_ref().is_some_and(|caller| caller.still_calls(py));
        if is_within {
            state.must_register = true;
            if state.repeated < MAX_REPEATED && make_pending_call() {
                state.repeated += 1;
                return;
            }
        }
        state.is_pending = false;
        let caller = state.caller.take();
        // Another thread may be about to fork.
        if state.ends_due == 0 {
            state.have_ended = false;
            start_again();
        }
        drop(state);
        drop(caller);
    });
    0
}

/// Whether no thread could be started after a fork. Written with the GIL, read by `retry`.
static MUST_RETRY: AtomicBool = AtomicBool::new(false);

fn start_again() {
    if filters::were_added() {
        return;
    }
    // The program goes on if no thread can be started.
    let reporter = reporting::across_forks().map_or(Ok(()), |reporter| reporter.resume());
    MUST_RETRY.store(reporter.is_err(), Relaxed);
    profile::start_sampler();
}

/// Tries again to start the threads, if a fork left none: at each pass of the garbage collector.
pub fn retry() {
    if MUST_RETRY.load(Relaxed) && STATE.try_lock().is_some_and(|state| state.ends_due == 0) {
        start_again();
    }
}

use caller::Caller;

#[cfg(Py_3_11)]
mod caller {
    use headway_python::attached::Attached;
    use headway_python::c_api::{PyEval_GetFrame, PyFrame_GetBack, PyFrame_GetLasti};
    use headway_python::object::Object;
    use headway_python::stored::Stored;
    use std::ffi::c_int;

    /// The Python frame that has called `os.fork`, and where in its code.
    pub struct Caller {
        frame: Stored,
        instruction: c_int,
    }

    impl Caller {
        pub fn of_this_call(py: Attached) -> Option<Self> {
            // SAFETY: a thread state is attached. Its frame is an object, or null without Python.
            unsafe {
                let frame = PyEval_GetFrame();
                if frame.is_null() {
                    return None;
                }
                let instruction = PyFrame_GetLasti(frame);
                let frame = Stored::new(Object::from_borrowed(py, frame.cast()));
                Some(Self { frame, instruction })
            }
        }

        /// Whether the frame still executes the call, in which Python code runs.
        pub fn still_calls(&self, py: Attached) -> bool {
            let caller = self.frame.get(py);
            // SAFETY: a thread state is attached; each frame is alive as long as it is used here,
            // and the one that follows is a new reference or null.
            unsafe {
                let innermost = PyEval_GetFrame();
                if innermost.is_null() || innermost.cast() == caller.as_ptr() {
                    return false;
                }
                let mut frame = Object::from_borrowed(py, innermost.cast());
                while let Ok(back) =
                    Object::from_new(py, PyFrame_GetBack(frame.as_ptr().cast()).cast())
                {
                    if back.is(caller) {
                        return PyFrame_GetLasti(back.as_ptr().cast()) == self.instruction;
                    }
                    frame = back;
                }
                false
            }
        }
    }
}

#[cfg(not(Py_3_11))]
mod caller {
    use headway_python::attached::Attached;

    /// These CPythons do not warn of forks.
    pub enum Caller {}

    impl Caller {
        pub fn of_this_call(_: Attached) -> Option<Self> {
            None
        }

        pub fn still_calls(&self, _: Attached) -> bool {
            match *self {}
        }
    }
}
