//! Wakes the reporter's thread before a tick is due.
//!
//! The waker is a futex, which a signal handler may wake and the program cannot close. A descriptor
//! is unsuitable: some programs, such as daemons, close all open descriptors and reuse their
//! numbers, and no check distinguishes one eventfd from another before it is written to or closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Over,
    BySignal,
}

/// The word that threads sleep on; it counts the wake-ups of all wakers of the process. Written by
/// any thread and by signal handlers, read by the threads that wait. `SeqCst`, like the other words
/// here: wake-ups are rare.
static WAKES: AtomicU32 = AtomicU32::new(0);
/// The number of the waker that a signal handler woke, or 0. Set by `wake_for_signal`, reset by the
/// thread that waits.
static WOKEN_FOR_SIGNAL: AtomicU32 = AtomicU32::new(0);
/// The number that the next waker gets.
static NEXT: AtomicU32 = AtomicU32::new(1);

pub struct Waker {
    number: u32,
    /// The thread must end. Set by `wake`, reset by the thread that waits.
    is_over: AtomicBool,
}

impl Waker {
    pub fn new() -> Self {
        Self { number: NEXT.fetch_add(1, SeqCst), is_over: AtomicBool::new(false) }
    }

    /// The argument for `wake_for_signal`, unique in this process.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn wake(&self) {
        self.is_over.store(true, SeqCst);
        wake_all();
    }

    /// Waits until the waker is woken or until `due`, and returns `None` in the latter case.
    pub fn wait_until(&self, due: Instant) -> Option<Woken> {
        loop {
            // Read before the flags, so that a later wake-up ends the sleep.
            let wakes = WAKES.load(SeqCst);
            if WOKEN_FOR_SIGNAL.compare_exchange(self.number, 0, SeqCst, SeqCst).is_ok() {
                return Some(Woken::BySignal);
            }
            if self.is_over.swap(false, SeqCst) {
                return Some(Woken::Over);
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            sleep_while(wakes, left);
        }
    }
}

/// Makes the reporter whose waker has this number report the end. For the handler of a signal that
/// ends the process. Async-signal-safe; the handler must preserve errno.
pub fn wake_for_signal(number: u32) {
    WOKEN_FOR_SIGNAL.store(number, SeqCst);
    wake_all();
}

fn wake_all() {
    WAKES.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static.
    unsafe { libc::syscall(libc::SYS_futex, WAKES.as_ptr(), operation, i32::MAX) };
}

/// Sleeps until the next wake-up, for `timeout` at most. May return early.
fn sleep_while(wakes: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, and the timeout outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, WAKES.as_ptr(), operation, wakes, &raw const timeout) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_wakes_once_for_each_reason() {
        let (waker, other) = (Waker::new(), Waker::new());
        let due = Instant::now() + Duration::from_secs(20);
        waker.wake();
        assert_eq!(other.wait_until(Instant::now()), None);
        assert_eq!(waker.wait_until(due), Some(Woken::Over));
        assert_eq!(waker.wait_until(Instant::now()), None);
        wake_for_signal(waker.number());
        assert_eq!(other.wait_until(Instant::now()), None);
        assert_eq!(waker.wait_until(due), Some(Woken::BySignal));
        assert_eq!(waker.wait_until(Instant::now()), None);
    }

    #[test]
    fn a_wake_up_ends_a_sleep() {
        let (waker, due) = (&Waker::new(), Instant::now() + Duration::from_secs(20));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || waker.wait_until(due));
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
            assert_eq!(sleeper.join().unwrap(), Some(Woken::Over));
            assert!(Instant::now() < due);
        });
    }
}
