//! Forks of the program, during which no thread of Headway works.
//!
//! Inside `fork()` the forking thread closes a gate, waits until the threads that are at work have
//! come to a halt, and opens the gate after the fork. So a child inherits none of their locks, and
//! a fork wakes no thread that sleeps. No code of the program runs while the gate is closed.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::process_end;
use crate::wakes::{self, wake_all};

/// Whether a thread waits for threads of Headway to end. Written by that thread, read by the
/// threads that it waits for. `SeqCst` here and below: forks and work are rare.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whether the gate is closed. Written by the threads that fork, one at a time (glibc holds a lock
/// around the handlers), read by threads before they work.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// The threads that work. Written by them, read by a thread that has closed the gate.
static AT_WORK: AtomicU32 = AtomicU32::new(0);
static HANDLERS: Once = Once::new();

/// After this time a fork goes on: a thread that is stopped, for example by a debugger, must not
/// stop the program. Work takes less than a millisecond.
const WAIT_LIMIT: Duration = Duration::from_secs(1);
/// The limit of a sleep here; a wake-up ends it earlier.
const SLEEP_LIMIT: Duration = Duration::from_millis(100);

/// Runs `end`, which waits for the end of threads. They cut their waits short meanwhile.
pub fn wait_for(end: impl FnOnce()) {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            WAITS.store(false, SeqCst);
        }
    }
    WAITS.store(true, SeqCst);
    let _waits = Waits;
    end();
}

/// Whether a fork, or `wait_for`, waits for the calling thread.
pub fn waits() -> bool {
    WAITS.load(SeqCst) || IS_CLOSED.load(SeqCst)
}

/// Runs `work`, which takes locks, while no thread forks. It takes no GIL, and runs no `work` of
/// its own.
pub fn work<T>(work: impl FnOnce() -> T) -> T {
    loop {
        // Read before the gate, so that its wake-up ends the sleep.
        let wakes = wakes::count();
        if IS_CLOSED.load(SeqCst) {
            wakes::sleep_while(wakes, SLEEP_LIMIT);
            continue;
        }
        let at_work = AtWork::begin();
        if !IS_CLOSED.load(SeqCst) {
            let result = work();
            drop(at_work);
            return result;
        }
    }
}

struct AtWork(());

impl AtWork {
    fn begin() -> Self {
        AT_WORK.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if AT_WORK.fetch_sub(1, SeqCst) == 1 && IS_CLOSED.load(SeqCst) {
            wake_all();
        }
    }
}

/// Keeps the threads of Headway out of all later forks. Called before the first one starts.
pub(crate) fn follow() {
    HANDLERS.call_once(|| {
        // SAFETY: the handlers stay loaded, and they are async-signal-safe: they use atomics and
        // futexes.
        unsafe { libc::pthread_atfork(Some(close_gate), Some(open_gate), Some(begin_child)) };
    });
}

/// Returns when no thread works; none begins until the gate is opened.
extern "C" fn close_gate() {
    let began = Instant::now();
    IS_CLOSED.store(true, SeqCst);
    while began.elapsed() < WAIT_LIMIT {
        // Read before the number of threads, so that a later wake-up ends the sleep.
        let wakes = wakes::count();
        if AT_WORK.load(SeqCst) == 0 {
            return;
        }
        wakes::sleep_while(wakes, SLEEP_LIMIT);
    }
}

extern "C" fn open_gate() {
    IS_CLOSED.store(false, SeqCst);
    wake_all();
}

extern "C" fn begin_child() {
    WAITS.store(false, SeqCst);
    IS_CLOSED.store(false, SeqCst);
    AT_WORK.store(0, SeqCst);
    process_end::forget_threads();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_works_while_the_gate_is_closed() {
        static WORKS: AtomicBool = AtomicBool::new(false);
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !IS_OVER.load(SeqCst) {
                        work(|| {
                            WORKS.store(true, SeqCst);
                            std::thread::yield_now();
                        });
                    }
                });
            }
            for _ in 0..200 {
                close_gate();
                WORKS.store(false, SeqCst);
                std::thread::yield_now();
                assert!(!WORKS.load(SeqCst));
                open_gate();
                while !WORKS.load(SeqCst) {
                    std::thread::yield_now();
                }
            }
            IS_OVER.store(true, SeqCst);
        });
    }
}
