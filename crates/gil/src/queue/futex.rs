//! A futex: a word that threads can sleep on.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use headway_measure::clock::now_ns;

use crate::errno::error_of;

/// A futex of the kernel, or a model of one. Its operations are sequentially consistent.
pub trait Futex {
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    /// Replaces `from` by `to`. Returns whether the word was `from`.
    fn compare_exchange(&self, from: u32, to: u32) -> bool;
    /// Sleeps while the word is `value`, until `until_ns` at most. Returns false at that time. May
    /// return early.
    fn wait(&self, value: u32, until_ns: u64) -> bool;
    /// Wakes at most `threads` of the threads that sleep on the word.
    fn wake(&self, threads: i32);
    /// Spins until `done` returns true, for `spin_ns` at most. Returns whether it did.
    fn spin(&self, spin_ns: u64, done: impl Fn() -> bool) -> bool;
}

/// A futex of this process. Its user states the values, writers and readers.
pub struct ProcessFutex(AtomicU32);

impl ProcessFutex {
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
}

impl Futex for ProcessFutex {
    fn load(&self) -> u32 {
        self.0.load(SeqCst)
    }

    fn store(&self, value: u32) {
        self.0.store(value, SeqCst);
    }

    fn swap(&self, value: u32) -> u32 {
        self.0.swap(value, SeqCst)
    }

    fn compare_exchange(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn wait(&self, value: u32, until_ns: u64) -> bool {
        let until = libc::timespec {
            tv_sec: (until_ns / 1_000_000_000) as _,
            tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
        };
        // WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, WAIT a relative one.
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let (word, none) = (self.0.as_ptr(), std::ptr::null::<u32>());
        error_of(|| {
            // SAFETY: the word and `until` live until the call returns.
            unsafe {
                libc::syscall(libc::SYS_futex, word, operation, value, &until, none, u32::MAX)
            }
        }) != libc::ETIMEDOUT
    }

    fn wake(&self, threads: i32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word lives until the call returns.
        error_of(|| unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, threads) });
    }

    fn spin(&self, spin_ns: u64, done: impl Fn() -> bool) -> bool {
        const CHECKS_PER_CLOCK_READ: u32 = 16;
        let end_ns = now_ns() + spin_ns;
        loop {
            for _ in 0..CHECKS_PER_CLOCK_READ {
                if done() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if now_ns() >= end_ns {
                return false;
            }
        }
    }
}
