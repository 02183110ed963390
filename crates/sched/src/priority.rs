//! `priority`: threads that wait for I/O before threads that compute.

use crate::policy::Policy;
use crate::queue::Queue;
use crate::thread::{Thread, ThreadId, Threads};

/// A thread that has held for so long since it was last away of its own accord is CPU-bound, whatever
/// it did before.
const LONG_BURST_NS: u64 = 1_000_000;
/// So is one that holds for more than 7/8 of the time that it does not wait. The habit must be
/// established by this much of holding.
const HABIT_NS: u64 = 2_000_000;
/// After so many switch intervals without a CPU-bound holder, a CPU-bound waiter goes first, once.
const OVERDUE_INTERVALS: u64 = 4;
/// And is not asked to drop for so long.
const PROTECTED_NS: u64 = 1_000_000;

/// Two classes, by what a thread really does: CPU-bound is one that computes for more than a
/// millisecond at a stretch, or, over some 20 ms, for more than 7/8 of the time that it does not wait, so
/// that short absences clear nothing. The rest is I/O-bound.
///
/// - An I/O-bound waiter asks a CPU-bound holder to drop at once, and an I/O-bound one when it has
///   computed for a millisecond.
/// - I/O-bound waiters go first, in the order in which they came.
/// - CPU-bound threads take turns of one switch interval of GIL time each. A turn goes on after an
///   interruption, and after a voluntary absence: who has a turn resumes before those who begin one.
/// - When no CPU-bound thread has held for four switch intervals, the first that waits goes before all
///   others, for a millisecond in which it is not asked to drop and with which its turn is over.
///
/// # Bounds
/// With `i` the switch interval, `n` I/O-bound and `m` CPU-bound threads:
/// - An I/O-bound thread waits behind each other I/O-bound thread once, for a millisecond at most, and for
///   another millisecond in each four switch intervals: no more than `(n + 1)` ms while
///   that is less than `4 * i`.
/// - A CPU-bound thread waits for `m * (4 * i + 2)` ms at most even if I/O-bound threads want all of the
///   GIL, and for `m * i` if they want none.
///
/// Added to both is what no policy can cut short: a call that keeps the GIL, the time a thread needs to
/// wake up, and threads that find the GIL free in that time: each other thread once.
#[derive(Debug)]
pub struct Priority {
    io_bound: Queue,
    cpu_bound: Queue,
    next_turn: u64,
    /// When a CPU-bound thread last dropped.
    cpu_bound_held_ns: u64,
}

impl Priority {
    pub const fn new() -> Self {
        Self {
            io_bound: Queue::new(1),
            cpu_bound: Queue::new(2),
            next_turn: 1,
            cpu_bound_held_ns: 0,
        }
    }

    fn overdue_from_ns(&self, waiter: &Thread) -> u64 {
        let since_ns = waiter.waiting_since_ns.max(self.cpu_bound_held_ns);
        since_ns + OVERDUE_INTERVALS * waiter.interval_ns
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
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, _now_ns: u64) {
        if is_cpu_bound(&threads[waiter], 0) {
            self.cpu_bound.insert(threads, waiter, |threads, id| {
                let thread = &threads[id];
                let turn = if thread.slice_left_ns > 0 { thread.turn } else { u64::MAX };
                (turn, thread.waiting_since_ns)
            });
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
        if thread.slice_left_ns == 0 || !cpu_bound {
            thread.slice_left_ns = thread.interval_ns;
            thread.turn = self.next_turn;
            self.next_turn += 1;
        }
        let waited = thread.waiting_since_ns != 0;
        if cpu_bound && waited && self.overdue_from_ns(thread) <= now_ns {
            thread.protected_until_ns = now_ns + PROTECTED_NS;
            thread.slice_left_ns = thread.slice_left_ns.min(PROTECTED_NS);
        }
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        if is_cpu_bound(&threads[thread], 0) {
            self.cpu_bound_held_ns = now_ns;
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
        let waiter_id = waiter;
        let waiter = &threads[waiter];
        let has_turn = waiter.slice_left_ns > 0 && waiter.turn < holder.turn;
        let ask_ns = if waits_for_io || has_turn {
            cpu_bound_from_ns
        } else {
            let slice_end_ns = holder.slice_end_ns(now_ns);
            match self.cpu_bound.first() == Some(waiter_id) {
                true => slice_end_ns.min(self.overdue_from_ns(waiter)),
                // The first asks. This one looks again when it may have become the first.
                false => slice_end_ns + holder.interval_ns,
            }
        };
        ask_ns.max(holder.protected_until_ns)
    }
}
