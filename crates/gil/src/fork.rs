//! Fork: the child begins with empty counters in a slot of its own, and with a working GIL.
//!
//! `child` runs inside `fork()`, before CPython's own child code, in the only thread of the child.
//! It makes system calls and accesses memory, and allocates nothing. Then CPython initializes its
//! GIL again in place, which `gil_creation` sees. `vfork` and `posix_spawn` share the parent's
//! memory or run no Python, and call no handlers.

use std::sync::atomic::{AtomicBool, Ordering::*};

use headway_measure::clock;

use crate::counters::{self, aggregation, free_list, mapping};
use crate::gil::life;
use crate::hook::thread_start;
use crate::registry::threads::this_thread;
use crate::registry::{gils, rows, threads};
use crate::{
    events, finalization, installation, kernel_hints, learning, loops, parked_waits, profile,
    registry_lock, trace,
};

/// True once the handlers are registered. Writer: install, by swap.
static REGISTERED: AtomicBool = AtomicBool::new(false);

pub fn register() {
    if !REGISTERED.swap(true, SeqCst) {
        // Without memory for the handlers, the children of the first fork share their parent's
        // counters; nothing else breaks.
        // SAFETY: the handlers stay loaded.
        unsafe { libc::pthread_atfork(Some(prepare), None, Some(child)) };
    }
}

/// Runs in the thread that forks, before the fork.
unsafe extern "C" fn prepare() {
    kernel_hints::take_back_from_this_thread(rows::rows_of_this_thread());
}

unsafe extern "C" fn child() {
    registry_lock::forget_holder();
    threads::keep_this_thread_only();
    thread_start::forget_all();
    installation::forget_change();
    learning::watch_for_nothing();
    trace::forget();
    profile::forget();
    loops::forget();
    gils::forget_threads();
    let parent = counters::of_this_process();
    counters::forget_process();
    if !installation::is_installed() {
        return;
    }
    let Some(process) = mapping::claim() else {
        // There is no memory for counters, so the child measures nothing.
        installation::end();
        return;
    };
    counters::set_of_this_process(process);
    gils::keep_main_only();
    threads::forget_links();
    aggregation::forget_ended();
    free_list::reset(process);
    let now_ns = clock::now_ns();
    if let Some(parent) = parent {
        process.begin_like(parent, now_ns);
    }
    free_list::prepare(process);
    if process.sees_parks.load(Relaxed) != 0 {
        parked_waits::open(process);
    }
    let main = gils::main();
    if main.life.load(Relaxed) == life::OPEN {
        // SAFETY: the child has no other thread.
        unsafe {
            let held = main.locked().held && main.holder_thread.load(Relaxed) == this_thread();
            events::open(main, process, now_ns);
            if held {
                events::open_held(main, main.locked(), process);
            }
        }
        finalization::begin_forked_child();
    } else {
        learning::watch_for_any_gil();
    }
}
