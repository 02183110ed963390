//! The iterations of event loops.
//!
//! A thread that waits for events with epoll, and returns to the same descriptor, runs a loop: so
//! do asyncio, uvloop, trio, Tornado, Twisted and gevent. Clients wait with `poll` or `select`, or
//! for a descriptor that they make for one wait, which has no iterations.
//!
//! An iteration lasts from the return of one wait to the beginning of the next. It has three parts:
//!
//! | part | with a GIL | without |
//! |---|---|---|
//! | computed | the thread held a GIL | its CPU time |
//! | waited | it waited for a GIL | it was parked or stopped |
//! | blocked | neither: a sleep, a file, C code that has dropped the GIL | the rest |
//!
//! The CPU clock, a system call, is read in iterations of a millisecond or more, and after waits in
//! which the thread slept. In between all time but that of waits counts as CPU time.
//!
//! [`wait_began`], [`wait_ended`] and [`closed`] run in hooks, without a GIL.
//!
//! - [`reader`]: the stacks of late iterations.
//! - [`late_stacks`]: the time that these are charged with.
//! - [`runners`]: the functions by which a stack shows a loop.

mod late_stacks;
pub mod reader;
mod runners;

pub use late_stacks::{LateStack, late_stacks};

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering::*};

use headway_measure::add;
use headway_measure::clock::{now_ns, thread_cpu_ns};

use crate::counters::{self, LOOPS, LoopCounters, ProcessCounters, state};
use crate::installation;
use crate::parked_waits;
use crate::registry::rows;
use crate::registry::threads::{self, Thread};
use crate::registry_lock::RegistryGuard;

/// An iteration of this duration has its CPU time read.
const READ_CPU_NS: u64 = 1_000_000;
/// In a wait of this duration the thread has slept.
const SLEPT_NS: u64 = 50_000;
/// From which duration on an iteration is late, unless the program says otherwise.
const LATE_NS: u64 = 20_000_000;
/// From so many waits and so long on, waits within an iteration are those of another loop.
const OTHER_WAITS: u32 = 8;
const OTHER_NS: u64 = 5_000_000_000;
/// The sum of loops that ended.
const ENDED: usize = LOOPS - 1;
/// In place of the index of a thread's loop plus one: there was no room for it.
const NO_ROOM: u32 = u32::MAX;
/// Room that is kept for new loops while others have ended.
const KEPT_FREE: usize = 8;

/// 1 once a loop has begun, since which closed descriptors are looked at. Writers: hooks. Relaxed:
/// a thread that closes the descriptor of a loop knows of it.
static LOOPS_BEGUN: AtomicU32 = AtomicU32::new(0);

/// A wait for events that has begun.
#[derive(Clone, Copy)]
pub struct Wait {
    epoch: u32,
    index: usize,
    began_ns: u64,
}

/// The calling thread is about to wait for events on `descriptor`, which ends its iteration. `None`
/// if it is not its loop that waits.
pub fn wait_began(descriptor: c_int) -> Option<Wait> {
    let epoch = installation::epoch();
    if epoch == 0 {
        return None;
    }
    let process = counters::of_this_process()?;
    let index = index_of_this_thread(process)?;
    let counters = process.event_loop(index);
    let (now_ns, times) = (now_ns(), times_of_this_thread(process));
    if counters.descriptor.load(Relaxed) != descriptor {
        if !is_another_loop(counters, descriptor, now_ns) {
            return None;
        }
        begin_another_loop(counters, descriptor);
        reader::note_place(index);
    } else if counters.iteration_began_ns.load(Relaxed) != 0 {
        end_iteration(process, index, times, now_ns);
        counters.other_waits.store(0, Relaxed);
    }
    // The thread uses no GIL while it waits for events.
    counters.held_before_ns.store(times.held_ns, Relaxed);
    counters.waited_before_ns.store(times.waited_ns, Relaxed);
    Some(Wait { epoch, index, began_ns: now_ns })
}

/// Whether a wait on another descriptor than the loop's is that of another loop. A callback may
/// wait with epoll, too: such a wait is a part of the iteration, in which the thread blocks. It is
/// another loop if the former has been closed or left, or if its iteration does not end while the
/// thread waits on this descriptor again and again.
fn is_another_loop(counters: &LoopCounters, descriptor: c_int, now_ns: u64) -> bool {
    let began_ns = counters.iteration_began_ns.load(Relaxed);
    let has_left = counters.left.load(Relaxed) == counters.begun.load(Relaxed);
    if began_ns == 0 || has_left || counters.descriptor.load(Relaxed) < 0 {
        return true;
    }
    if counters.other_descriptor.load(Relaxed) != descriptor {
        counters.other_descriptor.store(descriptor, Relaxed);
        counters.other_waits.store(0, Relaxed);
    }
    let waits = counters.other_waits.load(Relaxed).saturating_add(1);
    counters.other_waits.store(waits, Relaxed);
    waits >= OTHER_WAITS && now_ns.saturating_sub(began_ns) >= OTHER_NS
}

