//! The event loops of a snapshot.

use std::sync::atomic::Ordering::*;

use headway_measure::Histogram;

use crate::counters::{LoopCounters, ProcessCounters, free_list, state};

/// A descriptor that a thread waits on fewer times is that of a client.
pub(super) const FEWEST_ITERATIONS: u64 = 2;

/// One event loop, or a sum of loops that ended; see `crate::loops`. Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct LoopRow {
    /// See `LoopCounters::serial`; 0 for a sum.
    pub serial: u32,
    /// `None` for a sum of loops.
    pub native_id: Option<u32>,
    /// The name of the thread that runs the loop.
    pub name: String,
    pub alive: bool,
    /// The number of ended loops that this row sums up; 0 for a single loop.
    pub folded: u32,
    /// The time in which the thread waited for events.
    pub polled_ns: u64,
    /// The present iteration so far, if it is late; see `iterating_ns`.
    pub iterating_ns: u64,
    /// The part of `blocked` in which the thread ran.
    pub ran_blocked_ns: u64,
    /// The part of `blocked` in which the thread waited for a core, as far as it was read.
    pub core_waited_ns: u64,
    /// Half the sum of the squares of all iterations, in square microseconds.
    pub half_squares_us2: u64,
    pub late: u64,
    pub late_computed_ns: u64,
    pub late_waited_ns: u64,
    pub late_blocked_ns: u64,
    /// The part of `late_blocked_ns` in which the thread ran.
    pub late_ran_blocked_ns: u64,
    pub duration: Histogram,
    pub computed: Histogram,
    pub waited: Histogram,
    pub blocked: Histogram,
}

/// The loops of a process. `is_alive` is true if its threads run; `name_of` knows more names of
/// threads than the counters have.
pub(super) fn loop_rows(
    process: &ProcessCounters,
    is_alive: bool,
    now_ns: u64,
    name_of: impl Fn(u32) -> Option<String>,
) -> Vec<LoopRow> {
    let in_use = process.loops.iter().filter(|each| each.state.load(Acquire) != state::FREE);
    let copied = in_use.map(|counters| {
        let copy = Box::new(LoopCounters::new());
        copy.copy_from(counters);
        copy
    });
    let rows = copied.map(|counters| {
        let mut row = loop_row(&counters, is_alive, now_ns);
        if row.name.is_empty() {
            row.name = row
                .native_id
                .and_then(|id| {
                    let named = name_in(process, id).or_else(|| name_of(id));
                    named.filter(|name| !name.is_empty()).or_else(|| name_of_main(process, id))
                })
                .unwrap_or_default();
        }
        row
    });
    rows.filter(|row| row.folded > 0 || row.duration.count() >= FEWEST_ITERATIONS).collect()
}

fn loop_row(counters: &LoopCounters, is_alive: bool, now_ns: u64) -> LoopRow {
    let get = |number: &std::sync::atomic::AtomicU64| number.load(Relaxed);
    let alive = is_alive && counters.state.load(Relaxed) == state::LIVE;
    LoopRow {
        serial: counters.serial.load(Relaxed),
        native_id: Some(counters.native_id.load(Relaxed)).filter(|native_id| *native_id != 0),
        name: counters.name.to_text(),
        alive,
        folded: counters.aggregated.load(Relaxed),
        polled_ns: get(&counters.polled_ns),
        iterating_ns: if alive { iterating_ns(counters, now_ns) } else { 0 },
        ran_blocked_ns: get(&counters.ran_blocked_ns),
        core_waited_ns: get(&counters.core_waited_ns),
        half_squares_us2: get(&counters.half_squares_us2),
        late: get(&counters.late),
        late_computed_ns: get(&counters.late_computed_ns),
        late_waited_ns: get(&counters.late_waited_ns),
        late_blocked_ns: get(&counters.late_blocked_ns),
        late_ran_blocked_ns: get(&counters.late_ran_blocked_ns),
        duration: counters.duration.read(),
        computed: counters.computed.read(),
        waited: counters.waited.read(),
        blocked: counters.blocked.read(),
    }
}

/// The present iteration of a loop whose thread runs, if it is late already; 0 otherwise, and where
/// nobody has seen that the thread runs its loop.
pub(super) fn iterating_ns(counters: &LoopCounters, now_ns: u64) -> u64 {
    let begun = counters.begun.load(Relaxed);
    let is_seen = counters.seen.load(Relaxed) == begun && counters.left.load(Relaxed) != begun;
    match counters.iteration_began_ns.load(Relaxed) {
        began_ns if began_ns == 0 || !is_seen => 0,
        began_ns => now_ns.saturating_sub(began_ns),
    }
}

/// Python's name of the main thread, of which a forked process on a build without a GIL may have no
/// counters but those of its loop.
fn name_of_main(process: &ProcessCounters, native_id: u32) -> Option<String> {
    (process.pid.load(Relaxed) as u32 == native_id).then(|| "MainThread".to_owned())
}

/// The name of a thread, which its counters for a GIL have.
fn name_in(process: &ProcessCounters, native_id: u32) -> Option<String> {
    let mut rows = free_list::used(process).map(|(_, counters)| counters);
    let named = rows.find(|counters| {
        counters.native_id.load(Relaxed) == native_id && !counters.name.is_empty()
    });
    named.map(|counters| counters.name.to_text())
}
