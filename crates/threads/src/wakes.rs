//! The word that threads of Headway sleep on.
//!
//! It is a futex, which a signal handler may wake and the program cannot close. A descriptor is
//! unsuitable: some programs, such as daemons, close all open descriptors and reuse their numbers,
//! and no check distinguishes one eventfd from another before it is written to or closed.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Counts the wake-ups of the process. Written by any thread and by signal handlers, read by the
/// threads that sleep. `SeqCst`: wake-ups are rare.
static WAKES: AtomicU32 = AtomicU32::new(0);

/// The value for `sleep_while`.
pub fn count() -> u32 {
    WAKES.load(SeqCst)
}

/// Async-signal-safe.
pub fn wake_all() {
    WAKES.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static.
    unsafe { libc::syscall(libc::SYS_futex, WAKES.as_ptr(), operation, i32::MAX) };
}

/// Sleeps until the wake-up after `wakes`, for `timeout` at most. May return early.
pub fn sleep_while(wakes: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, and the timeout outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, WAKES.as_ptr(), operation, wakes, &raw const timeout) };
}
