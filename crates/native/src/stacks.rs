//! `_native.stacks_*`: Python stacks of threads, without the GIL; see `headway.stacks`.

use headway_python::object::{Object, raise, without_gil};
use headway_reporter::stacks;
use help::prepare;
use pyo3_ffi::*;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::time::Duration;

use crate::{Methods, method};

static METHODS: Methods<4> = Methods([
    method(
        c"stacks_open",
        open,
        c"stacks_open() -> (signal, fd)\n\
          A signal that nobody handles, and where to write the stack of the thread that gets it. OSError\n\
          if there is none. Both are kept.",
    ),
    method(
        c"stacks_register",
        register,
        c"stacks_register() -> bool\n\
          Stacks can be read from now on, if faulthandler is registered for what stacks_open returned.",
    ),
    method(
        c"stacks_read",
        read,
        c"stacks_read(native_id, patience_ns) -> str\n\
          The Python stack of another thread, one line per call, most recent call first. RuntimeError\n\
          says why there is none.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn open(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: an exception class of this interpreter; the format takes two ints.
    unsafe {
        match stacks::open() {
            Ok((signal, fd)) => Py_BuildValue(c"(ii)".as_ptr(), signal, fd),
            Err(error) => {
                raise(PyExc_OSError, &error.to_string());
                ptr::null_mut()
            }
        }
    }
}

unsafe extern "C" fn register(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let registered = prepare().is_some_and(|around| stacks::register(around).is_ok());
    // SAFETY: attached, as any function that Python calls.
    unsafe { PyBool_FromLong(registered.into()) }
}

/// CPython up to 3.11 keeps a thread's first state for faulthandler to find, whatever interpreter the thread is in; from
/// 3.12 on it is the one that is attached.
#[cfg(not(Py_3_12))]
mod help {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// The pthread key of that state. Written before the first stack is taken.
    static KEY: AtomicU32 = AtomicU32::new(0);

    /// Called attached.
    pub fn prepare() -> Option<stacks::Around> {
        const PTHREAD_KEYS_MAX: u32 = 1024;
        // SAFETY: attached. Keys that were never made have no value; one that has this value is given it
        // back at once, and it is CPython's if that finds none meanwhile.
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
        // SAFETY: the key is CPython's, and has had a value in this thread, so that setting it is a store.
        // No destructor runs on what is there.
        unsafe {
            let before = libc::pthread_getspecific(key);
            libc::pthread_setspecific(key, state);
            write();
            libc::pthread_setspecific(key, before);
        }
    }
}

/// In 3.12 and 3.13 a thread that comes back to C from Python has, while it clears the frame that it leaves, an entry
/// for the way back as its present frame. faulthandler takes that for a frame with code; in 3.13.0 there is none, and it
/// crashes. So the thread has the next one as its present frame for as long as that takes.
#[cfg(all(Py_3_12, not(Py_3_14)))]
mod help {
    use super::*;
    use std::mem::size_of;

    /// Of `PyThreadState`: in 3.13 `current_frame`, in 3.12 `cframe`, whose first field that is.
    const PRESENT_FRAME_AT: usize = if cfg!(Py_3_13) { 72 } else { 56 };
    /// Of `_PyInterpreterFrame`.
    const PREVIOUS_AT: usize = 8;
    const OWNER_AT: usize = 70;
    const OWNED_BY_C_STACK: u8 = 3;
    /// Of `PyFrameObject`, its `_PyInterpreterFrame`.
    const FRAME_AT: usize = size_of::<PyObject>() + size_of::<*mut PyObject>();

    /// Called attached, by a function of Python's: its frame must be found where it is expected.
    pub fn prepare() -> Option<stacks::Around> {
        // SAFETY: a live state, and a frame object that the call keeps alive, if there is one; what is read of
        // the frame is compared before it is used.
        unsafe {
            let frame = PyEval_GetFrame().cast::<u8>();
            if frame.is_null() {
                return None;
            }
            let expected = frame.add(FRAME_AT).cast::<*mut u8>().read();
            let found = *present_frame(PyThreadState_Get().cast());
            (found == expected && *found.add(OWNER_AT) != OWNED_BY_C_STACK)
                .then_some(beyond_entries)
        }
    }

    /// # Safety
    /// `state` is a live thread state, of the calling thread.
    unsafe fn present_frame(state: *mut u8) -> *mut *mut u8 {
        // SAFETY: as the caller promises, and `prepare` has checked the place.
        unsafe {
            let place = state.add(PRESENT_FRAME_AT).cast::<*mut u8>();
            if cfg!(Py_3_13) { place } else { (*place).cast() }
        }
    }

    fn beyond_entries(_: *mut c_void, write: &dyn Fn()) {
        // SAFETY: reads a thread-local, as faulthandler's handler does.
        let state = unsafe { PyGILState_GetThisThreadState() };
        if state.is_null() {
            return write();
        }
        // SAFETY: the thread's own state and frames, while it does nothing else. Others may look at the frame, with
        // the GIL or the world stopped, and find one that is as good.
        unsafe {
            let place = present_frame(state.cast());
            let present = place.read_volatile();
            let mut frame = present;
            while !frame.is_null() && *frame.add(OWNER_AT) == OWNED_BY_C_STACK {
                frame = frame.add(PREVIOUS_AT).cast::<*mut u8>().read();
            }
            if frame.is_null() {
                return;
            }
            place.write_volatile(frame);
            write();
            place.write_volatile(present);
        }
    }
}

#[cfg(Py_3_14)]
mod help {
    use super::*;

    pub fn prepare() -> Option<stacks::Around> {
        Some(|_, write| write())
    }
}

unsafe extern "C" fn read(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut native_id, mut patience_ns): (c_uint, u64) = (0, 0);
    // SAFETY: the format matches the places that follow it; the message's pointer and length are valid.
    unsafe {
        let format = c"IK:stacks_read".as_ptr();
        if PyArg_ParseTuple(arguments, format, &raw mut native_id, &raw mut patience_ns) == 0 {
            return ptr::null_mut();
        }
        let patience = Duration::from_nanos(patience_ns);
        match without_gil(|| stacks::read(native_id, patience)) {
            Ok(stack) => Object::from_latin1(stack.calls.as_bytes())
                .map_or(ptr::null_mut(), Object::into_ptr),
            Err(missing) => {
                raise(PyExc_RuntimeError, missing.as_str());
                ptr::null_mut()
            }
        }
    }
}
