//! How a thread waits to be called: spinning for a moment, then asleep.
//!
//! One word for each thread and GIL. The thread itself prepares it with the GIL's mutex held, lets go of the
//! mutex and parks; who holds the mutex calls it. Knows nothing of GILs, books or policies.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use headway_measure::clock::now_ns;

/// A word that threads can sleep on: a futex, or a model of one. Its operations are sequentially
/// consistent.
pub trait Word {
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    /// Whether the word was `from` and is now `to`.
    fn change(&self, from: u32, to: u32) -> bool;
    /// Sleeps while the word is `value`, until `until_ns` at the latest; `false` if it is that late. May
    /// return early.
    fn sleep(&self, value: u32, until_ns: u64) -> bool;
    /// Wakes up to so many of the threads that sleep on it.
    fn wake(&self, threads: i32);
    /// Spins until `done`, for `spin_ns` at most. Whether it was done.
    fn spin(&self, spin_ns: u64, done: impl Fn() -> bool) -> bool;
}

/// The word's values.
///
/// | value | meaning | set by |
/// |---|---|---|
/// | `AWAKE` | its thread will look at the word before it sleeps | the thread, GIL's mutex held |
/// | `ASLEEP` | its thread sleeps, or is about to: it needs a wake | the thread, from `AWAKE` |
/// | `CALLED` | its thread is to take the mutex and look again | the mutex's holder, or an uninstall |
///
/// A word that nobody waits on keeps whatever value it had; calling it is harmless.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const CALLED: u32 = 2;

/// Before the mutex is let go of.
pub fn prepare(word: &impl Word) {
    word.store(AWAKE);
}

/// Waits to be called, `until_ns` at the latest; for the first `spin_ns` without sleep. Whether it was
/// called. The caller has prepared the word and holds no mutex.
pub fn park(word: &impl Word, spin_ns: u64, until_ns: u64) -> bool {
    if spin_ns > 0 && word.spin(spin_ns, || word.load() != AWAKE) {
        return true;
    }
    if !word.change(AWAKE, ASLEEP) {
        return true;
    }
    while word.load() == ASLEEP {
        if !word.sleep(ASLEEP, until_ns) {
            return false;
        }
    }
    true
}

/// Calls the thread that waits on `word`.
pub fn call(word: &impl Word) {
    if word.swap(CALLED) == ASLEEP {
        word.wake(1);
    }
}

/// A futex of this process.
#[repr(align(64))]
pub struct Futex(AtomicU32);

impl Futex {
    pub const fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }
}

impl Word for Futex {
    fn load(&self) -> u32 {
        self.0.load(SeqCst)
    }

    fn store(&self, value: u32) {
        self.0.store(value, SeqCst);
    }

    fn swap(&self, value: u32) -> u32 {
        self.0.swap(value, SeqCst)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn sleep(&self, value: u32, until_ns: u64) -> bool {
        let until = libc::timespec {
            tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
        };
        // WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, WAIT a relative one.
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let (word, none) = (self.0.as_ptr(), std::ptr::null::<u32>());
        keeping_errno(|| {
            // SAFETY: the word is static; `until` lives until the call returns.
            unsafe {
                libc::syscall(libc::SYS_futex, word, operation, value, &until, none, u32::MAX)
            }
        }) != libc::ETIMEDOUT
    }

    fn wake(&self, threads: i32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is static.
        keeping_errno(|| unsafe {
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, threads)
        });
    }

    fn spin(&self, spin_ns: u64, done: impl Fn() -> bool) -> bool {
        const LOOKS_PER_CLOCK_READ: u32 = 16;
        let end_ns = now_ns() + spin_ns;
        loop {
            for _ in 0..LOOKS_PER_CLOCK_READ {
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

/// The error of a system call, or 0. Leaves errno as it was.
pub fn keeping_errno(call: impl FnOnce() -> libc::c_long) -> c_int {
    // SAFETY: the address of the calling thread's errno.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let failed = call() == -1;
        let error = if failed { *errno } else { 0 };
        *errno = before;
        error
    }
}
