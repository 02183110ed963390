//! `deadline`: virtual deadlines.

use crate::policy::Policy;
use crate::queue::Queue;
use crate::thread::{ThreadId, Threads};

/// A thread's deadline is so many of its slices after the slice began.
const DEADLINE_SLICES: u64 = 8;
/// A holder that has just come back from voluntary absence is left alone for so long: most such
/// bursts are over by then.
const SHORT_BURST_NS: u64 = 200_000;

/// Every thread has a slice of GIL time, one switch interval long, and a deadline, eight slices after
/// the slice began. Both move on only when the slice is used up, wherever the thread was meanwhile. The
/// earliest deadline goes first; a waiter whose deadline is earlier than the holder's asks at once.
/// Deadlines that have passed are served in their order, so nobody is overtaken twice.
///
/// # Bound
/// With `n` threads and a switch interval `i`, a thread that waits has the GIL at the latest
/// `(8 + n - 1) * i` after its slice began, if it has not used it up before: whoever begins a slice later
/// than `8 * i` after that has a later deadline, and each of the others can hold for one slice. Added to
/// that is what no policy can cut short: a call that keeps the GIL, the time a thread needs to
/// wake up, and threads that find the GIL free in that time: each other thread once.
///
/// Source: Nir Aides' patch for bpo-7946, in turn after the BFS scheduler of Linux.
#[derive(Debug)]
pub struct Deadline {
    waiters: Queue,
}

impl Deadline {
    pub const fn new() -> Self {
        Self { waiters: Queue::new(1) }
    }

    fn renew_slice<T: Threads>(threads: &mut T, thread: ThreadId, now_ns: u64) {
        let thread = &mut threads[thread];
        if thread.slice_left_ns == 0 {
            let offset_ns = DEADLINE_SLICES * thread.interval_ns;
            thread.slice_left_ns = thread.interval_ns;
            thread.turn = match thread.turn {
                0 => now_ns,
                deadline_ns => (deadline_ns + offset_ns)
                    .clamp(now_ns.saturating_sub(offset_ns), now_ns + offset_ns),
            };
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Deadline {
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, now_ns: u64) {
        Self::renew_slice(threads, waiter, now_ns);
        self.waiters.insert(threads, waiter, |threads, id| threads[id].turn);
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        self.waiters.remove(threads, waiter);
    }

    fn take<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        Self::renew_slice(threads, thread, now_ns);
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        Self::renew_slice(threads, thread, now_ns);
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
        let earlier = threads[waiter].turn < threads[holder].turn;
        let first = self.waiters.first() == Some(waiter);
        let holder = &threads[holder];
        let slice_end_ns = holder.slice_end_ns(now_ns);
        match (first, earlier) {
            (true, true) => {
                slice_end_ns.min(holder.taken_ns + SHORT_BURST_NS.saturating_sub(holder.burst_ns))
            }
            (true, false) => slice_end_ns,
            // The first asks. This one looks again when it may have become the first.
            (false, _) => slice_end_ns + holder.interval_ns,
        }
    }
}