/// The thread runs another loop; the time before is no iteration.
#[cold]
#[inline(never)]
fn begin_another_loop(counters: &LoopCounters, descriptor: c_int) {
    counters.iteration_began_ns.store(0, Relaxed);
    counters.other_waits.store(0, Relaxed);
    counters.loops.store(counters.loops.load(Relaxed).wrapping_add(1), Relaxed);
    counters.descriptor.store(descriptor, Relaxed);
}

/// A number that no other counters have had; 0 is none.
fn next_serial() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Relaxed).wrapping_add(1).max(1)
}

/// The wait is over, and an iteration begins.
pub fn wait_ended(wait: Wait) {
    if installation::epoch() != wait.epoch {
        return;
    }
    let Some(process) = counters::of_this_process() else { return };
    let counters = process.event_loop(wait.index);
    let now_ns = now_ns();
    let polled_ns = now_ns.saturating_sub(wait.began_ns);
    add(&counters.polled_ns, polled_ns);
    if polled_ns >= SLEPT_NS {
        note_cpu_time(counters, thread_cpu_ns());
    } else {
        add(&counters.awake_since_ns, polled_ns);
    }
    add(&counters.begun, 1);
    counters.iteration_began_ns.store(now_ns, Release);
    reader::note_iteration();
}

/// A thread closes `descriptor`: a loop that waited there is over.
pub fn closed(descriptor: c_int) {
    if installation::epoch() == 0 || LOOPS_BEGUN.load(Relaxed) == 0 {
        return;
    }
    let Some(process) = counters::of_this_process() else { return };
    let loops = process.loops.iter().take(ENDED);
    for counters in loops.filter(|each| each.descriptor.load(Relaxed) == descriptor) {
        // SAFETY: no preconditions.
        let is_own = unsafe { libc::getpid() } == process.pid.load(Relaxed);
        // A child of vfork shares this memory, and closes its own descriptors.
        if is_own && counters.state.load(Relaxed) == state::LIVE {
            end_loop(counters);
        }
    }
}

fn end_loop(counters: &LoopCounters) {
    counters.descriptor.store(-1, Relaxed);
    counters.iteration_began_ns.store(0, Relaxed);
}

/// The program does not run its loops now: the time until each waits again is no iteration. Not for
/// hooks.
pub fn leave_present_iterations() {
    let Some(process) = counters::of_this_process() else { return };
    let live = process.loops.iter().filter(|each| each.state.load(Acquire) == state::LIVE);
    live.for_each(|counters| counters.left.store(counters.begun.load(Relaxed), Relaxed));
}

/// The parts of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    computed_ns: u64,
    waited_ns: u64,
    blocked_ns: u64,
    /// The part of `blocked_ns` in which the thread ran.
    ran_blocked_ns: u64,
}

impl Parts {
    /// `cpu_ns` is the thread's CPU time; `None` if it was not read.
    fn new(duration_ns: u64, times: Times, cpu_ns: Option<u64>, has_gil: bool) -> Self {
        let waited_ns = times.waited_ns.min(duration_ns);
        let rest_ns = duration_ns - waited_ns;
        let cpu_ns = cpu_ns.unwrap_or(rest_ns).min(rest_ns);
        let computed_ns = if has_gil { times.held_ns.min(rest_ns) } else { cpu_ns };
        let blocked_ns = rest_ns - computed_ns;
        let ran_blocked_ns = cpu_ns.saturating_sub(computed_ns).min(blocked_ns);
        Self { computed_ns, waited_ns, blocked_ns, ran_blocked_ns }
    }
}

