//! The two waits of the hooks while a policy schedules the GIL; see `queue`.
//!
//! A thread releases the mutex that it came with, waits, and locks it again, like the functions
//! that these replace.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

use headway_measure::clock::now_ns;

use super::mutex;
use crate::counters::ProcessCounters;
use crate::events::scheduled_wait;
use crate::gil::{Gil, Opening};
use crate::kernel_hints;
use crate::queue::{Step, waiters, wakeup};
use crate::registry::rows;

type Mutex = *mut libc::pthread_mutex_t;

/// How long a thread spins before it sleeps: about the cost of sleeping and waking on a core that
/// is not idle. A holder that runs Python answers a drop request within a microsecond.
const SPIN_NS: u64 = 20_000;

/// Replaces a timed wait on `cond` that began at `began_ns`. Returns `None`, without an effect, if
/// CPython's own wait has to run.
///
/// # Safety
/// `mutex` is the GIL's, held by the caller.
pub unsafe fn timed_wait(
    gil: &'static Gil,
    process: &'static ProcessCounters,
    opening: Opening,
    mutex: Mutex,
    began_ns: u64,
) -> Option<c_int> {
    // SAFETY: the mutex is held, as the caller promises.
    let wait = unsafe {
        gil.event(opening, |locked| scheduled_wait::begin(gil, locked, process, began_ns))
    }??;
    let mut at_ns = Some(wait.began_ns);
    loop {
        // SAFETY: the mutex is held, here and whenever the loop repeats.
        let step = unsafe {
            gil.event(opening, |locked| scheduled_wait::step(gil, locked, process, wait, at_ns))
        };
        match step {
            Some(Step::Wait { until_ns, spin }) => {
                // SAFETY: the caller's mutex, which is held.
                unsafe { libc::pthread_mutex_unlock(mutex) };
                kernel_hints::follow_class(wait.row, wait.cpu_bound);
                let spin_ns = if spin { SPIN_NS } else { 0 };
                wakeup::wait(waiters::futex(wait.row), spin_ns, until_ns);
                // SAFETY: the caller's mutex.
                unsafe { mutex::lock_again(mutex) };
                at_ns = None;
            }
            Some(Step::RequestDrop { .. }) => return Some(libc::ETIMEDOUT),
            // The caller checks the GIL, or the meter was removed: a wait may end without a reason.
            Some(Step::Recheck) | None => return Some(0),
        }
    }
}

/// Replaces the wait on `switch_cond` after a forced drop. Returns the time of its end, or `None`,
/// without an effect, if CPython's own wait has to run.
///
/// # Safety
/// `mutex` is the GIL's switch mutex, held by the caller.
pub unsafe fn forced_wait(
    gil: &'static Gil,
    process: &'static ProcessCounters,
    mutex: Mutex,
) -> Option<u64> {
    let seen = gil.forced_switch.takes()?;
    // A thread without a row of its own has no waiter record.
    let (row, _) = rows::of_this_thread(gil, process)
        .filter(|(row, _)| *row != gil.unmeasured.load(Relaxed))?;
    // SAFETY: the caller's mutex, which is held.
    unsafe { libc::pthread_mutex_unlock(mutex) };
    let woken = gil.forced_switch.woken();
    waiters::note_core(row);
    let spin = woken != headway_sched::NOBODY && !waiters::share_a_core(row, woken);
    gil.forced_switch.wait(seen, if spin { SPIN_NS } else { 0 });
    if spin {
        gil.forced_switch.stand_back();
    }
    let ended_ns = now_ns();
    waiters::forced_wait_ended(row, ended_ns);
    // SAFETY: the caller's mutex.
    unsafe { mutex::lock_again(mutex) };
    Some(ended_ns)
}
