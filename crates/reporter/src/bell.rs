//! Wakes the reporter's thread before its time.
//!
//! A futex: a signal handler may ring it, and the program cannot take it away. A descriptor would
//! not do. Programs close whatever descriptors are open (daemons do) and open their own under the
//! same numbers, and no check distinguishes one eventfd from another before it is written to or
//! closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    Over,
    BySignal,
}

/// Threads sleep on this word, which counts the rings of all bells of the process. Writers: all
/// who ring; readers: the threads of the bells. `SeqCst`, as everything here: it is rare.
static RINGS: AtomicU32 = AtomicU32::new(0);
/// The number of the bell that a signal rang, 0 if none. Set by `ring_for_signal`, taken back by
/// the bell's thread.
static RUNG_FOR_SIGNAL: AtomicU32 = AtomicU32::new(0);
/// The number that the next bell gets.
static NEXT: AtomicU32 = AtomicU32::new(1);

pub struct Bell {
    number: u32,
    /// The thread is to end. Set by `ring`, taken back by the thread.
    is_over: AtomicBool,
}

impl Bell {
    pub fn new() -> Self {
        Self { number: NEXT.fetch_add(1, SeqCst), is_over: AtomicBool::new(false) }
    }

    /// For `ring_for_signal`; of no other bell of this process.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn ring(&self) {
        self.is_over.store(true, SeqCst);
        wake_all();
    }

    /// `None` if it is time and nobody has rung.
    pub fn wait_until(&self, due: Instant) -> Option<Rung> {
        loop {
            // Before the flags are looked at: a ring that comes after that ends the sleep.
            let rings = RINGS.load(SeqCst);
            if RUNG_FOR_SIGNAL.compare_exchange(self.number, 0, SeqCst, SeqCst).is_ok() {
                return Some(Rung::BySignal);
            }
            if self.is_over.swap(false, SeqCst) {
                return Some(Rung::Over);
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            sleep_while(rings, left);
        }
    }
}

/// For the handler of a signal that ends the process: the reporter whose bell has this number
/// reports the end. Async-signal-safe; the handler keeps errno.
pub fn ring_for_signal(number: u32) {
    RUNG_FOR_SIGNAL.store(number, SeqCst);
    wake_all();
}

fn wake_all() {
    RINGS.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static.
    unsafe { libc::syscall(libc::SYS_futex, RINGS.as_ptr(), operation, i32::MAX) };
}

/// Sleeps while nobody rings, for so long at most. May return early.
fn sleep_while(rings: u32, patience: Duration) {
    let patience = libc::timespec {
        tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, and the time lives through the call.
    unsafe {
        libc::syscall(libc::SYS_futex, RINGS.as_ptr(), operation, rings, &raw const patience)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_once_for_each_reason() {
        let (bell, other) = (Bell::new(), Bell::new());
        let due = Instant::now() + Duration::from_secs(20);
        bell.ring();
        assert_eq!(other.wait_until(Instant::now()), None);
        assert_eq!(bell.wait_until(due), Some(Rung::Over));
        assert_eq!(bell.wait_until(Instant::now()), None);
        ring_for_signal(bell.number());
        assert_eq!(other.wait_until(Instant::now()), None);
        assert_eq!(bell.wait_until(due), Some(Rung::BySignal));
        assert_eq!(bell.wait_until(Instant::now()), None);
    }

    #[test]
    fn a_ring_wakes_a_thread_that_sleeps() {
        let (bell, due) = (&Bell::new(), Instant::now() + Duration::from_secs(20));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || bell.wait_until(due));
            std::thread::sleep(Duration::from_millis(20));
            bell.ring();
            assert_eq!(sleeper.join().unwrap(), Some(Rung::Over));
            assert!(Instant::now() < due);
        });
    }
}
