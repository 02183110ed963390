//! `priority`: threads that wait for I/O before threads that compute.

use crate::policy::{NEVER, Policy};
use crate::queue::Queue;
use crate::thread::{Thread, ThreadId, Threads};

/// A thread is CPU-bound, whatever it did before, if it has computed for this time in holds since
/// its last voluntary absence.
pub const LONG_BURST_NS: u64 = 1_000_000;
/// A thread is also CPU-bound if it computes in holds for more than 7/8 of the time in which it
/// does not wait. This rule applies once the thread has done so for this time within the window.
const HABIT_NS: u64 = 2_000_000;
/// When CPU-bound threads have held for less than `PROTECTED_NS` in this number of switch
/// intervals, one of them is next. For the same time, threads that have just become CPU-bound can
/// overtake a thread that waits to begin a turn.
const OVERDUE_INTERVALS: u64 = 4;
/// A CPU-bound thread that is next for this reason receives no drop request for this time.
const PROTECTED_NS: u64 = 1_000_000;

/// Flags in the `mark` of a holder: it found the GIL free when it came, and it was CPU-bound when
/// it took.
const BARGED: u32 = 1;
const TOOK_CPU_BOUND: u32 = 2;

/// Two classes of threads, by their actual behaviour. A thread is CPU-bound if it computes for more
/// than a millisecond without a voluntary absence or, over about 20 ms, for more than 7/8 of the
/// time in which it does not wait. The second condition keeps short absences from making it
/// I/O-bound. All other threads are I/O-bound. Time in which a holder does not run on a core is not
/// computing, but it ends the holder's turn and its millisecond like computing.
///
/// - An I/O-bound waiter requests a drop from a CPU-bound holder at once, and from an I/O-bound
///   holder when that has computed for a millisecond.
/// - I/O-bound waiters go first, in order of arrival.
/// - CPU-bound threads take turns of one slice of GIL time each, in the order in which they began
///   to wait. The holder's slice counts, never the waiter's. A turn continues after an interruption
///   and after a voluntary absence: a thread with a turn precedes the threads that wait to begin
///   one. The turn of a thread that becomes CPU-bound while it holds began when it took; such a
///   thread precedes the threads that have waited to begin a turn for less than four switch
///   intervals.
/// - When the CPU-bound threads have waited for the GIL for four switch intervals without holding
///   it for a millisecond, the first that waits precedes all other threads for the rest of the
///   millisecond. It receives no drop request in that time, and its turn ends with it.
/// - A thread that finds the GIL free while others wait gains no advantage: a CPU-bound thread
///   begins no turn, and an I/O-bound waiter that was overtaken requests a drop when it has waited
///   for a millisecond.
///
/// # Bounds
/// Let `i` be the switch interval of the GIL, `n` the number of all threads, of either class, and
/// `S` the sum of the other threads' slices, which is `(n - 1) * i` if no thread has a slice of its
/// own.
/// - An I/O-bound thread waits for at most `n` ms or, if that is more than `4 * i`, for another
///   millisecond in each `4 * i`, but never for more than `2 * n` ms. Each thread that precedes it
///   holds for at most a millisecond before it receives a drop request or leaves, and then queues
///   behind it; between two holds of I/O-bound threads lies at most one protected millisecond.
/// - A CPU-bound thread waits for `4 * i` and until each other thread has had the rest of a turn,
///   so for `4 * i + S` in which CPU-bound threads hold. This is the whole wait if no thread is
///   I/O-bound. If I/O-bound threads use all of the GIL, CPU-bound threads still hold it for a
///   millisecond in each `4 * i + 1 ms`, so the wait is at most
///   `4 * i + (S / 1 ms + 1) * (4 * i + 1 ms)`.
///
/// No policy can shorten three delays, which add to both bounds: a call that keeps the GIL, the
/// time for which the kernel runs other threads on the holder's core, and the time that a woken
/// thread needs to start running. Threads that arrive in that time find the GIL free and take it
/// before the waiter. Once the waiter may request a drop, each of these threads can overtake it at
/// most once more: after a forced drop, a thread waits until a thread that waited has the GIL,
/// provided that the driver implements this wait as `crates/gil` does.
#[derive(Debug)]
pub struct Priority {
    io_bound: Queue,
    cpu_bound: Queue,
    /// The time since which the CPU-bound threads have wanted the GIL without holding it for
    /// `PROTECTED_NS`; 0 while none of them wants it.
    owed_since_ns: u64,
    /// The time that CPU-bound threads have held the GIL since `owed_since_ns`.
    served_ns: u64,
}

impl Priority {
    pub const fn new() -> Self {
        Self { io_bound: Queue::new(1), cpu_bound: Queue::new(2), owed_since_ns: 0, served_ns: 0 }
    }

    fn overdue_from_ns(&self, waiter: &Thread) -> u64 {
        self.owed_since_ns + OVERDUE_INTERVALS * waiter.interval_ns
    }

    /// Returns the time at which the CPU-bound threads are overdue while `holder` holds. `holder`
    /// may itself give them the time that they are owed by then. In that case the result is
    /// `NEVER`: only the end of the slice, whatever its length, ends the holder's turn.
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

/// Returns whether a thread is CPU-bound that has held for `hold_ns` since its last take, 0 if it
/// does not hold.
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
            // A thread that finds the GIL free while others wait to begin a turn holds it without a
            // turn.
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
                // Only the first waiter requests a drop.
                (false, false) => {
                    self.cpu_bound.looks_again_ns(holder.slice_end_ns(now_ns), holder.interval_ns)
                }
            };
            // If it did not request a drop then, one thread after another could overtake it while
            // it wakes, with or without a turn.
            match is_first {
                true => ask_ns.min(self.overdue_under_ns(holder, waiter)),
                false => ask_ns,
            }
        };
        ask_ns.max(holder.protected_until_ns)
    }
}
