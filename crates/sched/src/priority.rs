//! `priority`: threads that wait for I/O before threads that compute.

use crate::policy::{NEVER, Policy};
use crate::queue::Queue;
use crate::thread::{Thread, ThreadId, Threads};

/// A thread that has held for so long since it was last away of its own accord is CPU-bound, whatever
/// it did before.
const LONG_BURST_NS: u64 = 1_000_000;
/// So is one that holds for more than 7/8 of the time that it does not wait. The habit must be
/// established by this much of holding.
const HABIT_NS: u64 = 2_000_000;
/// After so many switch intervals in which CPU-bound threads got less than `PROTECTED_NS`, one of them goes
/// first. For so long one that waits to begin a turn can be overtaken by threads that just turned CPU-bound.
const OVERDUE_INTERVALS: u64 = 4;
/// And they are not asked to drop for so long.
const PROTECTED_NS: u64 = 1_000_000;

/// The marks of a holder: it found the GIL free when it came; it was CPU-bound when it took.
const BARGED: u32 = 1;
const TOOK_CPU_BOUND: u32 = 2;

/// Two classes, by what a thread really does: CPU-bound is one that computes for more than a
/// millisecond at a stretch, or, over some 20 ms, for more than 7/8 of the time that it does not wait, so
/// that short absences clear nothing. The rest is I/O-bound.
///
/// - An I/O-bound waiter asks a CPU-bound holder to drop at once, and an I/O-bound one when it has
///   computed for a millisecond.
/// - I/O-bound waiters go first, in the order in which they came.
/// - CPU-bound threads take turns of one slice of GIL time each, in the order in which they
///   began to wait; the holder's slice counts, never the waiter's. A turn goes on after an interruption, and after a voluntary absence: who has a turn
///   resumes before those who begin one. A thread that turns CPU-bound while it holds has had its turn since
///   it took; it goes before those who wait to begin one for less than four switch intervals.
/// - When the CPU-bound threads have wanted the GIL for four switch intervals without holding it for a
///   millisecond, the first that waits goes before all others, for what is left of the
///   millisecond. It is not asked to drop in that time, and its turn is over with it.
/// - Who finds the GIL free while others wait gains nothing by it: a CPU-bound thread begins no turn, and an
///   I/O-bound waiter that was overtaken asks when it has waited for a millisecond.
///
/// # Bounds
/// With `i` the switch interval of the GIL, `n` threads in all, of whatever class, and `S` the sum of the
/// other threads' slices, which is `(n - 1) * i` where nobody has a slice of its own:
/// - An I/O-bound thread waits for `n` ms at most, or, if that is more than `4 * i`, for another
///   millisecond in each `4 * i`, never more than `2 * n` ms. For whoever goes before it holds for no more
///   than a millisecond until it is asked or has left, and comes back behind it; and between two holds
///   of I/O-bound threads lies one protected millisecond at most.
/// - A CPU-bound thread waits for `4 * i` and until each other thread has had the rest of a turn, so for
///   `4 * i + S` in which CPU-bound threads hold, and that is all if no thread is I/O-bound. If
///   I/O-bound threads want all of the GIL, CPU-bound ones still hold it for a millisecond in each
///   `4 * i + 1 ms`. So it waits for `4 * i + (S / 1 ms + 1) * (4 * i + 1 ms)` at most.
///
/// Added to both is what no policy can cut short: a call that keeps the GIL, and the time that a called thread
/// needs to wake up. Threads that come in that time find the GIL free and take it before the
/// waiter. From when on the waiter may ask, each of them can do so once more: asked, it waits after its drop
/// until a thread has the GIL that waited for it, if the driver does as `crates/gil` does.
#[derive(Debug)]
pub struct Priority {
    io_bound: Queue,
    cpu_bound: Queue,
    /// Since when the CPU-bound threads want the GIL and have not held it for `PROTECTED_NS`; 0 while
    /// they do not want it.
    owed_since_ns: u64,
    /// How long they have held it since then.
    served_ns: u64,
}

impl Priority {
    pub const fn new() -> Self {
        Self { io_bound: Queue::new(1), cpu_bound: Queue::new(2), owed_since_ns: 0, served_ns: 0 }
    }

    fn overdue_from_ns(&self, waiter: &Thread) -> u64 {
        self.owed_since_ns + OVERDUE_INTERVALS * waiter.interval_ns
    }

