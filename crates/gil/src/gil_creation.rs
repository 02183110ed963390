//! GILs that CPython initializes and destroys, as the hooks of `pthread_cond_init` and
//! `pthread_cond_destroy` see them. Runs without a GIL's mutex.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use headway_measure::clock;

use crate::gil::addresses::Addresses;
use crate::gil::{Gil, Role, life};
use crate::registry::threads::this_thread;
use crate::registry::{gils, interpreters};
use crate::{counters, events, finalization, installation};

/// The last condition variables that were initialized, so that the pair of a GIL is found even
/// while several interpreters are made at the same time. Writers: hooks. Relaxed: a lost value only
/// delays that a GIL is known.
static RECENT: [AtomicUsize; RECENT_LENGTH] = [const { AtomicUsize::new(0) }; RECENT_LENGTH];
const RECENT_LENGTH: usize = 8;
/// The number of values written to `RECENT`. Writers: hooks, by atomic addition.
static RECENT_NEXT: AtomicUsize = AtomicUsize::new(0);

/// `pthread_cond_init` has run at `cond`.
pub fn saw_init(cond: usize) {
    match gils::find(cond) {
        Some((gil, Role::Cond)) => initialized_again(gil, cond),
        Some((_, Role::SwitchCond)) => {}
        None => saw_unknown_init(cond),
    }
}

/// `pthread_cond_destroy` runs at `cond`. CPython up to 3.15 destroys only some GILs; see
/// `interpreters::match_interpreters`. The caller is the last thread that uses the GIL.
pub fn saw_destroy(cond: usize) {
    if let Some(process) = counters::of_this_process() {
        gils::close_ended_at(cond, process);
    }
}

/// CPython's `create_gil` initializes `cond`, then `switch_cond`.
fn saw_unknown_init(address: usize) {
    let addresses = Addresses::of_switch_cond(address);
    let Some(interpreter) = addresses.interpreter() else { return };
    if gils::main().life.load(Relaxed) != life::OPEN {
        return;
    }
    match RECENT.iter().find(|recent| recent.load(Relaxed) == addresses.cond) {
        Some(recent) => {
            recent.store(0, Relaxed);
            // CPython puts an interpreter at the head of its list before it makes its GIL. A pair
            // elsewhere is not a GIL, or waits for `interpreters::match_interpreters`.
            if let Some(id) = interpreters::id_if_newest(interpreter) {
                gils::add(addresses, id);
            }
        }
        None => {
            RECENT[RECENT_NEXT.fetch_add(1, Relaxed) % RECENT_LENGTH].store(address, Relaxed);
        }
    }
}

/// A known GIL is initialized again: in a forked child (`finalization::Phase::ForkedChild`); when
/// an interpreter gets the memory of one that ended; or when an embedding program starts Python
/// again. No thread holds the GIL or waits for it.
fn initialized_again(gil: &'static Gil, cond: usize) {
    let Some(process) = counters::of_this_process() else { return };
    if !std::ptr::eq(gil, gils::main()) {
        gils::close_ended_at(cond, process);
        return saw_unknown_init(cond);
    }
    if gil.life.load(Relaxed) != life::OPEN {
        return;
    }
    let now_ns = clock::now_ns();
    // SAFETY: the GIL is being initialized, so no other thread uses it.
    unsafe {
        if finalization::end_forked_child() {
            gil.reopen(now_ns);
        } else if gil.locked().held {
            gil.holder_thread.store(this_thread(), Relaxed);
            gil.event(gil.opening(installation::epoch()), |locked| {
                let now_ns = gil.time_of_event_ns(locked, now_ns);
                events::signal(gil, locked, process, now_ns);
            });
        }
        gil.locked().in_timed_wait = 0;
    }
}
