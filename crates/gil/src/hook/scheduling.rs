//! What the hooks of the two waits do while a policy schedules the GIL: see `queue`.
//!
//! Under the rules of `hook`, but that a thread lets go of the mutex that it came with, waits, and takes
//! it again, as the functions do that it stands in for.

use std::ffi::c_int;

use headway_sched::ThreadId;

use crate::counters::mapping::Slot;
use crate::events;
use crate::events::Outcome;
use crate::kernel_hints;
use crate::queue::Step;
use crate::queue::futex;
use crate::queue::waiters;
use crate::queue::waiters::Seats;
use crate::registry::gil::{Gil, Locked};
use crate::registry::threads;
use headway_measure::clock::{self, now_ns};

use crate::hook::mutex;

type Mutex = *mut libc::pthread_mutex_t;

/// How long a thread spins before it sleeps: about what sleeping and waking cost on a core that is not
/// idle. A holder that is asked drops within a microsecond if it runs Python at all.
const SPIN_NS: u64 = 20_000;

/// Stands in for a timed wait on `cond` that began at `began_ns`; `None`, with nothing done, if this
/// wait is CPython's own.
///
/// # Safety
/// `mutex` is the GIL's, held by the caller; `until` is readable.
pub unsafe fn timed_wait(
    gil: &'static Gil,
    slot: &'static Slot,
    epoch: u32,
    mutex: Mutex,
    until: *const libc::timespec,
    began_ns: u64,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let until = unsafe { *until };
    // SAFETY: the mutex is held.
    let (me, switch_number, cpu_bound) =
        unsafe { gil.event(epoch, |locked| begin(gil, locked, slot, until, began_ns)) }??;
    loop {
        // SAFETY: the mutex is held, here and whenever the loop comes back.
        let step = unsafe { gil.event(epoch, |locked| step(gil, locked, me, switch_number)) };
        match step {
            Some(Step::Park { until_ns, spin }) => {
                // SAFETY: the caller's mutex.
                unsafe { libc::pthread_mutex_unlock(mutex) };
                kernel_hints::follow_class(me, cpu_bound);
                futex::park(waiters::word(me), if spin { SPIN_NS } else { 0 }, until_ns);
                // SAFETY: as above.
                unsafe { mutex::lock_again(mutex) };
            }
            Some(Step::Ask { .. }) => return Some(libc::ETIMEDOUT),
            // The GIL is to be looked at, or the meter was removed: a wait may end for no reason.
            Some(Step::Look) | None => return Some(0),
        }
    }
}

/// Puts the calling thread into the queue. Its id, the switch number and its class, or `None` if its wait is not to
/// be scheduled.
fn begin(
    gil: &'static Gil,
    locked: &mut Locked,
    slot: &'static Slot,
    until: libc::timespec,
    now_ns: u64,
) -> Option<(ThreadId, u64, bool)> {
    follow_policy(gil, locked, now_ns);
    // CPython waits only while the GIL is held: if the books have it free they are wrong. A thread
    // without a book of its own has no seat.
    if !locked.queue.schedules() || !locked.held {
        return None;
    }
    let (me, _) = threads::of_this_thread(gil, slot)?;
    if me == gil.unmeasured.load(std::sync::atomic::Ordering::Relaxed) {
        return None;
    }
    let switch_number = events::timed_wait_began(gil, locked, slot, now_ns);
    let interval_ns = interval_ns(until, now_ns);
    // SAFETY: in an event, so the mutex is held.
    let seats = unsafe { &mut Seats::of_locked_gil() };
    locked.queue.begin_wait(seats, me, interval_ns, now_ns);
    Some((me, switch_number, headway_sched::is_cpu_bound(seats, me)))
}

/// The switch interval, from which CPython computed the end of the wait a moment ago: by the clock of the
/// books, CLOCK_MONOTONIC, or where a platform lacks that for condition variables, by CLOCK_REALTIME.
fn interval_ns(until: libc::timespec, now_ns: u64) -> u64 {
    const LONGEST_NS: u64 = 1_000_000_000_000;
    let until_ns = clock::nanoseconds(until);
    let interval_ns = match until_ns.saturating_sub(now_ns) {
        by_monotonic if by_monotonic <= LONGEST_NS => by_monotonic,
        _ => until_ns.saturating_sub(clock::wall_ns()),
    };
    interval_ns.clamp(1, LONGEST_NS)
}

fn step(gil: &'static Gil, locked: &mut Locked, me: ThreadId, switch_number: u64) -> Step {
    let now_ns = now_ns();
    follow_policy(gil, locked, now_ns);
    let holder = locked.holder_id();
    // SAFETY: in an event, so the mutex is held.
    let seats = unsafe { &mut Seats::of_locked_gil() };
    let requested_ns = locked.drop_requested.then_some(locked.requested_last_ns);
    let step = locked.queue.step(seats, me, holder, requested_ns, now_ns);
    let outcome = match step {
        Step::Park { .. } => return step,
        Step::Look => Outcome::Woken,
        Step::Ask { early: true } => Outcome::AskedEarly,
        Step::Ask { early: false } => Outcome::TimedOut,
    };
    events::timed_wait_ended(gil, locked, outcome, switch_number);
    step
}

/// In an event.
fn follow_policy(gil: &Gil, locked: &mut Locked, now_ns: u64) {
    if locked.queue.is_outdated() {
        let holder = locked.holder_id();
        // SAFETY: in an event, so the mutex is held.
        let seats = unsafe { &mut Seats::of_locked_gil() };
        locked.queue.follow(seats, holder, now_ns);
        gil.switch.set_in_use(locked.queue.schedules());
    }
}

/// Stands in for the wait on `switch_cond` after a forced drop. `false`, with nothing done, if
/// this wait is CPython's own.
///
/// # Safety
/// `mutex` is the GIL's switch mutex, held by the caller.
pub unsafe fn forced_wait(gil: &'static Gil, slot: &'static Slot, mutex: Mutex) -> bool {
    let Some(seen) = gil.switch.takes() else { return false };
    let Some((me, _)) = threads::of_this_thread(gil, slot) else { return false };
    // SAFETY: the caller's mutex.
    unsafe { libc::pthread_mutex_unlock(mutex) };
    let called = gil.switch.called();
    waiters::note_core(me);
    let spin = called != headway_sched::NOBODY && !waiters::share_a_core(me, called);
    gil.switch.wait(seen, if spin { SPIN_NS } else { 0 });
    waiters::forced_wait_ended(me, now_ns());
    // SAFETY: as above.
    unsafe { mutex::lock_again(mutex) };
    true
}
