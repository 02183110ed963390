//! The rules by which an event changes the books. A *wait* runs from the moment at which one `take_gil`
//! finds the GIL's mutex locked, or else from its first timed wait, to that thread's take; a drop is *forced* if a drop request against
//! the hold was pending; a gap is a *handoff* if a thread waited at the drop.
//!
//! Every function here runs in a hook, with the GIL's mutex held (but `forced_wait`, see there). They
//! allocate nothing, block on nothing, and keep errno.

use std::sync::atomic::Ordering::Relaxed;

use crate::counters::book::{GilBook, ThreadBook, gap};
use crate::counters::mapping::Slot;
use crate::queue::waiters::Seats;
use crate::registry::gil::{Gil, LONG_HOLD_NS, Locked, this_thread};
use crate::registry::threads;
use crate::trace;
use crate::trace::Kind;
use headway_measure::add;
use headway_measure::clock::now_ns;

/// Adds the time since the last change to what it was: a hold or a gap.
pub fn close_moment(book: &GilBook, now_ns: u64) {
    let past_ns = now_ns.saturating_sub(book.changed_ns.load(Relaxed));
    let counter = match (book.held_now.load(Relaxed), book.gap.load(Relaxed)) {
        (1, _) => &book.held_ns,
        (_, gap::HANDOFF) => &book.handoff_ns,
        _ => &book.idle_ns,
    };
    add(counter, past_ns);
    book.changed_ns.store(now_ns, Relaxed);
}

/// A thread begins a timed wait. Returns the switch number that `timed_wait_ended` wants back.
pub fn timed_wait_began(
    gil: &'static Gil,
    locked: &mut Locked,
    slot: &'static Slot,
    now_ns: u64,
) -> u64 {
    locked.in_timed_wait += 1;
    if let Some((index, book)) = threads::of_this_thread(gil, slot)
        && index != gil.unmeasured.load(Relaxed)
        && book.wait_began_ns.load(Relaxed) == 0
    {
        let began_ns = mutex_wait_began_ns(gil).unwrap_or(now_ns);
        book.wait_began_ns.store(began_ns, Relaxed);
        trace::record(Kind::Wait, gil, book, began_ns);
    }
    locked.switch_number
}

/// When the calling thread began to wait for the GIL's mutex, which it holds now, if it waited. Only for
/// a thread that has locked the mutex by `pthread_mutex_lock` since: its timed waits lock it too.
#[inline(always)]
fn mutex_wait_began_ns(gil: &Gil) -> Option<u64> {
    Some(gil.mutex_wait_began_ns.load(Relaxed)).filter(|began_ns| *began_ns != 0)
}

/// How a timed wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Woken,
    /// After the switch interval.
    TimedOut,
    /// A policy made it end as if it had timed out.
    AskedEarly,
}

/// The timed wait is over. CPython asks for a drop under the very condition tested here.
pub fn timed_wait_ended(
    gil: &'static Gil,
    locked: &mut Locked,
    outcome: Outcome,
    switch_number: u64,
) {
    locked.in_timed_wait = locked.in_timed_wait.saturating_sub(1);
    if outcome != Outcome::Woken && locked.held && locked.switch_number == switch_number {
        let now_ns = now_ns();
        if !locked.drop_requested {
            locked.drop_requested = true;
            locked.requested_ns = now_ns;
            locked.unanswered.begin();
        } else {
            // SAFETY: the GIL is held, so a holder was stored, from a slot that is never unmapped.
            let holder: &ThreadBook = unsafe { &*locked.holder };
            locked.unanswered.go_on(holder, now_ns.saturating_sub(locked.requested_ns));
        }
        locked.requested_last_ns = now_ns;
        locked.requested_early |= outcome == Outcome::AskedEarly;
        add(&gil.book().drop_requests, 1);
        trace::record_request(gil, now_ns);
    }
}

/// The calling thread has taken the GIL.
#[inline]
pub fn take(gil: &'static Gil, locked: &mut Locked, slot: &'static Slot, now_ns: u64) {
    let book = gil.book();
    if locked.held {
        // A drop was not seen. Mend the books as if it happened now, and count it.
        add(&book.anomalies, 1);
        drop_by_holder(gil, locked, now_ns);
    }
    let gap_ns = now_ns.saturating_sub(book.changed_ns.load(Relaxed));
    let handoff = book.gap.load(Relaxed) == gap::HANDOFF;
    add(if handoff { &book.handoff_ns } else { &book.idle_ns }, gap_ns);
    book.changed_ns.store(now_ns, Relaxed);
    let Some((index, mine)) = threads::of_this_thread(gil, slot) else {
        // Not even a book for unmeasured threads: this hold counts as idle time.
        add(&book.anomalies, 1);
        return;
    };
    locked.held = true;
    locked.holder = mine;
    gil.holder_thread.store(this_thread(), Relaxed);
    locked.drop_requested = false;
    locked.requested_early = false;
    if locked.last_holder != index {
        locked.last_holder = index;
        locked.switch_number += 1;
    }
    book.holder.store(index, Relaxed);
    book.held_now.store(1, Relaxed);
    add(&book.takes, 1);
    add(&mine.takes, 1);
    let mut wait_began_ns = mine.wait_began_ns.load(Relaxed);
    if wait_began_ns == 0
        && index != gil.unmeasured.load(Relaxed)
        && let Some(began_ns) = mutex_wait_began_ns(gil)
    {
        wait_began_ns = began_ns;
        trace::record(Kind::Wait, gil, mine, began_ns);
    }
    if wait_began_ns != 0 {
        mine.wait_began_ns.store(0, Relaxed);
        mine.wait.record(now_ns.saturating_sub(wait_began_ns));
        add(&mine.contended_takes, 1);
        add(&book.contended_takes, 1);
    }
    let kind = if wait_began_ns != 0 { Kind::ContendedTake } else { Kind::Take };
    trace::record(kind, gil, mine, now_ns);
    if locked.queue.schedules() {
        // SAFETY: the GIL's mutex is held.
        let seats = unsafe { &mut Seats::of_locked_gil() };
        if wait_began_ns != 0 {
            let longest = match headway_sched::is_cpu_bound(seats, index) {
                true => &book.longest_cpu_bound_wait_ns,
                false => &book.longest_io_bound_wait_ns,
            };
            let wait_ns = now_ns.saturating_sub(wait_began_ns);
            longest.store(longest.load(Relaxed).max(wait_ns), Relaxed);
        }
        if locked.queue.took(seats, index, now_ns) {
            gil.switch.note_take();
        }
    }
}

