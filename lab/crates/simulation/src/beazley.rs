//! `beazley`: David Beazley's patch for bpo-7946.

use headway_sched::Policy;
use headway_sched::Queue;
use headway_sched::{ThreadId, Threads};

/// The mark of a thread whose last drop was forced.
const CPU_BOUND: u32 = 1;

/// A thread that was forced to drop is CPU-bound from then on, a thread that drops voluntarily is
/// I/O-bound; all threads begin as I/O-bound. An I/O-bound waiter requests a drop from a CPU-bound
/// holder at once, and goes first; between threads of the same class, the switch interval applies.
///
/// # Bound
/// None. I/O-bound threads can keep CPU-bound threads waiting without limit, and a thread that
/// computes but sometimes drops the GIL for a moment counts as I/O-bound.
///
/// Source: David Beazley's patch, as the issue bpo-7946 and seed 002 describe it.
#[derive(Debug)]
pub struct Beazley {
    io_bound: Queue,
    cpu_bound: Queue,
}

impl Beazley {
    pub const fn new() -> Self {
        Self { io_bound: Queue::new(1), cpu_bound: Queue::new(2) }
    }
}

impl Default for Beazley {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Beazley {
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, _now_ns: u64) {
        let queue = match threads[waiter].mark {
            CPU_BOUND => &mut self.cpu_bound,
            _ => &mut self.io_bound,
        };
        queue.insert(threads, waiter, |threads, id| threads[id].waiting_since_ns);
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        self.io_bound.remove(threads, waiter);
        self.cpu_bound.remove(threads, waiter);
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, _now_ns: u64) {
        let thread = &mut threads[thread];
        thread.mark = if thread.was_forced { CPU_BOUND } else { 0 };
    }

    fn next<T: Threads>(&self, _threads: &T, _now_ns: u64) -> Option<ThreadId> {
        self.io_bound.first().or_else(|| self.cpu_bound.first())
    }

    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64 {
        if self.io_bound.has(threads, waiter) && threads[holder].mark == CPU_BOUND {
            return now_ns;
        }
        let waiter = &threads[waiter];
        waiter.waiting_since_ns.max(threads[holder].taken_ns) + waiter.interval_ns
    }
}
