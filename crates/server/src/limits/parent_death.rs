//! The end of a process whose supervisor has gone.
//!
//! Its main thread learns so by a signal and from the control socket, and ends it gracefully; but Python
//! may never run again, where an extension keeps the GIL, or never end, where a thread of the
//! application's does not. Nobody is left who would kill it, so a thread that knows nothing of
//! Python gives it as long as the supervisor would have, and then ends it.

use crate::limits::Tenths;
use crate::limits::control::say_on_stderr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// As of a worker that cuts off a request.
const EXIT_STATUS: i32 = 1;

#[derive(Default)]
pub struct ParentDeathWatchdog {
    /// Whether the thread was started. The monitor's own; relaxed.
    is_known: AtomicBool,
}

impl ParentDeathWatchdog {
    pub fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// Ends the process in so long, whatever becomes of the server meanwhile. Where the system has no
    /// thread to give, the next call tries again.
    pub fn end_process_in(&self, timeout_ns: u64) {
        let thread = std::thread::Builder::new().name("headway-orphan".into());
        let spawned = thread.spawn(move || {
            std::thread::sleep(Duration::from_nanos(timeout_ns));
            say_on_stderr(&format!(
                "did not end within {} s after its supervisor had gone, and is cut off",
                Tenths(timeout_ns)
            ));
            // SAFETY: ends the process, and no handler of anybody's runs.
            unsafe { libc::_exit(EXIT_STATUS) }
        });
        self.is_known.store(spawned.is_ok(), Relaxed);
    }
}
