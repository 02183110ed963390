//! The watchdog that ends a process whose supervisor is gone.
//!
//! The main thread notices the supervisor's death by a signal and on the control socket, and then
//! shuts the process down. But Python may never run again if an extension keeps the GIL, and the
//! shutdown may never finish if a thread of the application does not end. No supervisor is left to
//! kill the process. Therefore a thread that does not use Python waits as long as the supervisor
//! would have waited, and then ends the process.

use crate::stderr::Seconds;
use crate::stderr::log_to_stderr;
use headway_threads::internal_thread;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The exit status of a worker that aborts a request.
const EXIT_STATUS: i32 = 1;

#[derive(Default)]
pub struct ParentDeathWatchdog {
    /// Whether the watchdog's thread was started. Only the monitor reads and writes it; relaxed.
    is_running: AtomicBool,
}

impl ParentDeathWatchdog {
    pub fn is_running(&self) -> bool {
        self.is_running.load(Relaxed)
    }

    /// Ends the process after `timeout_ns`, whatever the server does meanwhile. If the system
    /// cannot create a thread, the next call tries again.
    pub fn end_process_in(&self, timeout_ns: u64) {
        let spawned = internal_thread::spawn("headway-orphan", move || {
            std::thread::sleep(Duration::from_nanos(timeout_ns));
            log_to_stderr(&format!(
                "did not end within {} s after its supervisor had gone, and is cut off",
                Seconds(timeout_ns)
            ));
            // SAFETY: `_exit` ends the process without running any exit handler.
            unsafe { libc::_exit(EXIT_STATUS) }
        });
        self.is_running.store(spawned.is_ok(), Relaxed);
    }
}
