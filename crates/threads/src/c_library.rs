//! The differences between the C libraries, glibc and musl, as far as Headway must know them. All
//! other code of Headway holds for both. It writes `as _` for `time_t`, a name whose width the crate
//! `libc` is about to change for musl.
//!
//! | | glibc | musl |
//! |---|---|---|
//! | a function by its symbol version | `dlvsym` | symbols have no versions |
//! | pthread keys that need no allocation | the first 32 | all |
//! | memory arenas of `malloc` | several, `M_ARENA_MAX` limits them | one |
//! | `pthread_t` | a number | a pointer |
//! | `pthread_exit`, `pthread_cancel` | unwind the stack, by libgcc_s | unwind nothing |
//! | the stack of a thread that names no size | `RLIMIT_STACK` | 128 KiB, or `PT_GNU_STACK`'s |
//!
//! musl binds each symbol when it loads an object, never at the first call, and leaves the
//! addresses in the dynamic section as they are in the file.

use std::ffi::{CStr, c_ulong, c_void};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// Keys below this one need no allocation (glibc: `PTHREAD_KEY_2NDLEVEL_SIZE`, musl:
/// `PTHREAD_KEYS_MAX`).
#[cfg(target_env = "gnu")]
pub const KEYS_WITHOUT_ALLOCATION: libc::pthread_key_t = 32;
#[cfg(not(target_env = "gnu"))]
pub const KEYS_WITHOUT_ALLOCATION: libc::pthread_key_t = 128;

/// The stack of a thread of Headway's that runs Python code, where the C library gives one that
/// CPython cannot work in; `None` where its own choice will do.
#[cfg(target_env = "gnu")]
pub const PYTHON_STACK_BYTES: Option<usize> = None;
#[cfg(not(target_env = "gnu"))]
pub const PYTHON_STACK_BYTES: Option<usize> = Some(1024 * 1024);

/// The address of the function that the dynamic linker binds a symbol of the program to, including
/// those of LD_PRELOAD; null if there is none.
pub fn function(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    match version {
        #[cfg(target_env = "gnu")]
        // SAFETY: the arguments are C strings.
        Some(version) => unsafe {
            libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr())
        },
        // SAFETY: the argument is a C string.
        _ => unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) },
    }
}

/// From now on no thread gets a memory arena of its own.
pub fn share_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt sets a number that malloc reads under a lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// The number by which CPython identifies a thread: its `pthread_t`.
pub type ThreadNumber = c_ulong;

pub fn number_of_this_thread() -> ThreadNumber {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() as ThreadNumber }
}

/// Gives a thread that was not joined the kernel's name of it, of up to 15 bytes.
pub fn name_thread<T>(handle: &JoinHandle<T>, name: &CStr) {
    // SAFETY: the caller has the handle, so the thread's identity is valid.
    unsafe { libc::pthread_setname_np(handle.as_pthread_t() as libc::pthread_t, name.as_ptr()) };
}
