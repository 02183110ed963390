//! errno belongs to the program: hooks leave it as it was.

use std::ffi::c_int;

/// Runs `act` and restores errno.
pub fn preserving_errno<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the address of the calling thread's errno.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = act();
        *errno = before;
        result
    }
}

/// Returns the error of a system call, or 0, and restores errno.
pub fn error_of(call: impl FnOnce() -> libc::c_long) -> c_int {
    preserving_errno(|| match call() {
        // SAFETY: the address of the calling thread's errno.
        -1 => unsafe { *libc::__errno_location() },
        _ => 0,
    })
}
