//! The description of the running CPython for the meter, from its C API.

use crate::interpreters::{gil_enabled, interpreters_and_ids, newest_interpreter};
use headway_gil::{Host, ThreadStates};
use headway_python::attached::Attached;
use headway_python::c_api::*;
use headway_python::thread_state::ThreadState;
use headway_threads::internal_thread;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

pub fn host(py: Attached) -> Host {
    // SAFETY: the version is a constant of CPython's, and the runtime exists.
    let (version, main) = unsafe { (CStr::from_ptr(Py_GetVersion()), PyInterpreterState_Main()) };
    let version = version.to_string_lossy();
    Host {
        anchor: anchor(),
        gil_enabled: gil_enabled(py),
        main_interpreter: main as usize,
        gil_in_interpreter: cfg!(Py_3_12),
        interpreters: interpreters_and_ids(py),
        newest_interpreter,
        interpreter_id: get_interpreter_id,
        contend,
        thread_state: ThreadState::current(py).as_ptr() as usize,
        thread_states: thread_states(py),
        python: version.split_whitespace().next().unwrap_or_default().to_owned(),
    }
}

/// Returns the true address of a function beside `take_gil`. A function pointer taken here could be
/// a trampoline of the executable.
pub fn anchor() -> *const c_void {
    // SAFETY: a C string; the symbol is exported by every CPython.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyEval_RestoreThread".as_ptr()) }
}

/// Tells whether CPython finalizes. Reads a variable of the runtime.
pub unsafe extern "C" fn is_finalizing() -> c_int {
    // SAFETY: no preconditions.
    unsafe { Py_IsFinalizing() }
}

unsafe extern "C" fn get_interpreter_id(interpreter: *mut c_void) -> i64 {
    // SAFETY: the engine passes an interpreter that exists.
    unsafe { PyInterpreterState_GetID(interpreter.cast()) }
}

/// Returns the offset in a thread state of the field that shows what a thread waits for, in a
/// free-threaded build. Returns `None` in other builds, and if a thread state does not have the
/// layout of the known builds.
fn thread_states(py: Attached) -> Option<ThreadStates> {
    if !cfg!(Py_GIL_DISABLED) {
        return None;
    }
    // `struct _ts` of CPython's Include/cpython/pystate.h: `state` behind four pointers, `_status`,
    // from 3.14 on `holds_gil`, from 3.15 on `gil_requested`, and `_whence`.
    let ints_before = 2 + cfg!(Py_3_14) as usize + cfg!(Py_3_15) as usize;
    let state_offset = 4 * size_of::<*const ()>() + ints_before * size_of::<c_int>();
    let function = |name: &CStr| {
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: a symbol that every free-threaded CPython exports, as a function of this type.
        (!found.is_null()).then(|| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(found)
        })
    };
    let current = function(c"PyThreadState_GetUnchecked")?;
    let own = function(c"PyGILState_GetThisThreadState")?;
    let thread_state = ThreadState::current(py);
    let state = || {
        let address = thread_state.as_ptr().cast::<u8>();
        // SAFETY: this thread's own state, attached or not, which is larger than that.
        unsafe { AtomicI32::from_ptr(address.add(state_offset).cast()).load(Relaxed) }
    };
    let attached = state();
    // SAFETY: the function takes nothing and needs no thread state.
    let (detached, is_none) = py.detach(|| (state(), unsafe { current() }.is_null()));
    let is_known = attached == 1 && detached != 1 && is_none;
    is_known.then_some(ThreadStates { current, own, state_offset })
}

/// The probe of `headway_gil::Host::contend`: a thread of our own takes the main GIL once, while
/// the calling thread holds it.
fn contend() -> bool {
    const TIMEOUT: Duration = Duration::from_secs(10);
    const SLEEPING: Duration = Duration::from_millis(500);
    // SAFETY: `headway_gil::install` calls this in the thread that called it, attached.
    let py = unsafe { Attached::assume() };
    // SAFETY: a thread state is attached.
    let interpreter = unsafe { PyInterpreterState_Get() } as usize;
    let created = Arc::new(Barrier::new(2));
    let may_take = Arc::clone(&created);
    let probe = internal_thread::spawn("headway-probe", move || {
        // SAFETY: the caller's interpreter, which lives while the caller waits for this thread.
        let state = unsafe { ThreadState::new(interpreter as *mut PyInterpreterState) };
        created.wait();
        created.wait();
        headway_gil::this_thread_is_the_probe();
        if let Some(state) = state {
            // SAFETY: this thread's own state, and it has none attached.
            unsafe { state.delete_after(|_| {}) };
        }
    });
    let Ok(probe) = probe else { return false };
    // Free-threaded builds may stop the world to make a thread state, and would wait for this
    // thread.
    py.detach(|| may_take.wait().is_leader());
    may_take.wait();
    let began = Instant::now();
    let mut awake = began;
    // All other threads wait for the GIL meanwhile. A probe that sleeps waits already, and where no
    // hook sees it.
    while !headway_gil::probe_waits() && began.elapsed() < TIMEOUT && awake.elapsed() < SLEEPING {
        std::thread::sleep(Duration::from_micros(100));
        if !headway_gil::probe_sleeps() {
            awake = Instant::now();
        }
    }
    py.detach(|| probe.join());
    headway_gil::probe_waits()
}