/// `cond` was signalled: a drop if the calling thread holds. If it does not hold but waits, then it gives
/// up waiting without a take: in free-threaded builds `take_gil` passes the signal on like that when the
/// GIL was switched off meanwhile.
#[inline]
pub fn signal(gil: &'static Gil, locked: &mut Locked, slot: &'static Slot, now_ns: u64) {
    if locked.held && gil.holder_thread.load(Relaxed) == this_thread() {
        drop_by_holder(gil, locked, now_ns);
    } else if let Some((index, book)) = threads::of_this_thread(gil, slot) {
        book.wait_began_ns.store(0, Relaxed);
        trace::record(Kind::GaveUp, gil, book, now_ns);
        // SAFETY: the GIL's mutex is held.
        let seats = unsafe { &mut Seats::of_locked_gil() };
        locked.queue.gave_up(seats, index, now_ns);
    }
}

#[inline]
fn drop_by_holder(gil: &'static Gil, locked: &mut Locked, now_ns: u64) {
    let book = gil.book();
    // SAFETY: the GIL is held, so a holder was stored, from a slot that is never unmapped.
    let holder: &ThreadBook = unsafe { &*locked.holder };
    let hold_ns = now_ns.saturating_sub(book.changed_ns.load(Relaxed));
    holder.hold.record(hold_ns);
    let unanswered_cpu_ns = match locked.drop_requested {
        true => locked.unanswered.end(holder),
        false => None,
    };
    if hold_ns >= LONG_HOLD_NS {
        gil.last_long_hold_cpu_ns.store(unanswered_cpu_ns.unwrap_or(0), Relaxed);
        gil.last_long_hold_ns[0].store(now_ns - hold_ns, Relaxed);
        gil.last_long_hold_ns[1].store(now_ns, Relaxed);
    }
    add(&book.held_ns, hold_ns);
    book.changed_ns.store(now_ns, Relaxed);
    let (of_gil, of_thread) = match locked.drop_requested {
        true => (&book.forced_drops, &holder.forced_drops),
        false => (&book.voluntary_drops, &holder.voluntary_drops),
    };
    add(of_gil, 1);
    add(of_thread, 1);
    let kind = if locked.drop_requested { Kind::ForcedDrop } else { Kind::Drop };
    trace::record(kind, gil, holder, now_ns);
    if locked.drop_requested {
        let answer_ns = now_ns.saturating_sub(locked.requested_ns);
        if answer_ns > holder.longest_answer_ns.load(Relaxed) {
            holder.longest_answer_ns.store(answer_ns, Relaxed);
        }
        if let Some(cpu_ns) = unanswered_cpu_ns {
            let longest_ns = holder.longest_answer_cpu_ns.load(Relaxed).max(cpu_ns);
            holder.longest_answer_cpu_ns.store(longest_ns, Relaxed);
        }
    }
    if locked.requested_early {
        add(&book.preemptions, 1);
        add(&holder.preemptions, 1);
    }
    locked.held = false;
    gil.holder_thread.store(0, Relaxed);
    let waited_for = locked.in_timed_wait > 0 || gil.mutex_waiters.load(Relaxed) > 0;
    book.gap.store(if waited_for { gap::HANDOFF } else { gap::IDLE }, Relaxed);
    book.held_now.store(0, Relaxed);
    if locked.queue.schedules() {
        let (holder, forced) = (locked.last_holder, locked.drop_requested);
        // SAFETY: the GIL's mutex is held.
        let seats = unsafe { &mut Seats::of_locked_gil() };
        gil.switch.note_called(locked.queue.dropped(seats, holder, forced, now_ns));
    }
}

/// The calling thread was forced to switch, and has waited on `switch_cond`. Runs without the GIL's
/// mutex: the two counters are the thread's own.
pub fn forced_wait(gil: &'static Gil, slot: &'static Slot, began_ns: u64, now_ns: u64) {
    if let Some((index, book)) = threads::of_this_thread(gil, slot)
        && index != gil.unmeasured.load(Relaxed)
    {
        add(&book.forced_waits, 1);
        add(&book.forced_waited_ns, now_ns - began_ns);
        trace::record(Kind::ForcedWait, gil, book, began_ns);
        trace::record(Kind::ForcedWaitEnded, gil, book, now_ns);
    }
}

/// The GIL is held by the calling thread, since now: how the main GIL's book opens at an install.
pub fn open_held(gil: &'static Gil, locked: &mut Locked, slot: &'static Slot) -> bool {
    let Some((index, holder)) = threads::of_this_thread(gil, slot) else { return false };
    locked.held = true;
    locked.holder = holder;
    locked.last_holder = index;
    gil.holder_thread.store(this_thread(), Relaxed);
    let book = gil.book();
    book.holder.store(index, Relaxed);
    book.held_at_open.store(1, Relaxed);
    book.held_now.store(1, Relaxed);
    true
}
