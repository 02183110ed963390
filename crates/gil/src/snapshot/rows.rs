//! Rows of a snapshot, made of counters.

use std::sync::atomic::Ordering::*;

use headway_measure::Histogram;

use crate::counters::{GilCounters, ThreadCounters, gap, state};
use crate::parked_waits;

/// One GIL. Counts, and times in nanoseconds; `held_ns + handoff_ns + idle_ns == wall_ns`, and
/// `takes + held_at_open == drops + held_now`.
#[derive(Clone, Debug, Default)]
pub struct GilRow {
    /// The ID that thread rows refer to.
    pub id: u32,
    /// The name that the program gave the GIL; empty if it gave none.
    pub name: String,
    /// The interpreter that owns the GIL; `None` if unknown, and for a sum of GILs that ended.
    pub interpreter: Option<i64>,
    pub alive: bool,
    /// The number of ended GILs that this row sums up; 0 for a single GIL.
    pub folded: u32,
    pub held_at_open: u32,
    pub held_now: u32,
    pub wall_ns: u64,
    pub held_ns: u64,
    pub handoff_ns: u64,
    pub idle_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub voluntary_drops: u64,
    pub forced_drops: u64,
    pub drop_requests: u64,
    pub preemptions: u64,
    /// The longest wait of an I/O-bound thread; 0 if there was none.
    pub longest_io_bound_wait_ns: u64,
    /// The longest wait of a CPU-bound thread; 0 if there was none.
    pub longest_cpu_bound_wait_ns: u64,
    /// Events that contradicted the state. The counters were corrected at each. 0 in a sound run.
    pub anomalies: u64,
}

/// One thread on one GIL, or a sum of threads that ended.
#[derive(Clone, Debug, Default)]
pub struct ThreadRow {
    pub gil: u32,
    /// `None` for a sum of threads.
    pub native_id: Option<u32>,
    pub name: String,
    pub alive: bool,
    /// The number of ended threads that this row sums up; 0 for a single thread.
    pub folded: u32,
    /// Holds that ended, and the present one so far.
    pub held_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub voluntary_drops: u64,
    pub forced_drops: u64,
    pub preemptions: u64,
    pub forced_waits: u64,
    pub forced_waited_ns: u64,
    /// The longest time from a drop request to the drop that answered it; 0 if there was none.
    pub longest_answer_ns: u64,
    /// The CPU time that the thread used in that time; 0 if it is not known.
    pub cpu_in_longest_answer_ns: u64,
    /// The most CPU time that the thread used in such a time; 0 if none is known.
    pub longest_answer_cpu_ns: u64,
    /// The length of the time with the most CPU time.
    pub answer_with_most_cpu_ns: u64,
    /// The parts of the waits that were behind computing that a policy could have preempted, behind
    /// holders that did not answer, behind those that did not run, and behind passes of the garbage
    /// collector.
    pub waited_preventable_ns: u64,
    pub waited_unanswered_ns: u64,
    pub waited_off_core_ns: u64,
    pub waited_collection_ns: u64,
    /// The number of long passes of the garbage collector in this thread, their time, and the
    /// longest.
    pub collections: u64,
    pub collected_ns: u64,
    pub longest_collection_ns: u64,
    /// The present hold so far; 0 if the thread does not hold the GIL.
    pub holding_ns: u64,
    /// The present wait so far; 0 if the thread does not wait.
    pub waiting_ns: u64,
    pub wait: Histogram,
    pub hold: Histogram,
}

/// The waits of one thread of a free-threaded build, or of a sum of threads that ended; see
/// `parked_waits`.
#[derive(Clone, Debug, Default)]
pub struct ParkRow {
    pub native_id: Option<u32>,
    pub name: String,
    pub alive: bool,
    pub folded: u32,
    pub parked: Histogram,
    pub suspended: Histogram,
    /// The number of waits, of a millisecond at most, for other threads to stop.
    pub stopping: u64,
    /// The sum of these waits.
    pub stopping_ns: u64,
}

/// The row of the present holder and how long it has held; `None` if no thread holds the GIL.
pub(super) fn holding(counters: &GilCounters, now_ns: u64) -> Option<(u32, u64)> {
    let held = counters.held_now.load(Relaxed) == 1 && counters.closed_ns.load(Relaxed) == 0;
    let hold_ns = now_ns.saturating_sub(counters.changed_ns.load(Relaxed));
    held.then(|| (counters.holder.load(Relaxed), hold_ns))
}

