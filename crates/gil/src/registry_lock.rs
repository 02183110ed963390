//! The registry lock. It guards names, the aggregation of counters and the reuse of rows.
//!
//! A holder never waits for the GIL, for a GIL's mutex or for Python, so a thread that holds a GIL
//! may wait for the lock. A hook that holds a GIL's mutex never takes it. A thread that adds a GIL
//! to the table takes it after the lock of the table, never before.

use std::sync::atomic::{AtomicU32, Ordering::*};

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
            futex(libc::FUTEX_WAIT, 2);
        }
    }
    RegistryGuard(())
}

impl Drop for RegistryGuard {
    fn drop(&mut self) {
        if LOCK.swap(0, Release) == 2 {
            futex(libc::FUTEX_WAKE, 1);
        }
    }
}

/// Clears the lock in a forked child, in which its holder does not exist.
pub fn forget_holder() {
    LOCK.store(0, Relaxed);
}

fn futex(operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static. A wait without a timeout returns after a wake, a changed word or
    // a signal, and the caller checks the word again.
    unsafe { libc::syscall(libc::SYS_futex, LOCK.as_ptr(), operation, value, 0, 0, 0) };
}
