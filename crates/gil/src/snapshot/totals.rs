//! Counters for frequent readers: sums of all threads' histograms for each GIL, and the counters of
//! each thread, without copies of the rows.
//!
//! They are for differences between two readings. Every figure only grows, but the figures are not
//! consistent with each other: a running event may be in some of them and not in others. A
//! `snapshot` is consistent and costs more. A reading needs no GIL, and only delays events while it
//! reads the counters of a single GIL.

use std::sync::atomic::Ordering::*;

use headway_measure::Histogram;
use headway_measure::clock::now_ns;

use super::loops::{FEWEST_ITERATIONS, iterating_ns};
use super::rows::{GilRow, gil_row, holding};
use crate::counters::{self, NO_GIL, ProcessCounters, ThreadCounters, free_list, state};
use crate::gil::Gil;
use crate::registry::gils;
use crate::{parked_waits, registry_lock};

/// One GIL, or the sum of those that ended.
#[derive(Clone, Debug, Default)]
pub struct GilTotals {
    pub row: GilRow,
    /// When the counters opened; together with `row.id` it identifies the GIL. 0 for the sum of
    /// those that ended.
    pub opened_ns: u64,
    /// The number of live threads with a row for this GIL.
    pub threads: u64,
    pub wait: Histogram,
    pub hold: Histogram,
}

/// One thread on one GIL, or a sum of threads that ended, whose native ID is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// The row, which together with the native ID identifies the thread on this GIL.
    pub row: u32,
    pub native_id: u32,
    /// The ID of the GIL; `None` for waits on a free-threaded build.
    pub gil: Option<u32>,
    pub held_ns: u64,
    pub waited_ns: u64,
    /// Parts of `waited_ns`: see `gil::hold_time`.
    pub waited_preventable_ns: u64,
    pub waited_unanswered_ns: u64,
    pub waited_off_core_ns: u64,
    pub waited_collection_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub forced_drops: u64,
    pub preemptions: u64,
    pub forced_waited_ns: u64,
    /// This and the next two fields are for free-threaded builds; see `parked_waits`.
    pub parked_ns: u64,
    pub suspended_ns: u64,
    pub stopping_ns: u64,
}

/// All event loops of a process, with those that ended; see `crate::loops`.
#[derive(Clone, Debug, Default)]
pub struct LoopTotals {
    /// From which duration on an iteration is late.
    pub late_limit_ns: u64,
    /// The longest iteration that has not ended; 0 while all loops wait for events.
    pub iterating_ns: u64,
    pub polled_ns: u64,
    pub computed_ns: u64,
    pub waited_ns: u64,
    pub blocked_ns: u64,
    pub late: u64,
    pub late_computed_ns: u64,
    pub late_waited_ns: u64,
    pub late_blocked_ns: u64,
    /// The part of `late_blocked_ns` in which the thread ran.
    pub late_ran_blocked_ns: u64,
    /// The durations of iterations.
    pub duration: Histogram,
}

/// The counters of a process. A value can be read into again, which saves allocations.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub policy: &'static str,
    pub gil_enabled: bool,
    pub switch_interval_us: u64,
    pub unmeasured_events: u64,
    pub gils: Vec<GilTotals>,
    pub threads: Vec<ThreadTotals>,
    /// The waits of all threads for locks and events; `None` unless a free-threaded build's waits
    /// are counted.
    pub parked: Option<Histogram>,
    /// `None` before an event loop has had iterations.
    pub loops: Option<LoopTotals>,
    /// Threads that waited for events and found no room for a loop.
    pub unmeasured_loops: u32,
}

impl Totals {
    /// Reads all counters again. Returns false, and has no rows, before the first install.
    pub fn read(&mut self) -> bool {
        self.gils.clear();
        self.threads.clear();
        self.parked = None;
        self.loops = None;
        let Some(process) = counters::of_this_process() else { return false };
        let head = super::head(process);
        self.policy = head.policy;
        self.gil_enabled = head.gil_enabled;
        self.switch_interval_us = head.switch_interval_us;
        self.unmeasured_events = head.unmeasured_events;
        self.unmeasured_loops = head.unmeasured_loops;
        self.parked = (process.sees_parks.load(Relaxed) != 0).then(Histogram::default);
        // No row is aggregated meanwhile.
        let _registry = registry_lock::lock();
        free_list::prepare(process);
        let mut holders = Vec::new();
        for (index, counters) in process.gils.iter().enumerate() {
            if counters.state.load(Acquire) == state::FREE {
                continue;
            }
            let gil = gils::all().get(index);
            let copy = || {
                let open = counters.closed_ns.load(Relaxed) == 0;
                let now_ns = match open {
                    true => gil.map_or_else(now_ns, Gil::moment_ns),
                    false => counters.changed_ns.load(Relaxed),
                };
                let row = gil_row(index as u32, counters, now_ns, open);
                (row, holding(counters, now_ns))
            };
            let (row, holding) = gil.map_or_else(copy, |gil| Gil::read(gil, copy));
            holders.extend(holding);
            let opened_ns = if row.folded > 0 { 0 } else { counters.opened_ns.load(Relaxed) };
            self.gils.push(GilTotals { row, opened_ns, ..GilTotals::default() });
        }
        self.read_threads(process, &holders);
        self.read_loops(process, head.late_loop_ns);
        true
    }