    /// The same while `holder` holds: what the CPU-bound threads are owed it may be giving them, and then
    /// nothing but the end of its slice ends its turn, however long that is.
    fn overdue_under_ns(&self, holder: &Thread, waiter: &Thread) -> u64 {
        let overdue_from_ns = self.overdue_from_ns(waiter);
        let served_from_ns = holder.taken_ns + PROTECTED_NS.saturating_sub(self.served_ns);
        match holder.mark & TOOK_CPU_BOUND != 0 && served_from_ns <= overdue_from_ns {
            true => NEVER,
            false => overdue_from_ns,
        }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a thread that has held for `hold_ns` since its last take is CPU-bound; 0 if it does not
/// hold.
pub fn is_cpu_bound(thread: &Thread, hold_ns: u64) -> bool {
    let held_ns = thread.held_ns + hold_ns;
    thread.burst_ns + hold_ns >= LONG_BURST_NS
        || (held_ns >= HABIT_NS && held_ns > 7 * thread.away_ns)
}

impl Policy for Priority {
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, now_ns: u64) {
        if is_cpu_bound(&threads[waiter], 0) {
            self.cpu_bound.insert(threads, waiter, |threads, id| {
                let thread = &threads[id];
                match thread.slice_left_ns > 0 {
                    true => thread.turn,
                    false => thread.waiting_since_ns + OVERDUE_INTERVALS * thread.interval_ns,
                }
            });
            if self.owed_since_ns == 0 {
                self.owed_since_ns = now_ns;
                self.served_ns = 0;
            }
        } else {
            threads[waiter].slice_left_ns = 0;
            self.io_bound.insert(threads, waiter, |threads, id| threads[id].waiting_since_ns);
        }
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        self.io_bound.remove(threads, waiter);
        self.cpu_bound.remove(threads, waiter);
    }

    fn take<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        let thread = &mut threads[thread];
        let cpu_bound = is_cpu_bound(thread, 0);
        let waited = thread.waiting_since_ns != 0;
        thread.mark = if waited { 0 } else { BARGED } | if cpu_bound { TOOK_CPU_BOUND } else { 0 };
        if thread.slice_left_ns == 0 || !cpu_bound {
            // Who finds the GIL free while others wait to begin a turn holds it without one.
            let out_of_turn = cpu_bound && !waited && self.cpu_bound.first().is_some();
            thread.slice_left_ns = if out_of_turn { 0 } else { thread.slice_ns() };
            thread.turn = if cpu_bound && waited { thread.waiting_since_ns } else { now_ns };
        }
        if cpu_bound && waited && self.overdue_from_ns(thread) <= now_ns {
            thread.protected_until_ns = now_ns + PROTECTED_NS - self.served_ns;
        }
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        let thread = &mut threads[thread];
        if thread.mark & TOOK_CPU_BOUND == 0 {
            return;
        }
        if thread.protected_until_ns > thread.taken_ns {
            thread.slice_left_ns = 0;
        }
        self.served_ns += now_ns.saturating_sub(thread.taken_ns);
        if self.served_ns >= PROTECTED_NS {
            self.owed_since_ns = now_ns;
            self.served_ns = 0;
        }
        if !thread.was_forced && self.cpu_bound.first().is_none() {
            self.owed_since_ns = 0;
        }
    }

    fn next<T: Threads>(&self, threads: &T, now_ns: u64) -> Option<ThreadId> {
        let cpu_bound = self.cpu_bound.first();
        cpu_bound
            .filter(|first| self.overdue_from_ns(&threads[*first]) <= now_ns)
            .or_else(|| self.io_bound.first())
            .or(cpu_bound)
    }

    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64 {
        let holder = &threads[holder];
        let hold_ns = now_ns.saturating_sub(holder.taken_ns);
        let cpu_bound_from_ns = match is_cpu_bound(holder, hold_ns) {
            true => now_ns,
            false => holder.taken_ns + (LONG_BURST_NS - holder.burst_ns),
        };
        let waits_for_io = self.io_bound.has(threads, waiter);
        let is_first = self.cpu_bound.first() == Some(waiter);
        let waiter = &threads[waiter];
        let has_turn = waiter.slice_left_ns > 0 && waiter.turn < holder.turn;
        let overtaken = holder.mark & BARGED != 0 && holder.taken_ns > waiter.waiting_since_ns;
        let ask_ns = if waits_for_io && overtaken {
            cpu_bound_from_ns.min(waiter.waiting_since_ns + LONG_BURST_NS)
        } else if waits_for_io {
            cpu_bound_from_ns
        } else {
            let ask_ns = match (has_turn, is_first) {
                (true, _) => cpu_bound_from_ns,
                (false, true) => holder.slice_end_ns(now_ns),
                // The first asks. This one looks again when it may have become the first.
                (false, false) => holder.slice_end_ns(now_ns) + holder.interval_ns,
            };
            // Without asking, it could be overtaken by one after the other as it wakes up, in its turn or not.
            match is_first {
                true => ask_ns.min(self.overdue_under_ns(holder, waiter)),
                false => ask_ns,
            }
        };
        ask_ns.max(holder.protected_until_ns)
    }
}