#[inline]
fn end_iteration(process: &'static ProcessCounters, index: usize, now: Times, now_ns: u64) {
    let counters = process.event_loop(index);
    let began_ns = counters.iteration_began_ns.load(Relaxed);
    let duration_ns = now_ns.saturating_sub(began_ns);
    let times = Times {
        held_ns: now.held_ns.saturating_sub(counters.held_before_ns.load(Relaxed)),
        waited_ns: now.waited_ns.saturating_sub(counters.waited_before_ns.load(Relaxed)),
    };
    let cpu_ns = if duration_ns >= READ_CPU_NS {
        let (noted_ns, cpu_ns) = (counters.cpu_noted_ns.load(Relaxed), thread_cpu_ns());
        let awake_ns = counters.awake_since_ns.load(Relaxed);
        note_cpu_time(counters, cpu_ns);
        Some(cpu_ns.saturating_sub(noted_ns).saturating_sub(awake_ns))
    } else {
        add(&counters.awake_since_ns, duration_ns.saturating_sub(times.waited_ns));
        None
    };
    let has_gil = process.gil_enabled.load(Relaxed) != 0;
    let parts = Parts::new(duration_ns, times, cpu_ns, has_gil);
    let has_left = counters.left.load(Relaxed) == counters.begun.load(Relaxed);
    let is_late = duration_ns >= late_ns(process);
    counters.changing(|| {
        counters.iteration_began_ns.store(0, Relaxed);
        if has_left {
            return;
        }
        counters.duration.record(duration_ns);
        counters.computed.record(parts.computed_ns);
        counters.waited.record(parts.waited_ns);
        counters.blocked.record(parts.blocked_ns);
        add(&counters.ran_blocked_ns, parts.ran_blocked_ns);
        let duration_us = duration_ns / 1_000;
        let squares_us2 = &counters.half_squares_us2;
        let more_us2 = duration_us.saturating_mul(duration_us) / 2;
        squares_us2.store(squares_us2.load(Relaxed).saturating_add(more_us2), Relaxed);
        if is_late {
            add(&counters.late, 1);
            add(&counters.late_computed_ns, parts.computed_ns);
            add(&counters.late_waited_ns, parts.waited_ns);
            add(&counters.late_blocked_ns, parts.blocked_ns);
            add(&counters.late_ran_blocked_ns, parts.ran_blocked_ns);
            counters.note_late_parts([parts.computed_ns, parts.waited_ns, parts.blocked_ns]);
        }
    });
    if is_late {
        reader::note_late(index);
    }
}

/// From which duration on an iteration is late.
pub fn late_ns(process: &ProcessCounters) -> u64 {
    match process.late_loop_ns.load(Relaxed) {
        0 => LATE_NS,
        late_ns => late_ns,
    }
}

fn note_cpu_time(counters: &LoopCounters, cpu_ns: u64) {
    counters.cpu_noted_ns.store(cpu_ns, Relaxed);
    counters.awake_since_ns.store(0, Relaxed);
}

/// The times of a thread up to a moment in which it neither holds a GIL nor waits for one.
#[derive(Clone, Copy)]
struct Times {
    held_ns: u64,
    waited_ns: u64,
}

#[inline]
fn times_of_this_thread(process: &ProcessCounters) -> Times {
    let mut times = Times { held_ns: 0, waited_ns: 0 };
    for counters in rows::counters_of_this_thread() {
        times.held_ns += counters.hold.sum_ns.load(Relaxed);
        times.waited_ns += counters.wait.sum_ns.load(Relaxed);
    }
    if process.sees_parks.load(Relaxed) != 0 {
        if let Some(counters) = rows::waits_without_gil_of_this_thread() {
            times.waited_ns += parked_waits::waited_ns(counters);
        }
    }
    times
}

fn index_of(thread: &Thread) -> Option<usize> {
    match thread.event_loop.load(Relaxed) {
        0 | NO_ROOM => None,
        index => Some(index as usize - 1),
    }
}

#[inline]
fn index_of_this_thread(process: &ProcessCounters) -> Option<usize> {
    let thread = threads::current_or_new()?;
    match thread.event_loop.load(Relaxed) {
        0 | NO_ROOM => begin_loop(thread, process),
        index => Some(index as usize - 1),
    }
}

#[cold]
#[inline(never)]
fn begin_loop(thread: &Thread, process: &ProcessCounters) -> Option<usize> {
    let free = process.loops.iter().enumerate().take(ENDED).find(|(_, counters)| {
        counters.state.compare_exchange(state::FREE, state::LIVE, AcqRel, Relaxed).is_ok()
    });
    let Some((index, counters)) = free else {
        // Counted once; there may be room for a later wait.
        if thread.event_loop.swap(NO_ROOM, Relaxed) != NO_ROOM {
            process.unmeasured_loops.fetch_add(1, Relaxed);
        }
        return None;
    };
    LOOPS_BEGUN.store(1, Relaxed);
    counters.clear();
    counters.serial.store(next_serial(), Relaxed);
    counters.native_id.store(thread.native_id.load(Relaxed), Relaxed);
    note_cpu_time(counters, thread_cpu_ns());
    thread.event_loop.store(index as u32 + 1, Relaxed);
    Some(index)
}

