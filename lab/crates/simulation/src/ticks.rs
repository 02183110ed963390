//! `ticks`: the GIL before CPython 3.2.

use headway_sched::Queue;
use headway_sched::{NEVER, Policy};
use headway_sched::{ThreadId, Threads};

/// The default of `sys.getcheckinterval()`, 100 ticks. A tick, about one bytecode, is taken as 50
/// ns.
pub const CHECK_NS: u64 = 100 * 50;

/// The holder drops the GIL every 100 ticks and at once tries to take it again. A waiter never
/// requests a drop: each drop wakes it, and it takes the GIL if it runs before the old holder is
/// back.
///
/// # Bound
/// None. A waiter may lose against a CPU-bound holder any number of times.
///
/// Source: `Python/ceval.c` of CPython 2.7; David Beazley, "Inside the Python GIL" (2009).
#[derive(Debug)]
pub struct Ticks {
    waiters: Queue,
}

impl Ticks {
    pub const fn new() -> Self {
        Self { waiters: Queue::new(1) }
    }
}

impl Default for Ticks {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Ticks {
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
        _threads: &T,
        _waiter: ThreadId,
        _holder: ThreadId,
        _now_ns: u64,
    ) -> u64 {
        NEVER
    }
}
