//! The events of a GIL: each changes the GIL's state and counters and drives the queue.
//!
//! - A *wait* begins when one `take_gil` finds the GIL's mutex locked, or else with its first timed
//!   wait, and ends with that thread's take.
//! - A drop is *forced* if a drop request against the hold was pending.
//! - A gap between a drop and the next take is a *handoff* if a thread was waiting at the drop.
//!
//! Every function here runs in a hook, with the GIL's mutex held unless its comment says otherwise.
//! It allocates nothing, does not block or panic, and preserves errno.

pub mod scheduled_wait;

use std::sync::atomic::Ordering::Relaxed;

use headway_measure::add;
use headway_measure::clock::now_ns;

use crate::counters::{ProcessCounters, ThreadCounters};
use crate::gil::hold_time::{self, Answer, Cpu, is_late};
use crate::gil::locked::Locked;
use crate::gil::{Gil, LONG_HOLD_NS};
use crate::profile::{self, EndedWait};
use crate::queue::waiters::LockedWaiters;
use crate::registry::rows;
use crate::registry::threads::{self, this_thread};
use crate::trace::{self, EventKind};

/// Opens the counters of a GIL, which is free.
///
/// # Safety
/// As [`Gil::locked`].
pub unsafe fn open(gil: &'static Gil, process: &'static ProcessCounters, now_ns: u64) {
    // SAFETY: the mutex is held, as the caller promises.
    unsafe { gil.open(process, now_ns) };
    trace::name_gil(gil.serial.load(Relaxed), gil.interpreter_id.load(Relaxed), &gil.name);
}

/// The calling thread holds the GIL, whose counters have just opened. Returns false if there is no
/// row for the thread.
pub fn open_held(
    gil: &'static Gil,
    locked: &mut Locked,
    process: &'static ProcessCounters,
) -> bool {
    let Some((row, holder)) = rows::of_this_thread(gil, process) else { return false };
    locked.held = true;
    locked.holder = holder;
    locked.last_holder = row;
    gil.holder_thread.store(this_thread(), Relaxed);
    let counters = gil.counters();
    counters.holder.store(row, Relaxed);
    counters.held_at_open.store(1, Relaxed);
    counters.held_now.store(1, Relaxed);
    true
}

/// A thread begins a timed wait; `waiter` is its row, if it has one, and its counters. Returns
/// CPython's switch number, to pass to [`timed_wait_ended`].
pub fn timed_wait_began(
    gil: &'static Gil,
    locked: &mut Locked,
    waiter: Option<(u32, &'static ThreadCounters)>,
    now_ns: u64,
) -> u64 {
    let now_ns = gil.time_of_event_ns(locked, now_ns);
    locked.in_timed_wait += 1;
    if let Some((row, counters)) = waiter {
        if row != gil.unmeasured.load(Relaxed) && counters.wait_began_ns.load(Relaxed) == 0 {
            let began_ns = mutex_wait_began_ns(gil).unwrap_or(now_ns);
            if profile::is_on() {
                profile::on_wait(gil, locked, row, began_ns, now_ns);
            }
            counters.begin_wait(began_ns, &locked.hold_time, gil.collected.total_ns());
            locked.waiters += 1;
            trace::record(EventKind::Wait, &gil.serial, counters, began_ns);
        }
    }
    switch_number(gil)
}

/// The number of takes by another thread state than before, which CPython compares too.
#[inline(always)]
fn switch_number(gil: &Gil) -> u64 {
    // SAFETY: this is an event of the GIL.
    unsafe { gil.addresses().switch_number() }
}

/// When the calling thread began to wait for the GIL's mutex, which it holds now; `None` if it did
/// not wait. Only for a thread that has locked the mutex by `pthread_mutex_lock` since: its timed
/// waits lock the mutex too.
#[inline(always)]
fn mutex_wait_began_ns(gil: &Gil) -> Option<u64> {
    Some(gil.mutex_wait_began_ns.load(Relaxed)).filter(|began_ns| *began_ns != 0)
}

/// How a timed wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Woken,
    /// The switch interval has passed.
    TimedOut,
    /// A policy ended the wait as if it had timed out.
    RequestedEarly,
}

