//! The word that threads of Headway sleep on.
//!
//! It is a futex, which a signal handler may wake and the program cannot close. A descriptor is
//! unsuitable: some programs, such as daemons, close all open descriptors and reuse their numbers,
//! and no check distinguishes one eventfd from another before it is written to or closed.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

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
    // It cannot fail for a word of this process.
    let _ = futex::wake(&WAKES, Flags::PRIVATE, i32::MAX as u32);
}

/// Sleeps until the wake-up after `wakes`, for `timeout` at most. May return early.
pub fn sleep_while(wakes: u32, timeout: Duration) {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // A wake-up, a timeout, a signal and a word that has changed are all the same to the caller.
    let _ = futex::wait(&WAKES, Flags::PRIVATE, wakes, Some(&timeout));
}
