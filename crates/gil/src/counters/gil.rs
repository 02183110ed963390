//! The counters of one GIL.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};

use headway_measure::add;

use super::state;
use super::text::Name;
use super::thread::raise;

/// The kind of a gap between a drop and the next take. The drop decides it.
pub mod gap {
    pub const IDLE: u32 = 0;
    /// At least one thread was waiting.
    pub const HANDOFF: u32 = 1;
}

/// The counters of one GIL.
///
/// Held, handoff and idle time add up to the lifetime by construction: the time since `changed_ns`
/// belongs to one hold or one gap, and each event adds it to a counter and moves `changed_ns`.
///
/// Events write only to the first two cache lines: a line that the last event has written on
/// another core is slow to reach.
#[repr(C, align(64))]
pub struct GilCounters {
    /// When the last take, drop or opening was.
    pub changed_ns: AtomicU64,
    pub held_ns: AtomicU64,
    pub handoff_ns: AtomicU64,
    pub idle_ns: AtomicU64,
    pub takes: AtomicU64,
    pub contended_takes: AtomicU64,
    /// The row of the present holder; meaningless while no thread holds the GIL.
    pub holder: AtomicU32,
    pub held_now: AtomicU32,
    /// The kind of the present gap, while no thread holds the GIL; see [`gap`].
    pub gap: AtomicU32,
    /// 1 if the GIL was held when the counters opened.
    pub held_at_open: AtomicU32,
    pub voluntary_drops: AtomicU64,
    pub forced_drops: AtomicU64,
    pub drop_requests: AtomicU64,
    pub preemptions: AtomicU64,
    /// The longest wait that ended in a take, by the class of the thread. Under the policy
    /// `interval` all threads count as I/O-bound.
    pub longest_io_bound_wait_ns: AtomicU64,
    pub longest_cpu_bound_wait_ns: AtomicU64,
    /// Events that contradict the state. The counters were corrected at each.
    pub anomalies: AtomicU64,
    /// When a waiter last requested a drop. Waiters of a holder that does not answer do so again
    /// and again, so it tells how long a hold lasted that a crash has cut off.
    pub requested_ns: AtomicU64,
    /// `FREE`: unused; `LIVE`: open; `ENDED`: closed; `AGGREGATE`: the sum of GILs that ended.
    pub state: AtomicU32,
    /// How many ended GILs this sum stands for; 0 for a single GIL.
    pub aggregated: AtomicU32,
    /// The ID of the interpreter that owns this GIL; -1 if it is not known.
    pub interpreter: AtomicI64,
    pub opened_ns: AtomicU64,
    /// When the counters closed; 0 while they are open.
    pub closed_ns: AtomicU64,
    /// The sum of the lifetimes, in a sum of ended GILs.
    pub wall_ns: AtomicU64,
    /// The name that the program gave the GIL; empty if it gave none.
    pub name: Name,
}

const _: () = assert!(std::mem::offset_of!(GilCounters, state) == 128);

impl GilCounters {
    /// The counters that are sums.
    fn counters(&self) -> [&AtomicU64; 11] {
        [
            &self.wall_ns,
            &self.held_ns,
            &self.handoff_ns,
            &self.idle_ns,
            &self.takes,
            &self.contended_takes,
            &self.voluntary_drops,
            &self.forced_drops,
            &self.drop_requests,
            &self.preemptions,
            &self.anomalies,
        ]
    }

    /// The counters that are maxima.
    fn longest(&self) -> [&AtomicU64; 2] {
        [&self.longest_io_bound_wait_ns, &self.longest_cpu_bound_wait_ns]
    }

    /// Adds the time since the last change to the hold or the gap that it belongs to.
    pub fn close_interval(&self, now_ns: u64) {
        let interval_ns = now_ns.saturating_sub(self.changed_ns.load(Relaxed));
        let counter = match (self.held_now.load(Relaxed), self.gap.load(Relaxed)) {
            (1, _) => &self.held_ns,
            (_, gap::HANDOFF) => &self.handoff_ns,
            _ => &self.idle_ns,
        };
        add(counter, interval_ns);
        self.changed_ns.store(now_ns, Relaxed);
    }

