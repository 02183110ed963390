//! What threads wait for where there is no GIL to wait for: the books of a free-threaded build.
//!
//! There CPython's threads wait on semaphores: for a `PyMutex`, a critical section, an event (its parking lot),
//! or, up to 3.13, a lock of `threading`. What a wait is for shows in the thread's state as it begins:
//!
//! | thread state | wait | what it is |
//! |---|---|---|
//! | none, or attached | without a limit; with one and no thread state | *parked*: for a lock or an event. A lock of the runtime itself is waited for with the thread state attached |
//! | current and not attached | without a limit | *suspended*: another thread has stopped the world, and this one, on its way to its thread state, stands still until that goes on |
//! | attached | with a limit of a millisecond | *stopping*: this thread stops the world, and waits for those that still run; CPython looks again after each millisecond |
//!
//! A wait is counted when it ends. Each thread's book is one of those that threads have for a GIL, under an
//! index that no GIL has; nobody but the thread writes it. `wait_ended` runs in hooks.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

use crate::counters;
use crate::counters::book::ThreadBook;
use crate::counters::mapping::Slot;
use crate::registry::gil::EPOCH;
use crate::registry::{gils, threads};
use headway_measure::clock::now_ns;
use headway_measure::{AtomicHistogram, add};

/// `_Py_THREAD_ATTACHED`.
const ATTACHED: i32 = 1;
/// The longest that one who stops the world waits without looking again.
const STOPPING_SLICE_NS: u64 = 1_000_000;

/// Where a thread finds its thread state, and how it tells whether that is attached.
#[derive(Clone, Copy)]
pub struct ThreadStates {
    /// `PyThreadState_GetUnchecked`: null if the thread has none. Reads a variable of the thread.
    pub current: unsafe extern "C" fn() -> *mut c_void,
    /// From the start of a `PyThreadState` to its `state`, an `int`.
    pub state_offset: usize,
}

/// Written at install, before the slots that lead here; 0 and 0 before.
static CURRENT: AtomicUsize = AtomicUsize::new(0);
static STATE_OFFSET: AtomicUsize = AtomicUsize::new(0);

pub fn know(states: ThreadStates) {
    STATE_OFFSET.store(states.state_offset, Relaxed);
    CURRENT.store(states.current as *const () as usize, Release);
}

/// Opens the books of a process whose waits are hooked: each thread has a new one at its next wait.
pub fn open(slot: &Slot) {
    gils::no_gil().serial.store(gils::next_serial(), Relaxed);
    slot.sees_parks.store(1, Relaxed);
}

/// What a wait is, as far as the thread's state tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Parked,
    Suspended,
    Stopping,
}

/// A wait that is under way.
#[derive(Clone, Copy)]
pub struct Park {
    epoch: u32,
    kind: Kind,
    began_ns: u64,
}

/// The calling thread is about to wait, for `limit_ns` at most.
pub fn wait_began(limit_ns: impl FnOnce(u64) -> Option<u64>) -> Option<Park> {
    let epoch = EPOCH.load(Acquire);
    let current = CURRENT.load(Acquire);
    if epoch == 0 || current == 0 {
        return None;
    }
    // SAFETY: `know` stored a function of this type, and the offset before it. A thread's current thread
    // state is not freed but by the thread itself.
    let attached = unsafe {
        let current: unsafe extern "C" fn() -> *mut c_void = std::mem::transmute(current);
        let state = current().cast::<u8>();
        (!state.is_null()).then(|| {
            let state = state.add(STATE_OFFSET.load(Relaxed)).cast::<i32>();
            AtomicI32::from_ptr(state).load(Relaxed) == ATTACHED
        })
    };
    let began_ns = now_ns();
    let limit_ns = limit_ns(began_ns);
    Some(Park { epoch, kind: kind_of(attached, limit_ns), began_ns })
}

fn kind_of(attached: Option<bool>, limit_ns: Option<u64>) -> Kind {
    match (attached, limit_ns) {
        (Some(false), None) => Kind::Suspended,
        (Some(true), Some(..=STOPPING_SLICE_NS)) => Kind::Stopping,
        _ => Kind::Parked,
    }
}

/// It is over, in whatever way.
pub fn wait_ended(park: Park) {
    if EPOCH.load(Acquire) != park.epoch {
        return;
    }
    let Some((_, book)) =
        counters::slot().and_then(|slot| threads::of_this_thread(gils::no_gil(), slot))
    else {
        return;
    };
    let waited_ns = now_ns().saturating_sub(park.began_ns);
    match park.kind {
        Kind::Parked => parked(book).record(waited_ns),
        Kind::Suspended => suspended(book).record(waited_ns),
        Kind::Stopping => {
            add(&book.forced_waits, 1);
            add(&book.forced_waited_ns, waited_ns);
        }
    }
}

// Which counters of a thread book are what, where it is no GIL's.

pub fn parked(book: &ThreadBook) -> &AtomicHistogram {
    &book.wait
}

pub fn suspended(book: &ThreadBook) -> &AtomicHistogram {
    &book.hold
}

/// How many waits, and how long.
pub fn stopping(book: &ThreadBook) -> (u64, u64) {
    (book.forced_waits.load(Relaxed), book.forced_waited_ns.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_by_the_thread_state_and_the_limit() {
        let second = Some(1_000_000_000);
        for (attached, limit_ns, kind) in [
            (None, None, Kind::Parked),
            (None, Some(STOPPING_SLICE_NS), Kind::Parked),
            (None, second, Kind::Parked),
            (Some(false), None, Kind::Suspended),
            (Some(true), None, Kind::Parked),
            (Some(true), Some(STOPPING_SLICE_NS), Kind::Stopping),
            (Some(true), Some(0), Kind::Stopping),
            (Some(true), second, Kind::Parked),
        ] {
            assert_eq!(kind_of(attached, limit_ns), kind, "{attached:?} {limit_ns:?}");
        }
    }
}
