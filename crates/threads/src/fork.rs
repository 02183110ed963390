//! Forks of the program, during which no thread of Headway works.
//!
//! A thread that forks closes a gate, waits until the threads of Headway that are at work have come
//! to a halt, and opens the gate after the fork. So a child inherits none of their locks, and a
//! fork wakes no thread that sleeps.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::process_end;
use crate::wakes::{self, wake_all};

/// Whether a thread that is about to fork waits for threads of Headway. Written by that thread,
/// read by the threads that it waits for. `SeqCst` here and below: forks and work are rare.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whether the gate is closed. Written by the threads that fork, read by threads before they work.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// The threads that work. Written by them, read by a thread that has closed the gate.
static AT_WORK: AtomicU32 = AtomicU32::new(0);
static CHILD_HANDLER: Once = Once::new();

/// The limit of a sleep here; a wake-up ends it earlier.
const SLEEP_LIMIT: Duration = Duration::from_millis(100);

/// Runs `halt`, which stops threads of Headway before a fork. They cut their waits short meanwhile.
pub fn wait_for(halt: impl FnOnce()) {
    WAITS.store(true, SeqCst);
    halt();
    WAITS.store(false, SeqCst);
}

/// Whether a fork waits for the calling thread.
pub fn waits() -> bool {
    WAITS.load(SeqCst)
}

/// Returns when no thread works; none begins until the gate is opened.
pub fn close_gate() {
    IS_CLOSED.store(true, SeqCst);
    loop {
        // Read before the number of threads, so that a later wake-up ends the sleep.
        let wakes = wakes::count();
        if AT_WORK.load(SeqCst) == 0 {
            return;
        }
        wakes::sleep_while(wakes, SLEEP_LIMIT);
    }
}

pub fn open_gate() {
    if IS_CLOSED.swap(false, SeqCst) {
        wake_all();
    }
}

/// Runs `work`, which takes locks, while no thread forks.
pub fn work<T>(work: impl FnOnce() -> T) -> T {
    loop {
        let at_work = AtWork::begin();
        if !IS_CLOSED.load(SeqCst) {
            return work();
        }
        drop(at_work);
        // Read before the gate, so that its wake-up ends the sleep.
        let wakes = wakes::count();
        if IS_CLOSED.load(SeqCst) {
            wakes::sleep_while(wakes, SLEEP_LIMIT);
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
        AT_WORK.fetch_sub(1, SeqCst);
        if IS_CLOSED.load(SeqCst) {
            wake_all();
        }
    }
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
