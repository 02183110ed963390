//! Forks of the program, for which the threads of Headway stop.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::process_end;

/// Whether a thread that is about to fork waits until the threads of Headway have stopped. Written
/// by that thread, read by the threads that it waits for. `SeqCst`: forks are rare.
static WAITS: AtomicBool = AtomicBool::new(false);
static CHILD_HANDLER: Once = Once::new();

/// Runs `stop`, which stops threads of Headway before a fork. They cut their waits short meanwhile.
pub fn wait_for(stop: impl FnOnce()) {
    WAITS.store(true, SeqCst);
    stop();
    WAITS.store(false, SeqCst);
}

/// Whether a fork waits for the calling thread.
pub fn waits() -> bool {
    WAITS.load(SeqCst)
}

/// Makes children of this process begin without threads of Headway. Called before the first one.
pub(crate) fn follow() {
    CHILD_HANDLER.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it stores to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
    });
}

extern "C" fn begin_child() {
    WAITS.store(false, SeqCst);
    process_end::forget_threads();
}
