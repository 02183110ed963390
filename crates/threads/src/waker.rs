//! Ends the wait of one thread of Headway before its time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Instant;

use crate::process_end::ProcessEnd;
use crate::wakes::{self, wake_all};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Over,
    BySignal,
    /// No thread but those of Headway is left: the thread must return.
    ProcessEnd,
}

/// The number of the waker that a signal handler woke, or 0. Set by `wake_for_signal`, reset by the
/// thread that waits. `SeqCst`, like the other words here: wake-ups are rare.
static WOKEN_FOR_SIGNAL: AtomicU32 = AtomicU32::new(0);
/// The number that the next waker gets.
static NEXT: AtomicU32 = AtomicU32::new(1);

pub struct Waker {
    number: u32,
    /// The thread must end. Set by `wake`, reset by the thread that waits.
    is_over: AtomicBool,
}

impl Default for Waker {
    fn default() -> Self {
        Self { number: NEXT.fetch_add(1, SeqCst), is_over: AtomicBool::new(false) }
    }
}

impl Waker {
    /// The argument for `wake_for_signal`, unique in this process.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn wake(&self) {
        self.is_over.store(true, SeqCst);
        wake_all();
    }

    /// Waits until the waker is woken, the process ends or `due`, and returns `None` in the last
    /// case. `end` is the calling thread's.
    pub fn wait_until(&self, due: Instant, end: &mut ProcessEnd) -> Option<Woken> {
        loop {
            // Read before the flags, so that a later wake-up ends the sleep.
            let wakes = wakes::count();
            if WOKEN_FOR_SIGNAL.compare_exchange(self.number, 0, SeqCst, SeqCst).is_ok() {
                return Some(Woken::BySignal);
            }
            if self.is_over.swap(false, SeqCst) {
                return Some(Woken::Over);
            }
            if end.is_here() {
                return Some(Woken::ProcessEnd);
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            wakes::sleep_while(wakes, left.min(end.next_look_in()));
        }
    }
}

/// Makes the reporter whose waker has this number report the end. For the handler of a signal that
/// ends the process. Async-signal-safe; the handler must preserve errno.
pub fn wake_for_signal(number: u32) {
    WOKEN_FOR_SIGNAL.store(number, SeqCst);
    wake_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_waker_wakes_once_for_each_reason() {
        let (waker, other) = (Waker::default(), Waker::default());
        let due = Instant::now() + Duration::from_secs(20);
        let end = &mut ProcessEnd::watch();
        waker.wake();
        assert_eq!(other.wait_until(Instant::now(), end), None);
        assert_eq!(waker.wait_until(due, end), Some(Woken::Over));
        assert_eq!(waker.wait_until(Instant::now(), end), None);
        wake_for_signal(waker.number());
        assert_eq!(other.wait_until(Instant::now(), end), None);
        assert_eq!(waker.wait_until(due, end), Some(Woken::BySignal));
        assert_eq!(waker.wait_until(Instant::now(), end), None);
    }

    #[test]
    fn a_wake_up_ends_a_sleep() {
        let (waker, due) = (&Waker::default(), Instant::now() + Duration::from_secs(20));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || waker.wait_until(due, &mut ProcessEnd::watch()));
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
            assert_eq!(sleeper.join().unwrap(), Some(Woken::Over));
            assert!(Instant::now() < due);
        });
    }
}