/// The timed wait is over. CPython requests a drop under the condition that is tested here.
pub fn timed_wait_ended(
    gil: &'static Gil,
    locked: &mut Locked,
    process: &'static ProcessCounters,
    outcome: Outcome,
    switch_number: u64,
) {
    locked.in_timed_wait = locked.in_timed_wait.saturating_sub(1);
    if outcome == Outcome::Woken || !locked.held || self::switch_number(gil) != switch_number {
        return;
    }
    let now_ns = gil.time_of_event_ns(locked, now_ns());
    // SAFETY: the GIL is held, so a take stored the holder's counters, which are never unmapped.
    let holder: &ThreadCounters = unsafe { &*locked.holder };
    if !locked.drop_requested {
        locked.drop_requested = true;
        locked.requested_ns = now_ns;
        locked.collected_at_request_ns = gil.collected.total_ns();
        locked.unanswered.begin(holder, now_ns, !locked.queue.schedules());
    } else {
        let since_ns = now_ns.saturating_sub(locked.requested_ns);
        locked.unanswered.repeat(holder, now_ns, since_ns);
    }
    locked.requested_last_ns = now_ns;
    locked.requested_early |= outcome == Outcome::RequestedEarly;
    let counters = gil.counters();
    add(&counters.drop_requests, 1);
    counters.requested_ns.store(now_ns, Relaxed);
    if trace::is_on() {
        if let Some((_, counters)) = rows::of_this_thread(gil, process) {
            trace::record(EventKind::DropRequest, &gil.serial, counters, now_ns);
        }
    }
}

/// The calling thread has taken the GIL.
#[inline]
pub fn take(
    gil: &'static Gil,
    locked: &mut Locked,
    process: &'static ProcessCounters,
    now_ns: u64,
) {
    let counters = gil.counters();
    if locked.held {
        // A drop was not seen. Count it as if it happened now.
        add(&counters.anomalies, 1);
        unseen_drop(gil, locked, now_ns);
    }
    counters.end_gap(now_ns);
    let Some((row, taker)) = rows::of_this_thread(gil, process) else {
        // There is no row, not even for unmeasured threads: this hold counts as idle time.
        add(&counters.anomalies, 1);
        return;
    };
    locked.held = true;
    locked.holder = taker;
    gil.holder_thread.store(this_thread(), Relaxed);
    locked.drop_requested = false;
    locked.requested_early = false;
    locked.last_holder = row;
    counters.begin_hold(row);
    add(&taker.takes, 1);
    let serial = &gil.serial;
    let mut wait_began_ns = taker.wait_began_ns.load(Relaxed);
    let was_seen = wait_began_ns != 0;
    if !was_seen && row != gil.unmeasured.load(Relaxed) {
        if let Some(began_ns) = mutex_wait_began_ns(gil) {
            // The clock and the counter differ a little.
            wait_began_ns = began_ns.min(now_ns);
            trace::record(EventKind::Wait, serial, taker, wait_began_ns);
        }
    }
    let contended = wait_began_ns != 0;
    if profile::is_on() {
        let wait = EndedWait { began_ns: wait_began_ns, was_seen };
        profile::on_take(gil, locked, taker, contended.then_some(wait), now_ns);
    }
    if contended {
        locked.waiters = locked.waiters.saturating_sub(u32::from(was_seen));
        taker.count_wait(wait_began_ns, now_ns);
        if was_seen {
            let wait_ns = now_ns.saturating_sub(wait_began_ns);
            let collected_ns = gil.collected.total_ns();
            locked.preventable_ns = taker.divide_wait(wait_ns, &locked.hold_time, collected_ns);
        }
        add(&counters.contended_takes, 1);
    }
    let kind = if contended { EventKind::ContendedTake } else { EventKind::Take };
    trace::record(kind, serial, taker, now_ns);
    if locked.queue.schedules() {
        // SAFETY: the GIL's mutex is held.
        let waiters = unsafe { &mut LockedWaiters::of_locked_gil() };
        if contended {
            let cpu_bound = headway_sched::is_cpu_bound(waiters, row);
            counters.note_wait(now_ns.saturating_sub(wait_began_ns), cpu_bound);
        }
        let own_slice_ns = threads::switch_interval_of_this_thread_ns();
        let switch = locked.queue.took(waiters, row, own_slice_ns, now_ns);
        gil.forced_switch.note_take(switch);
    }
}

/// `cond` was signalled. It is a drop if the calling thread holds the GIL. If the thread waits
/// instead, it stops waiting without a take: in a free-threaded build, `take_gil` passes the signal
/// on like this if the GIL was disabled meanwhile.
#[inline(always)]
pub fn signal(
    gil: &'static Gil,
    locked: &mut Locked,
    process: &'static ProcessCounters,
    now_ns: u64,
) {
    if locked.held && gil.holder_thread.load(Relaxed) == this_thread() {
        drop_by_holder(gil, locked, true, now_ns);
    } else if let Some((row, counters)) = rows::of_this_thread(gil, process) {
        if counters.wait_began_ns.load(Relaxed) != 0 {
            if profile::is_on() {
                profile::on_end_of_wait(gil, locked, now_ns);
            }
            locked.waiters = locked.waiters.saturating_sub(1);
        }
        counters.wait_began_ns.store(0, Relaxed);
        trace::record(EventKind::GaveUp, &gil.serial, counters, now_ns);
        // SAFETY: the GIL's mutex is held.
        let waiters = unsafe { &mut LockedWaiters::of_locked_gil() };
        locked.queue.gave_up(waiters, row, now_ns);
    }
}