pub(super) fn gil_row(id: u32, counters: &GilCounters, now_ns: u64, alive: bool) -> GilRow {
    let mut row = GilRow {
        id,
        name: counters.name.to_text(),
        interpreter: Some(counters.interpreter.load(Relaxed)).filter(|id| *id >= 0),
        alive,
        folded: counters.aggregated.load(Relaxed),
        held_at_open: counters.held_at_open.load(Relaxed),
        held_now: counters.held_now.load(Relaxed),
        wall_ns: counters.wall_ns.load(Relaxed),
        held_ns: counters.held_ns.load(Relaxed),
        handoff_ns: counters.handoff_ns.load(Relaxed),
        idle_ns: counters.idle_ns.load(Relaxed),
        takes: counters.takes.load(Relaxed),
        contended_takes: counters.contended_takes.load(Relaxed),
        voluntary_drops: counters.voluntary_drops.load(Relaxed),
        forced_drops: counters.forced_drops.load(Relaxed),
        drop_requests: counters.drop_requests.load(Relaxed),
        preemptions: counters.preemptions.load(Relaxed),
        longest_io_bound_wait_ns: counters.longest_io_bound_wait_ns.load(Relaxed),
        longest_cpu_bound_wait_ns: counters.longest_cpu_bound_wait_ns.load(Relaxed),
        anomalies: counters.anomalies.load(Relaxed),
    };
    if counters.state.load(Relaxed) != state::AGGREGATE {
        let open = counters.closed_ns.load(Relaxed) == 0;
        let present_ns = now_ns.saturating_sub(counters.changed_ns.load(Relaxed));
        match (open, row.held_now, counters.gap.load(Relaxed)) {
            (false, ..) => {}
            (_, 1, _) => row.held_ns += present_ns,
            (_, _, gap::HANDOFF) => row.handoff_ns += present_ns,
            _ => row.idle_ns += present_ns,
        }
        let end_ns = counters.changed_ns.load(Relaxed).max(now_ns);
        row.wall_ns = end_ns.saturating_sub(counters.opened_ns.load(Relaxed));
    }
    row
}

/// The row of a thread that has held the GIL for `present_ns` at `now_ns`; `None` for an empty sum.
pub(super) fn thread_row(
    counters: &ThreadCounters,
    present_ns: u64,
    now_ns: u64,
) -> Option<ThreadRow> {
    let state = counters.state.load(Relaxed);
    let takes = counters.takes.load(Relaxed);
    let folded = counters.aggregated.load(Relaxed);
    if state == state::AGGREGATE && takes == 0 && folded == 0 {
        return None;
    }
    let held_ns =
        counters.hold.sum_ns.load(Relaxed) + counters.held_at_close_ns.load(Relaxed) + present_ns;
    Some(ThreadRow {
        gil: counters.gil.load(Relaxed),
        native_id: native_id_of(counters),
        name: counters.name.to_text(),
        alive: state == state::LIVE,
        folded,
        held_ns,
        takes,
        contended_takes: counters.contended_takes.load(Relaxed),
        voluntary_drops: counters.voluntary_drops.load(Relaxed),
        forced_drops: counters.forced_drops.load(Relaxed),
        preemptions: counters.preemptions.load(Relaxed),
        forced_waits: counters.forced_waits.load(Relaxed),
        forced_waited_ns: counters.forced_waited_ns.load(Relaxed),
        longest_answer_ns: counters.longest_answer_ns.load(Relaxed),
        cpu_in_longest_answer_ns: counters.cpu_in_longest_answer_ns.load(Relaxed),
        longest_answer_cpu_ns: counters.longest_answer_cpu_ns.load(Relaxed),
        answer_with_most_cpu_ns: counters.answer_with_most_cpu_ns.load(Relaxed),
        waited_preventable_ns: counters.waited_preventable_ns.load(Relaxed),
        waited_unanswered_ns: counters.waited_unanswered_ns.load(Relaxed),
        waited_off_core_ns: counters.waited_off_core_ns.load(Relaxed),
        waited_collection_ns: counters.waited_collection_ns.load(Relaxed),
        collections: counters.collections.load(Relaxed),
        collected_ns: counters.collected_ns.load(Relaxed),
        longest_collection_ns: counters.longest_collection_ns.load(Relaxed),
        holding_ns: present_ns,
        waiting_ns: match counters.wait_began_ns.load(Relaxed) {
            began_ns if began_ns == 0 || state != state::LIVE => 0,
            began_ns => now_ns.saturating_sub(began_ns),
        },
        wait: counters.wait.read(),
        hold: counters.hold.read(),
    })
}

pub(super) fn park_row(counters: &ThreadCounters, process_is_alive: bool) -> ParkRow {
    let (stopping, stopping_ns) = parked_waits::stopping(counters);
    ParkRow {
        native_id: native_id_of(counters),
        name: counters.name.to_text(),
        alive: process_is_alive && counters.state.load(Relaxed) == state::LIVE,
        folded: counters.aggregated.load(Relaxed),
        parked: parked_waits::parked(counters).read(),
        suspended: parked_waits::suspended(counters).read(),
        stopping,
        stopping_ns,
    }
}

fn native_id_of(counters: &ThreadCounters) -> Option<u32> {
    Some(counters.native_id.load(Relaxed)).filter(|native_id| *native_id != 0)
}
