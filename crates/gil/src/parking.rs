//! How a thread waits to be called: spinning for a moment, then asleep.
//!
//! One word for each thread and GIL. The thread itself prepares it with the GIL's mutex held, lets go of the
//! mutex and parks; who holds the mutex calls it. Knows nothing of GILs, books or policies.

use std::sync::atomic::{AtomicU32, Ordering::*};

use super::clock::now_ns;

/// A word that a thread can sleep on: a futex, or a model of one.
pub trait Word {
    fn load(&self) -> u32;
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    /// Whether the word was `from` and is now `to`.
    fn change(&self, from: u32, to: u32) -> bool;
    /// Sleeps while the word is `value`, until `until_ns` at the latest. May return early.
    fn sleep(&self, value: u32, until_ns: u64);
    fn wake(&self);
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
    if spin_ns > 0 && spin(spin_ns, || word.load() != AWAKE) {
        return true;
    }
    if !word.change(AWAKE, ASLEEP) {
        return true;
    }
    while word.load() == ASLEEP {
        if now_ns() >= until_ns {
            return false;
        }
        word.sleep(ASLEEP, until_ns);
    }
    true
}

/// Calls the thread that waits on `word`. Whether it slept.
pub fn call(word: &impl Word) -> bool {
    let asleep = word.swap(CALLED) == ASLEEP;
    if asleep {
        word.wake();
    }
    asleep
}

/// Spins until `done`, for `spin_ns` at most. Whether it was done.
pub fn spin(spin_ns: u64, done: impl Fn() -> bool) -> bool {
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

/// A futex of this process.
#[repr(align(64))]
pub struct Futex(pub AtomicU32);

impl Futex {
    pub const fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }
}

impl Word for Futex {
    fn load(&self) -> u32 {
        self.0.load(Acquire)
    }

    fn store(&self, value: u32) {
        self.0.store(value, Relaxed);
    }

    fn swap(&self, value: u32) -> u32 {
        self.0.swap(value, AcqRel)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    fn sleep(&self, value: u32, until_ns: u64) {
        sleep_on(&self.0, value, until_ns);
    }

    fn wake(&self) {
        wake_on(&self.0, 1);
    }
}

/// Sleeps while `word` is `value`, until `until_ns` of the books' clock at the latest; keeps errno.
pub fn sleep_on(word: &AtomicU32, value: u32, until_ns: u64) {
    let until = libc::timespec {
        tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
    };
    // WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, WAIT a relative one.
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    keeping_errno(|| {
        let none = std::ptr::null::<u32>();
        // SAFETY: the word is static; `until` lives until the call returns.
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &until, none, u32::MAX)
        };
    });
}

/// Wakes up to `count` threads that sleep on `word`; keeps errno.
pub fn wake_on(word: &AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    keeping_errno(|| {
        // SAFETY: the word is static.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, count) };
    });
}

fn keeping_errno(call: impl FnOnce()) {
    // SAFETY: the address of the calling thread's errno.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        call();
        *errno = before;
    }
}
