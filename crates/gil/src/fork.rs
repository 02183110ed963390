//! Fork: the child starts with clean books of its own, in a slot of its own, and a working GIL.
//!
//! `child` runs inside `fork()`, before CPython's own child code, in the only thread that is left. It
//! makes system calls and touches memory; it allocates nothing. CPython then makes its GIL
//! anew in place, which `gil_made_anew` sees. `vfork` and `posix_spawn` share memory with the parent or run
//! no Python, and call no handlers.

use std::sync::atomic::{AtomicBool, Ordering::*};

use headway_measure::clock;

use crate::counters;
use crate::counters::{free_list, mapping};
use crate::registry::gil::{EPOCH, Gil, life, this_thread};
use crate::registry::{gils, threads};
use crate::{events, hook, install, kernel_hints, learning, parked_waits, trace};

static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The child's main GIL is about to be made anew. Writer: the only thread of the child.
static GIL_TO_COME: AtomicBool = AtomicBool::new(false);

pub fn register() {
    if !REGISTERED.swap(true, SeqCst) {
        // SAFETY: the handler stays loaded. If there is no memory for it, the first fork's child has
        // its parent's books; nothing else breaks.
        unsafe { libc::pthread_atfork(Some(prepare), None, Some(child)) };
    }
}

/// In the thread that forks, before it does.
unsafe extern "C" fn prepare() {
    kernel_hints::take_back_from_this_thread(threads::books_of_this_thread_by_index());
}

unsafe extern "C" fn child() {
    threads::keep_this_thread_only();
    hook::thread_start::forget_all();
    install::forget_change_under_way();
    learning::look_for_nothing();
    trace::forget();
    let parent = counters::slot();
    counters::forget_slot();
    if EPOCH.load(Relaxed) == 0 {
        return;
    }
    let Some(slot) = mapping::claim() else {
        // No memory for books: measure nothing.
        EPOCH.store(0, Relaxed);
        return;
    };
    counters::set_slot(slot);
    gils::keep_main_only();
    gils::main().rest();
    threads::forget_all();
    free_list::reset(slot);
    let now_ns = clock::now_ns();
    if let Some(parent) = parent {
        slot.begin_like(parent, now_ns);
    }
    free_list::prepare(slot);
    if slot.sees_parks.load(Relaxed) != 0 {
        parked_waits::open(slot);
    }
    let main = gils::main();
    if main.life.load(Relaxed) == life::OPEN {
        // SAFETY: no other thread exists.
        unsafe {
            let held = main.locked().held && main.holder_thread.load(Relaxed) == this_thread();
            main.open(slot, now_ns);
            if held {
                events::open_held(main, main.locked(), slot);
            }
        }
        GIL_TO_COME.store(true, Relaxed);
    } else {
        learning::look_for_any_gil();
    }
}

/// `pthread_cond_init` ran on the `cond` of a GIL that is known: in a forked child; where an interpreter
/// lies in the memory of one that ended; or in an embedding program that starts Python again.
/// Nobody holds the new GIL, and nobody waits for it.
pub fn gil_made_anew(gil: &'static Gil, cond: usize) {
    let Some(slot) = counters::slot() else { return };
    if !std::ptr::eq(gil, gils::main()) {
        gils::close_gone(gil, slot);
        return learning::saw_init(cond);
    }
    if gil.life.load(Relaxed) != life::OPEN {
        return;
    }
    let now_ns = clock::now_ns();
    // SAFETY: the GIL is being made; no other thread uses it yet.
    unsafe {
        if GIL_TO_COME.swap(false, Relaxed) {
            gil.reopen(now_ns);
        } else if gil.locked().held {
            gil.holder_thread.store(this_thread(), Relaxed);
            gil.event(EPOCH.load(Relaxed), |locked| events::signal(gil, locked, slot, now_ns));
        }
        gil.locked().in_timed_wait = 0;
    }
}