    /// A take ends the present gap.
    #[inline]
    pub fn end_gap(&self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.changed_ns.load(Relaxed));
        let is_handoff = self.gap.load(Relaxed) == gap::HANDOFF;
        add(if is_handoff { &self.handoff_ns } else { &self.idle_ns }, gap_ns);
        self.changed_ns.store(now_ns, Relaxed);
    }

    /// The thread with this row begins to hold.
    #[inline]
    pub fn begin_hold(&self, row: u32) {
        self.holder.store(row, Relaxed);
        self.held_now.store(1, Relaxed);
        add(&self.takes, 1);
    }

    /// The present hold ends. Returns its length in nanoseconds.
    #[inline]
    pub fn count_drop(&self, now_ns: u64, forced: bool) -> u64 {
        let hold_ns = now_ns.saturating_sub(self.changed_ns.load(Relaxed));
        add(&self.held_ns, hold_ns);
        self.changed_ns.store(now_ns, Relaxed);
        add(if forced { &self.forced_drops } else { &self.voluntary_drops }, 1);
        hold_ns
    }

    /// A drop begins a gap.
    #[inline]
    pub fn begin_gap(&self, threads_wait: bool) {
        self.gap.store(if threads_wait { gap::HANDOFF } else { gap::IDLE }, Relaxed);
        self.held_now.store(0, Relaxed);
    }

    /// A wait of a thread of this class ended in a take, under a policy that schedules.
    #[inline]
    pub fn note_wait(&self, wait_ns: u64, cpu_bound: bool) {
        let longest_ns = match cpu_bound {
            true => &self.longest_cpu_bound_wait_ns,
            false => &self.longest_io_bound_wait_ns,
        };
        raise(longest_ns, wait_ns);
    }

    pub fn clear(&self) {
        for counter in self.counters().into_iter().chain(self.longest()) {
            counter.store(0, Relaxed);
        }
        self.aggregated.store(0, Relaxed);
        self.requested_ns.store(0, Relaxed);
        self.name.set(b"");
    }

    /// The time of the last event: of a take, a drop or a drop request.
    pub fn last_event_ns(&self) -> u64 {
        self.changed_ns.load(Relaxed).max(self.requested_ns.load(Relaxed))
    }

    /// Adds the counters of `other`, which has closed, and keeps the longer times.
    pub fn merge(&self, other: &GilCounters) {
        for (mine, theirs) in self.counters().into_iter().zip(other.counters()) {
            mine.fetch_add(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in self.longest().into_iter().zip(other.longest()) {
            mine.fetch_max(theirs.load(Relaxed), Relaxed);
        }
    }

    /// Makes the counters empty and opens them. The state is stored last, with release, so that a
    /// reader who sees `LIVE` sees the rest.
    pub fn open(&self, now_ns: u64, held: bool) {
        self.clear();
        self.opened_ns.store(now_ns, Relaxed);
        self.changed_ns.store(now_ns, Relaxed);
        self.closed_ns.store(0, Relaxed);
        self.gap.store(gap::IDLE, Relaxed);
        self.held_at_open.store(held as u32, Relaxed);
        self.held_now.store(held as u32, Relaxed);
        self.state.store(state::LIVE, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_gils_adds_counters_and_keeps_the_longest() {
        // SAFETY: all zero bytes are unused counters.
        let [sum, first, second] = unsafe { std::mem::zeroed::<[GilCounters; 3]>() };
        for (counters, takes, io_bound_ns, cpu_bound_ns) in
            [(&first, 3, 70, 10), (&second, 4, 20, 30)]
        {
            counters.takes.store(takes, Relaxed);
            counters.preemptions.store(takes, Relaxed);
            counters.longest_io_bound_wait_ns.store(io_bound_ns, Relaxed);
            counters.longest_cpu_bound_wait_ns.store(cpu_bound_ns, Relaxed);
        }
        sum.merge(&first);
        sum.merge(&second);
        assert_eq!(sum.takes.load(Relaxed), 7);
        assert_eq!(sum.preemptions.load(Relaxed), 7);
        assert_eq!(sum.longest_io_bound_wait_ns.load(Relaxed), 70);
        assert_eq!(sum.longest_cpu_bound_wait_ns.load(Relaxed), 30);
        sum.clear();
        assert!(sum.counters().into_iter().chain(sum.longest()).all(|one| one.load(Relaxed) == 0));
    }
}
