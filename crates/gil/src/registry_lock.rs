//! The registry lock. It guards names, the aggregation of counters and the reuse of rows.
//!
//! A holder never waits for the GIL, for a GIL's mutex or for Python, so a thread that holds a GIL
//! may wait for the lock. A hook that holds a GIL's mutex never takes it. A thread that adds a GIL
//! to the table takes it after the lock of the table, never before.

use std::sync::atomic::{AtomicU32, Ordering::*};

use rustix::thread::futex::{self, Flags};

/// The lock.
///
/// | value | meaning |
/// |---|---|
/// | 0 | free |
/// | 1 | held, and no thread waits |
/// | 2 | held, and threads may wait: the holder wakes one |
///
/// Any thread changes it, with acquire and release. A forked child sets it to 0.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Holds the registry lock.
pub struct RegistryGuard(());

pub fn lock() -> RegistryGuard {
    if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        while LOCK.swap(2, Acquire) != 0 {
            // It returns after a wake, a changed word or a signal.
            let _ = futex::wait(&LOCK, Flags::PRIVATE, 2, None);
        }
    }
    RegistryGuard(())
}

impl Drop for RegistryGuard {
    fn drop(&mut self) {
        if LOCK.swap(0, Release) == 2 {
            // It cannot fail for a word of this process.
            let _ = futex::wake(&LOCK, Flags::PRIVATE, 1);
        }
    }
}

/// Clears the lock in a forked child, in which its holder does not exist.
pub fn forget_holder() {
    LOCK.store(0, Relaxed);
}
