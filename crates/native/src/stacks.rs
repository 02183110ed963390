//! `_native.stacks_*`: Python stacks of threads, without the GIL; see `headway.meter.stacks`.

use headway_python::attached::Attached;
use headway_python::convert::{ToPython, arguments, tuple};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use headway_reporter::stacks;
use help::prepare;
use std::time::Duration;

pub static FUNCTIONS: Methods<5> = Methods::new([
    function(
        c"stacks_open",
        open,
        c"stacks_open() -> (signal, fd)\n\
          \n\
          Returns a signal without a handler, and the descriptor to which a thread writes its\n\
          stack when it gets the signal. Both are kept. Raises OSError if there is none.",
    ),
    function(
        c"stacks_register",
        register,
        c"stacks_register() -> bool\n\
          \n\
          Enables stacks_read(), if faulthandler is registered for the signal and the descriptor\n\
          that stacks_open() returned.",
    ),
    function(
        c"stacks_read",
        read,
        c"stacks_read(native_id: int, patience_ns: int) -> str\n\
          \n\
          Returns the Python stack of another thread, one line per call, most recent call first.\n\
          Raises RuntimeError with the reason if there is none.",
    ),
    function(
        c"stacks_end",
        end,
        c"stacks_end()\n\
          \n\
          Ends the reading of stacks, before the interpreter finalizes.",
    ),
    END,
]);

fn open<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    match stacks::open() {
        Ok((signal, fd)) => tuple(py, &[&signal, &fd]),
        Err(error) => Err(Exception::OSError.raise(py, &error.to_string())),
    }
}

fn register<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    prepare(py).is_some_and(|around| stacks::register(around).is_ok()).to_python(py)
}

fn read<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (native_id, patience_ns): (u32, u64) = arguments(py, "stacks_read", given)?;
    match py.detach(|| stacks::read(native_id, Duration::from_nanos(patience_ns))) {
        Ok(stack) => Object::from_latin1(py, stack.calls.as_bytes()),
        Err(missing) => Err(Exception::RuntimeError.raise(py, missing.as_str())),
    }
}

fn end<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    py.detach(stacks::end);
    Ok(Object::none(py))
}

/// faulthandler uses a thread state that CPython stores for it: up to 3.11 the thread's first one,
/// whatever interpreter the thread is in; from 3.12 on the attached one.
#[cfg(not(Py_3_12))]
mod help {
    use super::*;
    use headway_python::c_api::PyGILState_GetThisThreadState;
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// The pthread key of that state. Writer: `prepare`, before the first stack is read. Readers:
    /// threads in the signal handler. `SeqCst`.
    static KEY: AtomicU32 = AtomicU32::new(0);

    /// Finds the key.
    pub fn prepare(_: Attached) -> Option<stacks::Around> {
        const PTHREAD_KEYS_MAX: u32 = 1024;
        // SAFETY: a thread state is attached. Keys that were never made have no value. A key with
        // this value gets it back at once; the key is CPython's if CPython finds no state
        // meanwhile.
        let key = unsafe {
            let state = PyGILState_GetThisThreadState();
            (0..PTHREAD_KEYS_MAX).find(|&key| {
                if state.is_null() || libc::pthread_getspecific(key) != state.cast() {
                    return false;
                }
                libc::pthread_setspecific(key, ptr::null());
                let is_key = PyGILState_GetThisThreadState().is_null();
                libc::pthread_setspecific(key, state.cast());
                is_key
            })
        };
        KEY.store(key?, SeqCst);
        Some(with_state)
    }

    fn with_state(state: *mut c_void, write: &dyn Fn()) {
        if state.is_null() {
            return write();
        }
        let key = KEY.load(SeqCst);
        // SAFETY: the key is CPython's, and had a value in this thread, so that setting it is a
        // store. The value has no destructor.
        unsafe {
            let before = libc::pthread_getspecific(key);
            libc::pthread_setspecific(key, state);
            write();
            libc::pthread_setspecific(key, before);
        }
    }
}

/// In 3.12 and 3.13 a thread that returns to C from Python has an entry frame as its current frame
/// while it clears the frame that it leaves. faulthandler takes the entry frame for a frame with
/// code; in 3.13.0 it has none, and faulthandler crashes. So the next frame is made the current one
/// while faulthandler runs.
#[cfg(all(Py_3_12, not(Py_3_14)))]
mod help {
    use super::*;
    use headway_python::c_api::*;
    use std::ffi::c_void;
    use std::mem::size_of;

    /// The offset in `PyThreadState`: of `current_frame` in 3.13, and in 3.12 of `cframe`, whose
    /// first field is `current_frame`.
    const CURRENT_FRAME_AT: usize = if cfg!(Py_3_13) { 72 } else { 56 };
    /// Offsets in `_PyInterpreterFrame`.
    const PREVIOUS_AT: usize = 8;
    const OWNER_AT: usize = 70;
    const OWNED_BY_C_STACK: u8 = 3;
    /// The offset of the `_PyInterpreterFrame` in `PyFrameObject`.
    const FRAME_AT: usize = size_of::<PyObject>() + size_of::<*mut PyObject>();

    /// Checks the offsets: a Python function calls this, and its frame must be at the expected
    /// address.
    pub fn prepare(_: Attached) -> Option<stacks::Around> {
        // SAFETY: a live state, and a frame object that the call keeps alive, if there is one. The
        // frame is read only if its address is the expected one.
        unsafe {
            let frame = PyEval_GetFrame().cast::<u8>();
            if frame.is_null() {
                return None;
            }
            let expected = frame.add(FRAME_AT).cast::<*mut u8>().read();
            let found = *current_frame(PyThreadState_Get().cast());
            (found == expected && *found.add(OWNER_AT) != OWNED_BY_C_STACK)
                .then_some(beyond_entries)
        }
    }

    /// # Safety
    /// `state` is a live thread state of the calling thread.
    unsafe fn current_frame(state: *mut u8) -> *mut *mut u8 {
        // SAFETY: the caller's; `prepare` has checked the offset.
        unsafe {
            let place = state.add(CURRENT_FRAME_AT).cast::<*mut u8>();
            if cfg!(Py_3_13) { place } else { (*place).cast() }
        }
    }

    fn beyond_entries(_: *mut c_void, write: &dyn Fn()) {
        // SAFETY: reads a thread-local, as faulthandler's handler does.
        let state = unsafe { PyGILState_GetThisThreadState() };
        if state.is_null() {
            return write();
        }
        // SAFETY: the thread's own state and frames, while it does nothing else. Other threads may
        // read the current frame, with the GIL or with the world stopped, and find a valid one.
        unsafe {
            let place = current_frame(state.cast());
            let current = place.read_volatile();
            let mut frame = current;
            while !frame.is_null() && *frame.add(OWNER_AT) == OWNED_BY_C_STACK {
                frame = frame.add(PREVIOUS_AT).cast::<*mut u8>().read();
            }
            if frame.is_null() {
                return;
            }
            place.write_volatile(frame);
            write();
            place.write_volatile(current);
        }
    }
}

#[cfg(Py_3_14)]
mod help {
    use super::*;

    pub fn prepare(_: Attached) -> Option<stacks::Around> {
        Some(|_, write| write())
    }
}
