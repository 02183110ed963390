//! What the meter needs to know of the CPython that it is installed into, asked by its C API.
//!
//! Called with a thread state attached. Knows nothing of books.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use headway_gil::{Host, ThreadStates};
use pyo3_ffi::*;

pub fn host() -> Host {
    // SAFETY: a thread state is attached, so versions and interpreters can be asked for; the list of
    // interpreters is walked as CPython's own `list_all` does.
    unsafe {
        let main = PyInterpreterState_Main();
        let version = CStr::from_ptr(Py_GetVersion()).to_string_lossy();
        Host {
            anchor: anchor(),
            gil_enabled: gil_enabled(),
            main_interpreter: main as usize,
            gil_in_interpreter: cfg!(Py_3_12),
            interpreters: interpreters_and_ids(),
            newest_interpreter,
            interpreter_id: get_interpreter_id,
            contend,
            thread_states: thread_states(),
            python: version.split_whitespace().next().unwrap_or_default().to_owned(),
        }
    }
}

/// The true address of a function beside `take_gil`: a function pointer taken here could be a
/// trampoline of the executable.
pub fn anchor() -> *const c_void {
    // SAFETY: a C string; the symbol is exported by every CPython.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyEval_RestoreThread".as_ptr()) }
}

pub fn all_interpreters() -> impl Iterator<Item = *mut PyInterpreterState> {
    // SAFETY: called with a thread state attached; see `host`.
    let first = unsafe { PyInterpreterState_Head() };
    std::iter::successors((!first.is_null()).then_some(first), |interpreter| {
        // SAFETY: as above.
        let next = unsafe { PyInterpreterState_Next(*interpreter) };
        (!next.is_null()).then_some(next)
    })
}

pub fn interpreters_and_ids() -> Vec<(usize, i64)> {
    // SAFETY: as above.
    let id = |interpreter| unsafe { PyInterpreterState_GetID(interpreter) };
    all_interpreters().map(|interpreter| (interpreter as usize, id(interpreter))).collect()
}

unsafe extern "C" fn newest_interpreter() -> *mut c_void {
    // SAFETY: reads the head of the runtime's list; needs no thread state.
    unsafe { PyInterpreterState_Head().cast() }
}

unsafe extern "C" fn get_interpreter_id(interpreter: *mut c_void) -> i64 {
    // SAFETY: the engine passes an interpreter that exists.
    unsafe { PyInterpreterState_GetID(interpreter.cast()) }
}

/// Whether the GIL is on; always, but in free-threaded builds. Asks `sys._is_gil_enabled`, the only
/// public way.
pub fn gil_enabled() -> bool {
    #[cfg(not(Py_GIL_DISABLED))]
    return true;
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: a thread state is attached; references are dropped as they are made.
    unsafe {
        let function = PySys_GetObject(c"_is_gil_enabled".as_ptr());
        if function.is_null() {
            return true;
        }
        let answer = PyObject_CallNoArgs(function);
        if answer.is_null() {
            PyErr_Clear();
            return true;
        }
        let enabled = PyObject_IsTrue(answer) == 1;
        Py_DecRef(answer);
        enabled
    }
}

/// How a thread tells what it waits for, in a free-threaded build; `None` elsewhere, and where a thread
/// state does not look as it does in every known one.
fn thread_states() -> Option<ThreadStates> {
    if !cfg!(Py_GIL_DISABLED) {
        return None;
    }
    // `struct _ts` of CPython's Include/cpython/pystate.h: `state` behind four pointers, `_status`,
    // from 3.14 on `holds_gil`, from 3.15 on `gil_requested`, and `_whence`.
    let ints_before = 2 + cfg!(Py_3_14) as usize + cfg!(Py_3_15) as usize;
    let state_offset = 4 * size_of::<*const ()>() + ints_before * size_of::<c_int>();
    // SAFETY: a symbol that every free-threaded CPython exports, as a function of the type of
    // `ThreadStates::current`. The thread state is this thread's, before and after it was detached.
    unsafe {
        let current = libc::dlsym(libc::RTLD_DEFAULT, c"PyThreadState_GetUnchecked".as_ptr());
        if current.is_null() {
            return None;
        }
        let current: unsafe extern "C" fn() -> *mut c_void = std::mem::transmute(current);
        let state = |thread_state: *mut PyThreadState| {
            AtomicI32::from_ptr(thread_state.cast::<u8>().add(state_offset).cast()).load(Relaxed)
        };
        let attached = state(current().cast());
        let thread_state = PyEval_SaveThread();
        let (detached, none) = (state(thread_state), current().is_null());
        PyEval_RestoreThread(thread_state);
        (attached == 1 && detached != 1 && none).then_some(ThreadStates { current, state_offset })
    }
}

/// The probe of `headway_gil::Host::contend`: a thread of our own takes the main GIL once, while we
/// hold it.
fn contend() -> bool {
    const PATIENCE: Duration = Duration::from_secs(10);
    // SAFETY: a thread state is attached. The new thread makes a state of its own, takes the GIL, and
    // deletes its state with the GIL, which drops it.
    unsafe {
        let interpreter = PyInterpreterState_Get() as usize;
        let made = Arc::new(Barrier::new(2));
        let held = Arc::clone(&made);
        let probe = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let state = PyThreadState_New(interpreter as *mut PyInterpreterState);
            made.wait();
            made.wait();
            headway_gil::this_thread_is_the_probe();
            PyEval_RestoreThread(state);
            PyThreadState_Clear(state);
            PyThreadState_DeleteCurrent();
        });
        let Ok(probe) = probe else { return false };
        // Free-threaded builds may stop the world to make a thread state, and would wait for us.
        let state = PyEval_SaveThread();
        held.wait();
        PyEval_RestoreThread(state);
        held.wait();
        let began = Instant::now();
        while !headway_gil::probe_waits() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
        let state = PyEval_SaveThread();
        let joined = probe.join().is_ok();
        PyEval_RestoreThread(state);
        joined && headway_gil::probe_waits()
    }
}
