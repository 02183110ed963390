//! Learns which condition variable of a GIL is which from their behaviour, before anything is
//! counted.
//!
//! A probe thread contends for the main GIL once, while the installer holds it. It waits on `cond`,
//! with `mutex`, and signals `switch_cond` before it leaves `take_gil`.
//!
//! A free-threaded build without a GIL has nothing to contend for. There the hooks keep watching: a
//! thread that signals one address (`switch_cond`, in a take) and then another one that lies before
//! it by the size of a condition variable and a mutex (`cond`, in a drop) has shown a GIL.
//!
//! The `saw_*` functions run in hooks, under the rules of `hook`.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use crate::gil::addresses::Addresses;
use crate::registry::gils;
use crate::registry::threads::this_thread;

/// The calls that hooks watch for.
///
/// | value | meaning |
/// |---|---|
/// | `NOTHING` | the addresses are known, or the meter is not being installed |
/// | `PROBE` | the calls of the probe thread |
/// | `ANY_GIL` | the main GIL, whenever it is enabled |
///
/// Writers: install, with release; a forked child; the hook that finds the main GIL, by
/// compare-and-swap. Readers: hooks, with acquire.
static WATCHING_FOR: AtomicU32 = AtomicU32::new(NOTHING);
const NOTHING: u32 = 0;
const PROBE: u32 = 1;
const ANY_GIL: u32 = 2;

/// The probe thread; while watching for any GIL, the thread of the last signal. Writers: the probe,
/// with release; hooks, by swap.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The kernel's ID of the probe thread; 0 before it is one. Writers: install, and the probe, with
/// release. Reader: install.
static PROBE_NATIVE_ID: AtomicU32 = AtomicU32::new(0);
/// The address that the probe waited on, or 0. Writer: its hook, `MUTEX` first, `COND` with
/// release.
static COND: AtomicUsize = AtomicUsize::new(0);
static MUTEX: AtomicUsize = AtomicUsize::new(0);
/// The address that the probe signalled; while watching for any GIL, the address of the last
/// signal. Writers: hooks, with release.
static SWITCH_COND: AtomicUsize = AtomicUsize::new(0);

pub fn watch_for_probe() {
    for address in [&THREAD, &COND, &MUTEX, &SWITCH_COND] {
        address.store(0, Relaxed);
    }
    PROBE_NATIVE_ID.store(0, Relaxed);
    WATCHING_FOR.store(PROBE, Release);
}

/// Ends learning in a forked child, whose parent may have been learning.
pub fn watch_for_nothing() {
    WATCHING_FOR.store(NOTHING, Relaxed);
}

pub fn watch_for_any_gil() {
    [&COND, &SWITCH_COND, &THREAD].iter().for_each(|address| address.store(0, Relaxed));
    WATCHING_FOR.store(ANY_GIL, Release);
}

/// The calling thread is the probe: it takes the GIL next.
pub fn this_thread_is_the_probe() {
    // SAFETY: gettid has no preconditions.
    PROBE_NATIVE_ID.store(unsafe { libc::gettid() } as u32, Release);
    THREAD.store(this_thread(), Release);
}

/// Returns whether the probe sleeps at this moment, as the kernel tells. It does so where it waits,
/// whether a hook has seen that or not.
pub fn probe_sleeps() -> bool {
    let native_id = PROBE_NATIVE_ID.load(Acquire);
    // The state follows the name, which is in parentheses and may have any characters.
    let state = std::fs::read(format!("/proc/self/task/{native_id}/stat")).ok().and_then(|stat| {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        stat.get(name_end + 2).copied()
    });
    native_id != 0 && state == Some(b'S')
}

/// Returns whether the probe was seen to wait.
pub fn probe_waits() -> bool {
    COND.load(Acquire) != 0
}

/// The addresses that the probe showed, if they are complete and have the layout of `struct
/// _gil_runtime_state` in every known CPython: `cond`, `mutex` and `switch_cond`, one behind the
/// other.
pub fn learned() -> Option<Addresses> {
    WATCHING_FOR.store(NOTHING, Release);
    let (cond, mutex) = (COND.load(Acquire), MUTEX.load(Acquire));
    let expected = Addresses::of_cond(cond);
    let confirmed =
        cond != 0 && mutex == expected.mutex() && SWITCH_COND.load(Acquire) == expected.switch_cond;
    confirmed.then_some(expected)
}

pub fn saw_timed_wait(cond: usize, mutex: usize) {
    match WATCHING_FOR.load(Acquire) {
        PROBE if THREAD.load(Acquire) == this_thread() && COND.load(Relaxed) == 0 => {
            MUTEX.store(mutex, Relaxed);
            COND.store(cond, Release);
        }
        ANY_GIL if mutex == Addresses::of_cond(cond).mutex() => adopt_main(cond),
        _ => {}
    }
}

pub fn saw_signal(cond: usize) {
    match WATCHING_FOR.load(Acquire) {
        PROBE if THREAD.load(Acquire) == this_thread() => {
            let waited_on = COND.load(Relaxed);
            if waited_on != 0 && waited_on != cond && SWITCH_COND.load(Relaxed) == 0 {
                SWITCH_COND.store(cond, Release);
            }
        }
        ANY_GIL => {
            let before = SWITCH_COND.swap(cond, AcqRel);
            let same_thread = THREAD.swap(this_thread(), AcqRel) == this_thread();
            if same_thread && before == Addresses::of_cond(cond).switch_cond {
                adopt_main(cond);
            }
        }
        _ => {}
    }
}

/// The main GIL was enabled at run time.
fn adopt_main(cond: usize) {
    if WATCHING_FOR.compare_exchange(ANY_GIL, NOTHING, AcqRel, Relaxed).is_ok() {
        gils::know_main(Addresses::of_cond(cond));
    }
}
