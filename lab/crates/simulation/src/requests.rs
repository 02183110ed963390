//! `requests`: priority requests, as in the first version of Antoine Pitrou's new GIL.

use headway_sched::Policy;
use headway_sched::Queue;
use headway_sched::{ThreadId, Threads};

/// The mark of a thread that returns from a call for which it dropped the GIL voluntarily.
const PRIORITY_REQUEST: u32 = 1;

/// A thread that returns from I/O makes a priority request: it requests a drop at once, and
/// precedes all other threads. Everything else is as in `interval`.
///
/// # Bound
/// None. A thread that makes one short call after another has the GIL whenever it wants, and two
/// such threads can keep all others from it.
///
/// Source: python-dev, October 2009 ("Reworking the GIL"); seed 003.
#[derive(Debug)]
pub struct Requests {
    requests: Queue,
    others: Queue,
}

impl Requests {
    pub const fn new() -> Self {
        Self { requests: Queue::new(1), others: Queue::new(2) }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Requests {
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, _now_ns: u64) {
        let queue = match threads[waiter].mark {
            PRIORITY_REQUEST => &mut self.requests,
            _ => &mut self.others,
        };
        queue.insert(threads, waiter, |threads, id| threads[id].waiting_since_ns);
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        self.requests.remove(threads, waiter);
        self.others.remove(threads, waiter);
    }

    fn take<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, _now_ns: u64) {
        threads[thread].mark = 0;
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, _now_ns: u64) {
        let thread = &mut threads[thread];
        thread.mark = if thread.was_forced { 0 } else { PRIORITY_REQUEST };
    }

    fn next<T: Threads>(&self, _threads: &T, _now_ns: u64) -> Option<ThreadId> {
        self.requests.first().or_else(|| self.others.first())
    }

    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64 {
        if self.requests.has(threads, waiter) {
            return now_ns;
        }
        let waiter = &threads[waiter];
        waiter.waiting_since_ns.max(threads[holder].taken_ns) + waiter.interval_ns
    }
}
