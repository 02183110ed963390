//! `deadline`: virtual deadlines.

use crate::policy::Policy;
use crate::queue::Queue;
use crate::thread::{ThreadId, Threads};

/// For a slice that is used up, a deadline moves by at least this number of switch intervals. It
/// lies no further ahead than this.
const DEADLINE_INTERVALS: u64 = 8;
/// A deadline moves by this number of switch intervals for every two threads that want the GIL, the
/// waiters and the thread itself. Each of them needs one interval for its turn, and I/O-bound
/// threads need GIL time in between. If a deadline moved by less than a round of turns takes, the
/// deadlines of threads that compute would lag behind the clock like those of threads that need
/// little, and the latter would wait for whole rounds.
const DEADLINE_INTERVALS_PER_TWO_THREADS: u64 = 3;
/// A holder that has just returned from a voluntary absence is not interrupted for this time: most
/// such bursts end within it.
const SHORT_BURST_NS: u64 = 200_000;

/// Every thread has a slice of GIL time and a deadline. The slice is one switch interval long
/// unless the thread has a slice of its own. The first deadline is the time at which the first
/// slice begins. When a slice is used up, the deadline moves by a *step*: eight switch intervals,
/// or one and a half for each thread that wants the GIL if that is more. Afterwards it lies no
/// further than eight intervals ahead of the present, and no further than one step behind it. It
/// does not change otherwise, wherever the thread is. The waiter with the earliest deadline is
/// next; a waiter whose deadline is earlier than the holder's requests a drop at once. So a thread
/// precedes threads that compute if it needs less than about an eighth of the GIL and two thirds of
/// its share. No thread accumulates credit, no thread falls behind permanently, and threads that
/// compute without pause hold the GIL in proportion to their slices.
///
/// # Bound
/// Let `i` be the switch interval of the GIL, `n` the number of threads, `d` the longest step,
/// which is `i` times the greater of 8 and `1.5 * n`, and `S` the sum of the other threads' slices,
/// which is `(n - 1) * i` without slices of their own. A thread waits for at most `8 * i + d + S`,
/// and for at most `3 * S` if `n` is at most 5, plus 0.2 ms for a short burst. The thread's own
/// slice does not matter. Proof: the thread's deadline is at most `8 * i` ahead when the wait
/// begins, and does not change while the thread waits; with equal deadlines, this thread is first.
/// Another thread may precede it with the rest of a slice. When a slice is used up, the other
/// thread's deadline moves to `d` ago at the earliest. So a deadline that moves `8 * i + d` or more
/// after the start of the wait does not precede it: from then on, each other thread has only the
/// rest of one slice. With at most five threads every step is `8 * i`, so a deadline that has moved
/// three times during the wait is no longer earlier than this thread's, and the other thread has
/// preceded it for two slices and a rest.
///
/// No policy can shorten three delays, which add to the bound: a call that keeps the GIL, the time
/// for which the kernel runs other threads on the holder's core, and the time that a woken thread
/// needs to start running. Threads that arrive in that time find the GIL free and take it before
/// the waiter. Once the waiter may request a drop, each of these threads can overtake it at most
/// once more: after a forced drop, a thread waits until a thread that waited has the GIL, provided
/// that the driver implements this wait as `crates/gil` does.
#[derive(Debug)]
pub struct Deadline {
    waiters: Queue,
}

impl Deadline {
    pub const fn new() -> Self {
        Self { waiters: Queue::new(1) }
    }

    /// `thread`, which is not queued, begins a slice if it has used up the former one.
    fn renew_slice<T: Threads>(&self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        let thread = &mut threads[thread];
        if thread.slice_left_ns == 0 {
            let lead_ns = DEADLINE_INTERVALS * thread.interval_ns;
            let wanting = u64::from(self.waiters.length()) + 1;
            let crowd_ns = DEADLINE_INTERVALS_PER_TWO_THREADS * wanting * thread.interval_ns / 2;
            let step_ns = lead_ns.max(crowd_ns);
            thread.slice_left_ns = thread.slice_ns();
            thread.turn = match thread.turn {
                0 => now_ns,
                deadline_ns => (deadline_ns + step_ns)
                    .max(now_ns.saturating_sub(step_ns))
                    .min(now_ns.saturating_add(lead_ns)),
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
        self.renew_slice(threads, waiter, now_ns);
        self.waiters.insert(threads, waiter, |threads, id| threads[id].turn);
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        self.waiters.remove(threads, waiter);
    }

    fn take<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        self.renew_slice(threads, thread, now_ns);
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        self.renew_slice(threads, thread, now_ns);
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
                // Threads that find the GIL free can hold for many short bursts in a row, which add
                // up to more than a short burst.
                slice_end_ns.min(burst_end_ns).min(waiting_since_ns + SHORT_BURST_NS)
            }
            (true, false) => slice_end_ns,
            // Only the first waiter requests a drop.
            (false, _) => self.waiters.looks_again_ns(slice_end_ns, holder.interval_ns),
        }
    }
}