    fn read_loops(&mut self, process: &ProcessCounters, late_limit_ns: u64) {
        let now_ns = now_ns();
        for counters in &process.loops {
            let present = counters.state.load(Acquire);
            let mut duration = Histogram::default();
            if present != state::FREE {
                counters.duration.add_to(&mut duration);
            }
            // A single iteration may be that of a client that waits once.
            if present != state::AGGREGATE && duration.count() < FEWEST_ITERATIONS {
                continue;
            }
            let sum = self.loops.get_or_insert_with(LoopTotals::default);
            sum.late_limit_ns = late_limit_ns;
            if present == state::LIVE {
                sum.iterating_ns = sum.iterating_ns.max(iterating_ns(counters, now_ns));
            }
            sum.polled_ns += counters.polled_ns.load(Relaxed);
            sum.computed_ns += counters.computed.sum_ns.load(Relaxed);
            sum.waited_ns += counters.waited.sum_ns.load(Relaxed);
            sum.blocked_ns += counters.blocked.sum_ns.load(Relaxed);
            sum.late_ran_blocked_ns += counters.late_ran_blocked_ns.load(Relaxed);
            sum.late += counters.late.load(Relaxed);
            sum.late_computed_ns += counters.late_computed_ns.load(Relaxed);
            sum.late_waited_ns += counters.late_waited_ns.load(Relaxed);
            sum.late_blocked_ns += counters.late_blocked_ns.load(Relaxed);
            sum.duration.merge(&duration);
        }
    }

    fn read_threads(&mut self, process: &ProcessCounters, holders: &[(u32, u64)]) {
        for (row, counters) in free_list::used(process) {
            let present = counters.state.load(Acquire);
            let gil = counters.gil.load(Relaxed);
            if present == state::FREE {
                continue;
            }
            if gil == NO_GIL as u32 {
                if let Some(sum) = &mut self.parked {
                    parked_waits::parked(counters).add_to(sum);
                }
                self.threads.push(parked(row, counters));
                continue;
            }
            let Some(of) = self.gils.iter_mut().find(|each| each.row.id == gil) else { continue };
            counters.wait.add_to(&mut of.wait);
            counters.hold.add_to(&mut of.hold);
            of.threads +=
                u64::from(present == state::LIVE && counters.native_id.load(Relaxed) != 0);
            let held_now_ns =
                holders.iter().find(|(holder, _)| *holder == row).map_or(0, |it| it.1);
            self.threads.push(ThreadTotals {
                held_ns: counters.hold.sum_ns.load(Relaxed)
                    + counters.held_at_close_ns.load(Relaxed)
                    + held_now_ns,
                waited_ns: counters.wait.sum_ns.load(Relaxed),
                waited_preventable_ns: counters.waited_preventable_ns.load(Relaxed),
                waited_unanswered_ns: counters.waited_unanswered_ns.load(Relaxed),
                waited_off_core_ns: counters.waited_off_core_ns.load(Relaxed),
                waited_collection_ns: counters.waited_collection_ns.load(Relaxed),
                takes: counters.takes.load(Relaxed),
                contended_takes: counters.contended_takes.load(Relaxed),
                forced_drops: counters.forced_drops.load(Relaxed),
                preemptions: counters.preemptions.load(Relaxed),
                forced_waited_ns: counters.forced_waited_ns.load(Relaxed),
                ..identity(row, counters, Some(gil))
            });
        }
    }
}

/// The name of a thread of `Totals`; empty if it has ended since, or has no name.
pub fn name_of_row(thread: &ThreadTotals) -> String {
    let _registry = registry_lock::lock();
    let counters =
        counters::of_this_process().and_then(|process| process.threads.get(thread.row as usize));
    let counters = counters.filter(|counters| counters.native_id.load(Relaxed) == thread.native_id);
    counters.map_or_else(String::new, |counters| counters.name.to_text())
}

fn identity(row: u32, counters: &ThreadCounters, gil: Option<u32>) -> ThreadTotals {
    let native_id = counters.native_id.load(Relaxed);
    ThreadTotals { row, native_id, gil, ..ThreadTotals::default() }
}

fn parked(row: u32, counters: &ThreadCounters) -> ThreadTotals {
    ThreadTotals {
        parked_ns: parked_waits::parked(counters).sum_ns.load(Relaxed),
        suspended_ns: parked_waits::suspended(counters).sum_ns.load(Relaxed),
        stopping_ns: parked_waits::stopping(counters).1,
        ..identity(row, counters, None)
    }
}
