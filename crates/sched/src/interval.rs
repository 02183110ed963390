//! `interval`: CPython's own scheduling since 3.2.

use crate::policy::{NEVER, Policy};
use crate::queue::Queue;
use crate::thread::{ThreadId, Threads};

/// A waiter requests a drop after one switch interval without a switch. CPython leaves it to the
/// operating system which thread then gets the GIL; here it is the thread that has waited longest.
///
/// # Bound
/// The policy cannot state one. A thread that waits behind `n` CPU-bound threads gets the GIL after
/// about `n` intervals, unless another thread takes the GIL in the moment between a drop and the
/// waiter's wakeup. Threads with frequent I/O often do, and CPython allows it.
///
/// Source: `take_gil` in CPython's `Python/ceval_gil.c`.
#[derive(Debug)]
pub struct Interval {
    waiters: Queue,
}

impl Interval {
    pub const fn new() -> Self {
        Self { waiters: Queue::new(1) }
    }
}

impl Default for Interval {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Interval {
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, _now_ns: u64) {
        self.waiters.insert(threads, waiter, |threads, id| threads[id].waiting_since_ns);
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        self.waiters.remove(threads, waiter);
    }

    fn next<T: Threads>(&self, _threads: &T, _now_ns: u64) -> Option<ThreadId> {
        self.waiters.first()
    }

    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64 {
        let waiter = &threads[waiter];
        if waiter.waiting_since_ns == 0 {
            return NEVER;
        }
        // Timed waits of one interval follow each other. A timed wait in which a switch happened
        // ends without a request.
        let interval_ns = waiter.interval_ns.max(1);
        let rounds_until =
            |time_ns: u64| time_ns.saturating_sub(waiter.waiting_since_ns).div_ceil(interval_ns);
        let taken_ns = threads[holder].taken_ns;
        let round = match taken_ns > waiter.waiting_since_ns {
            true => rounds_until(taken_ns) + 1,
            false => 1,
        };
        let end_ns = waiter.waiting_since_ns + round * interval_ns;
        match end_ns <= now_ns {
            true => now_ns,
            false => end_ns,
        }
    }
}
