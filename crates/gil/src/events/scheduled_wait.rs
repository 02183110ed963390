//! The events of a timed wait that a policy schedules.

use std::sync::atomic::Ordering::Relaxed;

use headway_measure::clock::now_ns;
use headway_sched::ThreadId;

use super::{Outcome, timed_wait_began, timed_wait_ended};
use crate::counters::ProcessCounters;
use crate::gil::Gil;
use crate::gil::locked::Locked;
use crate::queue::Step;
use crate::queue::waiters::LockedWaiters;
use crate::registry::{rows, threads};

/// A wait of the calling thread.
#[derive(Clone, Copy)]
pub struct ScheduledWait {
    pub row: ThreadId,
    pub cpu_bound: bool,
    /// The time of the event that began the wait.
    pub began_ns: u64,
    switch_number: u64,
}

/// Puts the calling thread into the queue; `None` if its wait is not scheduled.
pub fn begin(
    gil: &'static Gil,
    locked: &mut Locked,
    process: &'static ProcessCounters,
    now_ns: u64,
) -> Option<ScheduledWait> {
    let began_ns = gil.time_of_event_ns(locked, now_ns);
    follow_policy(gil, locked, || began_ns);
    // CPython waits only while the GIL is held; if it is free here, the state is wrong. A thread
    // without a row of its own has no waiter record.
    if !locked.queue.schedules() || !locked.held {
        return None;
    }
    let (row, counters) = rows::of_this_thread(gil, process)?;
    if row == gil.unmeasured.load(Relaxed) {
        return None;
    }
    let switch_number = timed_wait_began(gil, locked, Some((row, counters)), began_ns);
    // SAFETY: this is an event, so the mutex is held.
    let waiters = unsafe { &mut LockedWaiters::of_locked_gil() };
    let own_slice_ns = threads::switch_interval_of_this_thread_ns();
    locked.queue.begin_wait(waiters, row, interval_ns(gil), own_slice_ns, began_ns);
    gil.forced_switch.end_brief_hold();
    let cpu_bound = headway_sched::is_cpu_bound(waiters, row);
    Some(ScheduledWait { row, cpu_bound, began_ns, switch_number })
}

/// The switch interval of the GIL. The end of CPython's wait does not tell it: a thread that lost
/// its core between the computation of the end and the hook has less time left.
fn interval_ns(gil: &Gil) -> u64 {
    const LONGEST_NS: u64 = 1_000_000_000_000;
    // SAFETY: this is an event of the GIL.
    let interval_us = unsafe { gil.addresses().interval_us() };
    interval_us.max(1).saturating_mul(1_000).min(LONGEST_NS)
}

/// Decides what the waiter does next. Any step but `Wait` ends the timed wait. `at_ns` is the
/// present time; `None` if it has to be read.
pub fn step(
    gil: &'static Gil,
    locked: &mut Locked,
    process: &'static ProcessCounters,
    wait: ScheduledWait,
    at_ns: Option<u64>,
) -> Step {
    follow_policy(gil, locked, now_ns);
    let holder = locked.holder_id();
    // A waiter that finds the GIL free rechecks, whatever the time is.
    let now_ns = at_ns.unwrap_or_else(|| if holder.is_some() { now_ns() } else { 0 });
    // SAFETY: this is an event, so the mutex is held.
    let waiters = unsafe { &mut LockedWaiters::of_locked_gil() };
    let requested_ns = locked.drop_requested.then_some(locked.requested_last_ns);
    let step = locked.queue.step(waiters, wait.row, holder, requested_ns, now_ns);
    let outcome = match step {
        Step::Wait { .. } => return step,
        Step::Recheck => Outcome::Woken,
        Step::RequestDrop { early: true } => Outcome::RequestedEarly,
        Step::RequestDrop { early: false } => Outcome::TimedOut,
    };
    timed_wait_ended(gil, locked, process, outcome, wait.switch_number);
    step
}

fn follow_policy(gil: &Gil, locked: &mut Locked, now_ns: impl FnOnce() -> u64) {
    if locked.queue.is_outdated() {
        let holder = locked.holder_id();
        // SAFETY: this is an event, so the mutex is held.
        let waiters = unsafe { &mut LockedWaiters::of_locked_gil() };
        locked.queue.follow(waiters, holder, now_ns());
        gil.forced_switch.set_in_use(locked.queue.schedules());
    }
}