/// Forgets what was read, in a forked child, because it is the parent's.
pub fn forget() {
    late_stacks::forget();
    reader::end();
}

/// Forgets what an earlier installation has read.
pub fn begin_anew() {
    late_stacks::clear();
}

/// A thread ends, and its loop. Not for hooks.
pub fn thread_ended(
    thread: &Thread,
    process: &ProcessCounters,
    name: &[u8],
    _registry: &RegistryGuard,
) {
    let Some(index) = index_of(thread) else { return };
    let counters = process.event_loop(index);
    end_loop(counters);
    thread.event_loop.store(0, Relaxed);
    if counters.duration.is_empty() {
        // A client, or a loop that only began.
        counters.clear();
        counters.state.store(state::FREE, Release);
        return;
    }
    counters.name.set(name);
    counters.state.store(state::ENDED, Release);
    let in_state = |wanted: u32| {
        let loops = process.loops.iter().take(ENDED);
        loops.filter(move |counters| counters.state.load(Relaxed) == wanted)
    };
    while in_state(state::FREE).count() < KEPT_FREE {
        let weight_ns = |counters: &&LoopCounters| counters.duration.sum_ns.load(Relaxed);
        let Some(ended) = in_state(state::ENDED).min_by_key(weight_ns) else { return };
        let sum = process.event_loop(ENDED);
        sum.merge(ended);
        sum.state.store(state::AGGREGATE, Release);
        ended.clear();
        ended.state.store(state::FREE, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn times(held_ns: u64, waited_ns: u64) -> Times {
        Times { held_ns, waited_ns }
    }

    fn parts(computed_ns: u64, waited_ns: u64, blocked_ns: u64, ran_blocked_ns: u64) -> Parts {
        Parts { computed_ns, waited_ns, blocked_ns, ran_blocked_ns }
    }

    #[test]
    fn the_parts_of_an_iteration_add_up() {
        for (duration_ns, times, cpu_ns, has_gil, expected) in [
            (100, times(70, 20), Some(75), true, parts(70, 20, 10, 5)),
            (100, times(70, 20), None, true, parts(70, 20, 10, 10)),
            // Off its core with the GIL, the thread used less CPU time.
            (100, times(70, 20), Some(30), true, parts(70, 20, 10, 0)),
            // The clocks differ a little.
            (100, times(90, 20), Some(95), true, parts(80, 20, 0, 0)),
            (100, times(0, 120), Some(3), true, parts(0, 100, 0, 0)),
            (100, times(0, 20), Some(30), false, parts(30, 20, 50, 0)),
            (100, times(0, 20), None, false, parts(80, 20, 0, 0)),
        ] {
            let found = Parts::new(duration_ns, times, cpu_ns, has_gil);
            assert_eq!(found, expected);
            let sum_ns = found.computed_ns + found.waited_ns + found.blocked_ns;
            assert_eq!(sum_ns, duration_ns);
        }
    }

    #[test]
    fn a_sum_of_ended_loops_makes_room() {
        // SAFETY: all zero bytes are a process that has measured nothing.
        let process = unsafe { Box::<ProcessCounters>::new_zeroed().assume_init() };
        let registry = crate::registry_lock::lock();
        let thread = || threads::take_entry_for_test();
        for duration_ns in 1..=100 {
            let thread = thread();
            let index = begin_loop(thread, &process).unwrap();
            process.event_loop(index).duration.record(duration_ns * 1_000);
            thread_ended(thread, &process, b"a", &registry);
            thread.free();
        }
        let sum = process.event_loop(ENDED);
        assert_eq!(sum.aggregated.load(Relaxed) as usize, 100 - (ENDED - KEPT_FREE));
        let kept = process.loops.iter().take(ENDED).map(|each| each.duration.read().count());
        assert_eq!(kept.sum::<u64>() + sum.duration.read().count(), 100);
        let live: Vec<_> = (0..ENDED + 1).map(|_| thread()).collect();
        let begun = live.iter().filter(|thread| begin_loop(thread, &process).is_some()).count();
        assert_eq!((begun, process.unmeasured_loops.load(Relaxed)), (KEPT_FREE, 24));
        live.iter().for_each(|thread| thread.free());
    }
}
