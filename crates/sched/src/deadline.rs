//! `deadline`: virtual deadlines.

use crate::policy::Policy;
use crate::queue::Queue;
use crate::thread::{ThreadId, Threads};

/// A thread's deadline is so many switch intervals of the GIL after its slice began.
const DEADLINE_INTERVALS: u64 = 8;
/// A holder that has just come back from voluntary absence is left alone for so long: most such
/// bursts are over by then.
const SHORT_BURST_NS: u64 = 200_000;

/// Every thread has a slice of GIL time, one switch interval long unless it has one of its own, and a
/// deadline, eight switch intervals after the slice began. Both move on only when the slice is used up, wherever
/// the thread was meanwhile. The earliest deadline goes first; a waiter whose deadline is earlier than the
/// holder's asks at once. A deadline moves by eight intervals for each slice used, be it long or short, but lies
/// never more than eight intervals from now when it moves: so nobody saves up, nobody falls behind for
/// good, and threads that want all they can get hold the GIL in the proportion of their slices.
///
/// # Bound
/// With `i` the switch interval of the GIL and `S` the sum of the other threads' slices, which for `n` threads
/// without slices of their own is `(n - 1) * i`, a thread waits for the lesser of `3 * S` and `16 * i + S` at
/// most, and 0.2 ms for a short burst. Its own slice does not matter. Its deadline is at most `8 * i` away when
/// it begins to wait, and stays; with equal deadlines it goes first. Another thread is before it with the rest
/// of a slice, and, when that is used up, from `8 * i` ago at the earliest for two slices more. And no deadline
/// that moves `16 * i` later or after that is before it: then each other has the rest of one slice.
///
/// Added to that is what no policy can cut short: a call that keeps the GIL, and the time that a called thread
/// needs to wake up. Threads that come in that time find the GIL free and take it before the
/// waiter. From when on the waiter may ask, each of them can do so once more: asked, it waits after its drop
/// until a thread has the GIL that waited for it, if the driver does as `crates/gil` does.
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
            let offset_ns = DEADLINE_INTERVALS * thread.interval_ns;
            thread.slice_left_ns = thread.slice_ns();
            thread.turn = match thread.turn {
                0 => now_ns,
                deadline_ns => (deadline_ns + offset_ns)
                    .max(now_ns.saturating_sub(offset_ns))
                    .min(now_ns.saturating_add(offset_ns)),
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
        let waiting_since_ns = threads[waiter].waiting_since_ns;
        let holder = &threads[holder];
        let slice_end_ns = holder.slice_end_ns(now_ns);
        match (first, earlier) {
            (true, true) => {
                let burst_end_ns = holder.taken_ns + SHORT_BURST_NS.saturating_sub(holder.burst_ns);
                // Many short bursts in a row, of threads that found the GIL free, are no short burst.
                slice_end_ns.min(burst_end_ns).min(waiting_since_ns + SHORT_BURST_NS)
            }
            (true, false) => slice_end_ns,
            // The first asks. This one looks again when it may have become the first.
            (false, _) => slice_end_ns + holder.interval_ns,
        }
    }
}