#[cold]
#[inline(never)]
fn unseen_drop(gil: &'static Gil, locked: &mut Locked, now_ns: u64) {
    drop_by_holder(gil, locked, false, now_ns);
}

/// The holder drops the GIL. It is the calling thread, unless its drop was not seen.
#[inline(always)]
fn drop_by_holder(gil: &'static Gil, locked: &mut Locked, seen: bool, now_ns: u64) {
    // First, where it costs the fewest instructions.
    if profile::is_on() {
        profile::on_drop(gil, locked, now_ns);
    }
    let counters = gil.counters();
    // SAFETY: the GIL is held, so a take stored the holder's counters, which are never unmapped.
    let holder: &ThreadCounters = unsafe { &*locked.holder };
    let forced = locked.drop_requested;
    let hold_ns = counters.count_drop(now_ns, forced);
    holder.count_drop(hold_ns, forced);
    let answer = if forced { Some(answer(gil, locked, holder, now_ns)) } else { None };
    let is_long = hold_time::is_long(hold_ns, forced && !locked.requested_early);
    if locked.preventable_ns != 0 {
        if !is_long {
            add(&holder.waited_preventable_ns, locked.preventable_ns);
        }
        locked.preventable_ns = 0;
    }
    if is_long {
        let collected_ns = gil.collected.in_hold_ns(now_ns - hold_ns).min(hold_ns);
        let parts_ns = hold_time::divide(hold_ns - collected_ns, answer);
        locked.hold_time.iter_mut().zip(parts_ns).for_each(|(total, part)| *total += part);
    }
    if hold_ns >= LONG_HOLD_NS {
        let cpu = answer.and_then(|answer| answer.cpu);
        gil.last_long_hold_cpu_ns.store(cpu.map_or(0, |cpu| cpu.used_ns), Relaxed);
        gil.last_long_hold_ns[0].store(now_ns - hold_ns, Relaxed);
        gil.last_long_hold_ns[1].store(now_ns, Relaxed);
    }
    let kind = if forced { EventKind::ForcedDrop } else { EventKind::Drop };
    trace::record(kind, &gil.serial, holder, now_ns);
    if let Some(answer) = answer {
        holder.count_answer(answer.ns, answer.cpu.map(|cpu| cpu.used_ns));
    }
    if locked.requested_early {
        add(&counters.preemptions, 1);
        add(&holder.preemptions, 1);
    }
    locked.held = false;
    gil.holder_thread.store(0, Relaxed);
    counters.begin_gap(locked.in_timed_wait > 0 || gil.mutex_waiters.load(Relaxed) > 0);
    if locked.queue.schedules() {
        // SAFETY: the GIL's mutex is held.
        let waiters = unsafe { &mut LockedWaiters::of_locked_gil() };
        let woken = locked.queue.dropped(waiters, locked.last_holder, forced, seen, now_ns);
        gil.forced_switch.note_drop(woken);
    }
}

/// How the holder answers a drop request by the drop that ends its hold.
fn answer(gil: &Gil, locked: &mut Locked, holder: &ThreadCounters, now_ns: u64) -> Answer {
    let answer_ns = now_ns.saturating_sub(locked.requested_ns);
    // The collector answers no request, and uses CPU time.
    let collected_ns = gil.collected.total_ns().saturating_sub(locked.collected_at_request_ns);
    let cpu = locked.unanswered.end(holder, now_ns, is_late(answer_ns));
    Answer {
        ns: answer_ns.saturating_sub(collected_ns),
        cpu: cpu.map(|cpu| Cpu {
            used_ns: cpu.used_ns.saturating_sub(collected_ns).max(1),
            of_ns: cpu.of_ns.saturating_sub(collected_ns),
        }),
    }
}

/// The calling thread was forced to switch and has waited on `switch_cond`. Runs without the GIL's
/// mutex: the counters that change have the thread as their writer.
pub fn forced_wait(
    gil: &'static Gil,
    process: &'static ProcessCounters,
    began_ns: u64,
    now_ns: u64,
) {
    if let Some((row, counters)) = rows::of_this_thread(gil, process) {
        if row != gil.unmeasured.load(Relaxed) {
            counters.count_forced_wait(now_ns.saturating_sub(began_ns));
            let serial = &gil.serial;
            trace::record(EventKind::ForcedWait, serial, counters, began_ns);
            trace::record(EventKind::ForcedWaitEnded, serial, counters, now_ns);
        }
    }
}
