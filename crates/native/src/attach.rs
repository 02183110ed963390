//! The function that gdb calls for `headway attach` in a process of CPython up to 3.13, which has
//! no interface for this: see `python/headway/attach/gdb.py`.

use headway_threads::c_library::PYTHON_STACK_BYTES;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

/// `Py_file_input` of CPython's compile.h: a module.
const FILE_INPUT: c_int = 257;

// `PyGILState_Ensure` ends the thread by `pthread_exit`, which unwinds, where Python is ending.
unsafe extern "C-unwind" {
    fn PyGILState_Ensure() -> c_int;
    fn PyGILState_Release(state: c_int);
    fn PyDict_New() -> *mut c_void;
    fn Py_IsInitialized() -> c_int;
    fn Py_DecRef(object: *mut c_void);
    fn PyErr_Clear();
    fn PyRun_StringFlags(
        code: *const c_char,
        start: c_int,
        globals: *mut c_void,
        locals: *mut c_void,
        flags: *mut c_void,
    ) -> *mut c_void;
}

unsafe extern "C" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

/// Starts a thread that runs the Python file `path`, and returns at once: 0, or an error number. A
/// file that is gone is not run. The thread receives no signal.
///
/// # Safety
/// `path` is a string. The calling thread has no lock of the allocator; it may have the GIL or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn headway_attach_run(path: *const c_char) -> c_int {
    // SAFETY: the caller passes a string.
    let path = unsafe { CStr::from_ptr(path) };
    let Ok(code) = std::fs::read(OsStr::from_bytes(path.to_bytes())) else { return 0 };
    let Ok(code) = CString::new(code) else { return libc::EINVAL };
    let code = code.into_raw();
    // SAFETY: all zero bytes are valid values of these types, which the calls fill. `run` owns the
    // code; without a thread it is owned here.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        if let Some(bytes) = PYTHON_STACK_BYTES {
            libc::pthread_attr_setstacksize(&mut attributes, bytes);
        }
        let error = pthread_create(&mut thread, &attributes, run, code.cast());
        libc::pthread_attr_destroy(&mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        if error != 0 {
            drop(CString::from_raw(code));
        }
        error
    }
}

/// Runs the code in a namespace of its own.
///
/// # Safety
/// `code` is that of `CString::into_raw`.
unsafe extern "C-unwind" fn run(code: *mut c_void) -> *mut c_void {
    // No value of this frame has a destructor, which an unwinding would run.
    // SAFETY: the thread has no thread state, and gives back the one that it gets. It owns the
    // references and the code.
    unsafe {
        if Py_IsInitialized() == 0 {
            // An embedder's program before or after its Python.
            return null_mut();
        }
        let state = PyGILState_Ensure();
        let names = PyDict_New();
        let result = PyRun_StringFlags(code.cast(), FILE_INPUT, names, names, null_mut());
        if result.is_null() {
            PyErr_Clear();
        }
        Py_DecRef(result);
        Py_DecRef(names);
        PyGILState_Release(state);
        drop(CString::from_raw(code.cast()));
    }
    null_mut()
}
