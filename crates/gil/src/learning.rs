//! Which condition variable is which: learned from behaviour, before anything is counted.
//!
//! A probe thread contends for the main GIL once, while the installer holds it. What it waits on is
//! `cond`, with `mutex`; what the same thread signals before it leaves `take_gil` is `switch_cond`.
//! A free-threaded build without a GIL has nothing to contend for. There the engine keeps
//! watching: a thread that signals one address (a take's `switch_cond`) and then another that lies before it
//! by just the size of a condition variable and a mutex (a drop's `cond`) has shown a GIL.
//!
//! The `saw_*` functions run in hooks, under the rules of `hook`.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use crate::install;
use crate::registry::gil::{life, this_thread};
use crate::registry::gils;
use crate::registry::gils::Layout;

/// What the hooks look for.
///
/// | value | meaning |
/// |---|---|
/// | `NOTHING` | addresses are known, or nobody asked |
/// | `PROBE` | the events of the probe thread |
/// | `ANY_GIL` | the main GIL, whenever it is switched on |
static LOOKING_FOR: AtomicU32 = AtomicU32::new(NOTHING);
const NOTHING: u32 = 0;
const PROBE: u32 = 1;
const ANY_GIL: u32 = 2;

static PROBE_THREAD: AtomicUsize = AtomicUsize::new(0);
static COND: AtomicUsize = AtomicUsize::new(0);
static MUTEX: AtomicUsize = AtomicUsize::new(0);
static SWITCH_COND: AtomicUsize = AtomicUsize::new(0);
/// Distance of an interpreter's own GIL from the interpreter; 0 where GILs do not lie in it.
static COND_AFTER_INTERPRETER: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a GIL.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub cond: usize,
    pub switch_cond: usize,
}

pub const COND_BYTES: usize = size_of::<libc::pthread_cond_t>();
const MUTEX_BYTES: usize = size_of::<libc::pthread_mutex_t>();

pub fn look_for_probe() {
    for address in [&PROBE_THREAD, &COND, &MUTEX, &SWITCH_COND] {
        address.store(0, Relaxed);
    }
    LOOKING_FOR.store(PROBE, Release);
}

/// In a forked child, which may have been made in the middle of a search.
pub fn look_for_nothing() {
    LOOKING_FOR.store(NOTHING, Relaxed);
}

pub fn look_for_any_gil() {
    [&COND, &SWITCH_COND, &PROBE_THREAD].iter().for_each(|address| address.store(0, Relaxed));
    LOOKING_FOR.store(ANY_GIL, Release);
}

/// The calling thread is the probe: it takes the GIL next.
pub fn this_thread_is_the_probe() {
    PROBE_THREAD.store(this_thread(), Release);
}

/// Whether the probe was seen to wait.
pub fn probe_waits() -> bool {
    COND.load(Acquire) != 0
}

/// What the probe showed, if it is complete and looks as `struct _gil_runtime_state` does in every
/// known CPython: `cond`, `mutex`, `switch_cond`, one behind the other.
pub fn learned() -> Option<Addresses> {
    LOOKING_FOR.store(NOTHING, Release);
    let (cond, mutex) = (COND.load(Acquire), MUTEX.load(Acquire));
    let switch_cond = SWITCH_COND.load(Acquire);
    let confirmed = cond != 0 && mutex == cond + COND_BYTES && switch_cond == mutex + MUTEX_BYTES;
    confirmed.then_some(Addresses { cond, switch_cond })
}

pub fn set_cond_after_interpreter(bytes: usize) {
    COND_AFTER_INTERPRETER.store(bytes, Relaxed);
}

/// How the addresses of any GIL of this process lie to each other.
pub fn layout() -> Layout {
    Layout {
        switch_cond_after_cond: COND_BYTES + MUTEX_BYTES,
        cond_after_interpreter: COND_AFTER_INTERPRETER.load(Relaxed),
    }
}

pub fn saw_timed_wait(cond: usize, mutex: usize) {
    match LOOKING_FOR.load(Acquire) {
        PROBE if PROBE_THREAD.load(Acquire) == this_thread() && COND.load(Relaxed) == 0 => {
            MUTEX.store(mutex, Relaxed);
            COND.store(cond, Release);
        }
        ANY_GIL if mutex == cond + COND_BYTES => adopt_main(cond),
        _ => {}
    }
}

pub fn saw_signal(cond: usize) {
    match LOOKING_FOR.load(Acquire) {
        PROBE if PROBE_THREAD.load(Acquire) == this_thread() => {
            let waited_on = COND.load(Relaxed);
            if waited_on != 0 && waited_on != cond && SWITCH_COND.load(Relaxed) == 0 {
                SWITCH_COND.store(cond, Release);
            }
        }
        ANY_GIL => {
            let before = SWITCH_COND.swap(cond, AcqRel);
            let same_thread = PROBE_THREAD.swap(this_thread(), AcqRel) == this_thread();
            if same_thread && before == cond + COND_BYTES + MUTEX_BYTES {
                adopt_main(cond);
            }
        }
        _ => {}
    }
}

/// The main GIL came on at run time: it is known from here on.
fn adopt_main(cond: usize) {
    if LOOKING_FOR.compare_exchange(ANY_GIL, NOTHING, AcqRel, Relaxed).is_ok() {
        gils::know_main(layout().of(cond));
    }
}

/// The last condition variables that were initialized, so that a pair at the distance of `cond` and
/// `switch_cond` is seen even when interpreters are made side by side.
static RECENT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static RECENT_NEXT: AtomicUsize = AtomicUsize::new(0);

/// `create_gil` initializes `cond`, then `switch_cond`. Called without a GIL's mutex.
pub fn saw_init(cond: usize) {
    if gils::main().life.load(Relaxed) != life::OPEN || layout().cond_after_interpreter == 0 {
        return;
    }
    let first = cond.wrapping_sub(COND_BYTES + MUTEX_BYTES);
    match RECENT.iter().find(|recent| recent.load(Relaxed) == first) {
        Some(recent) => {
            recent.store(0, Relaxed);
            // CPython puts an interpreter at the head of its list before it makes its GIL. A pair that
            // lies elsewhere is somebody else's, or waits for `gils::match_interpreters`.
            let interpreter = first.wrapping_sub(layout().cond_after_interpreter);
            if let Some(id) = install::id_if_newest(interpreter) {
                gils::add(first, layout(), id);
            }
        }
        None => RECENT[RECENT_NEXT.fetch_add(1, Relaxed) % RECENT.len()].store(cond, Relaxed),
    }
}
