//! The waits of threads where there is no GIL to wait for: on free-threaded builds.
//!
//! There CPython's threads wait on semaphores: for a `PyMutex`, a critical section or an event (its
//! parking lot), or, up to 3.13, for a lock of `threading`. The thread state shows the kind of a
//! wait when it begins:
//!
//! | thread state | wait | kind |
//! |---|---|---|
//! | none, or attached | without a limit; with one and no thread state | *parked*: for a lock or an event. A thread waits for a lock of the runtime with its thread state attached |
//! | current and not attached | without a limit | *suspended*: another thread has stopped the world, and this thread waits on its way to its thread state |
//! | attached | with a limit of a millisecond | *stopping*: this thread stops the world and waits for the others; CPython checks again after each millisecond |
//!
//! A wait is counted when it ends. A thread counts in a row under
//! [`NO_GIL`](crate::counters::NO_GIL), which no other thread writes. `wait_began` and `wait_ended`
//! run in hooks.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

use headway_measure::AtomicHistogram;
use headway_measure::clock::now_ns;

use crate::counters::{self, ProcessCounters, ThreadCounters};
use crate::finalization;
use crate::foreign_memory;
use crate::installation;
use crate::profile::{self, parked};
use crate::registry::{gils, rows};

/// `_Py_THREAD_ATTACHED`.
const ATTACHED: i32 = 1;
/// The longest wait of a thread that stops the world, before it checks again.
const STOPPING_SLICE_NS: u64 = 1_000_000;

/// How a thread finds its thread state, and whether that is attached.
#[derive(Clone, Copy)]
pub struct ThreadStates {
    /// `PyThreadState_GetUnchecked`, which reads a variable of the thread; null if there is none.
    pub current: unsafe extern "C" fn() -> *mut c_void,
    /// `PyGILState_GetThisThreadState`, which reads a variable of the thread too, and returns the
    /// thread state also while it is detached; null if there is none.
    pub own: unsafe extern "C" fn() -> *mut c_void,
    /// The offset of the `int` field `state` in a `PyThreadState`.
    pub state_offset: usize,
}

/// [`ThreadStates`]; 0 before the first install. Writer: install, `CURRENT` last and with
/// release, before it writes the slots. Readers: hooks, with acquire.
static CURRENT: AtomicUsize = AtomicUsize::new(0);
static OWN: AtomicUsize = AtomicUsize::new(0);
static STATE_OFFSET: AtomicUsize = AtomicUsize::new(0);

pub fn know(states: ThreadStates) {
    STATE_OFFSET.store(states.state_offset, Relaxed);
    OWN.store(states.own as *const () as usize, Relaxed);
    CURRENT.store(states.current as *const () as usize, Release);
}

/// Begins to count in a process whose waits are hooked. Each thread gets a row at its next wait.
pub fn open(process: &ProcessCounters) {
    gils::no_gil().open_without_counters();
    process.sees_parks.store(1, Relaxed);
}

/// The kind of a wait, as the thread state shows it. The order is that of `store::PARKED_NAMES`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitKind {
    Parked,
    Suspended,
    Stopping,
}

/// A wait that has begun.
#[derive(Clone, Copy)]
pub struct Wait {
    epoch: u32,
    kind: WaitKind,
    began_ns: u64,
}

/// The calling thread is about to wait. `limit_ns` computes the limit of the wait from the present
/// time.
pub fn wait_began(limit_ns: impl FnOnce(u64) -> Option<u64>) -> Option<Wait> {
    let epoch = installation::epoch();
    let current = CURRENT.load(Acquire);
    if epoch == 0 || current == 0 {
        return None;
    }
    // SAFETY: `know` stored a function of this type.
    let current = unsafe {
        let current: unsafe extern "C" fn() -> *mut c_void = std::mem::transmute(current);
        current() as usize
    };
    let attached = (current != 0).then(|| state_of(current) == Some(ATTACHED));
    let began_ns = now_ns();
    let limit_ns = limit_ns(began_ns);
    Some(Wait { epoch, kind: kind_of(attached, limit_ns), began_ns })
}

/// The field `state` of the calling thread's current thread state; `None` if it was freed.
fn state_of(current: usize) -> Option<i32> {
    let state = current.wrapping_add(STATE_OFFSET.load(Relaxed));
    if finalization::phase().keeps_own_thread_state() {
        // SAFETY: `know` stored the offset before the function that found the thread state, which
        // only its own thread frees, since CPython does not finalize.
        return Some(unsafe { AtomicI32::from_ptr(state as *mut i32).load(Relaxed) });
    }
    foreign_memory::get(state)
}

fn kind_of(attached: Option<bool>, limit_ns: Option<u64>) -> WaitKind {
    match (attached, limit_ns) {
        (Some(false), None) => WaitKind::Suspended,
        (Some(true), Some(..=STOPPING_SLICE_NS)) => WaitKind::Stopping,
        _ => WaitKind::Parked,
    }
}

/// The wait is over, for any reason. Writes only the counters of the calling thread.
pub fn wait_ended(wait: Wait) {
    if installation::epoch() != wait.epoch {
        return;
    }
    let Some((_, counters)) = counters::of_this_process()
        .and_then(|process| rows::of_this_thread(gils::no_gil(), process))
    else {
        return;
    };
    let now_ns = now_ns();
    let waited_ns = now_ns.saturating_sub(wait.began_ns);
    if profile::is_on() {
        parked::on_end_of_wait(wait.kind as usize, wait.began_ns, now_ns, counters, own_state);
    }
    match wait.kind {
        WaitKind::Parked => parked(counters).record(waited_ns),
        WaitKind::Suspended => suspended(counters).record(waited_ns),
        WaitKind::Stopping => counters.count_forced_wait(waited_ns),
    }
}

/// The address of the calling thread's thread state; 0 if it has none.
fn own_state() -> usize {
    let own = OWN.load(Relaxed);
    // SAFETY: a wait has begun, so `know` has stored a function of this type, with release.
    unsafe {
        let own: unsafe extern "C" fn() -> *mut c_void = std::mem::transmute(own);
        own() as usize
    }
}

// The meaning of counters without a GIL.

pub fn parked(counters: &ThreadCounters) -> &AtomicHistogram {
    &counters.wait
}

pub fn suspended(counters: &ThreadCounters) -> &AtomicHistogram {
    &counters.hold
}

/// The number of waits to stop the world, and their sum in nanoseconds.
pub fn stopping(counters: &ThreadCounters) -> (u64, u64) {
    (counters.forced_waits.load(Relaxed), counters.forced_waited_ns.load(Relaxed))
}

/// The sum of all waits without a GIL.
pub fn waited_ns(counters: &ThreadCounters) -> u64 {
    parked(counters).sum_ns.load(Relaxed)
        + suspended(counters).sum_ns.load(Relaxed)
        + stopping(counters).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_state_and_the_limit_show_the_kind_of_a_wait() {
        let second = Some(1_000_000_000);
        for (attached, limit_ns, kind) in [
            (None, None, WaitKind::Parked),
            (None, Some(STOPPING_SLICE_NS), WaitKind::Parked),
            (None, second, WaitKind::Parked),
            (Some(false), None, WaitKind::Suspended),
            (Some(true), None, WaitKind::Parked),
            (Some(true), Some(STOPPING_SLICE_NS), WaitKind::Stopping),
            (Some(true), Some(0), WaitKind::Stopping),
            (Some(true), second, WaitKind::Parked),
        ] {
            assert_eq!(kind_of(attached, limit_ns), kind, "{attached:?} {limit_ns:?}");
        }
    }
}
