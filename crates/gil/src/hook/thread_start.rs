//! Inheritance: a thread gets the switch interval of the thread that starts it.
//!
//! Nothing is allocated. The new thread runs `begin` before the function that it was started for.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::registry::threads;

pub type ThreadStart = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// The inheritance of one new thread. Writer: the starting thread, between its claim and
/// `pthread_create`, relaxed. Reader: the new thread, which then frees it. `pthread_create` orders
/// the two.
///
/// | `claimed` | meaning | becomes |
/// |---|---|---|
/// | 0 | free | 1, by compare-and-swap of a starting thread, with acquire |
/// | 1 | on its way to a thread | 0, with release, by that thread, or by the starting one if it failed |
struct Inheritance {
    claimed: AtomicU32,
    start: AtomicUsize,
    argument: AtomicPtr<c_void>,
    switch_interval_ns: AtomicU64,
}

/// Threads that were started and do not run yet. One that finds no room inherits nothing.
static ON_THE_WAY: [Inheritance; 256] = [const {
    Inheritance {
        claimed: AtomicU32::new(0),
        start: AtomicUsize::new(0),
        argument: AtomicPtr::new(std::ptr::null_mut()),
        switch_interval_ns: AtomicU64::new(0),
    }
}; 256];

/// The arguments for `pthread_create` with which the new thread inherits.
pub struct Started {
    pub start: ThreadStart,
    pub argument: *mut c_void,
    inheritance: Option<&'static Inheritance>,
}

pub fn inherit(start: ThreadStart, argument: *mut c_void) -> Started {
    let switch_interval_ns = threads::switch_interval_of_this_thread_ns();
    let claimed = |each: &&Inheritance| {
        each.claimed.load(Relaxed) == 0
            && each.claimed.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    };
    match ON_THE_WAY.iter().filter(|_| switch_interval_ns != 0).find(claimed) {
        None => Started { start, argument, inheritance: None },
        Some(inheritance) => {
            inheritance.start.store(start as usize, Relaxed);
            inheritance.argument.store(argument, Relaxed);
            inheritance.switch_interval_ns.store(switch_interval_ns, Relaxed);
            let argument = std::ptr::from_ref(inheritance).cast_mut().cast();
            Started { start: begin, argument, inheritance: Some(inheritance) }
        }
    }
}

impl Started {
    /// No thread was started.
    pub fn failed(&self) {
        self.inheritance.inspect(|inheritance| inheritance.claimed.store(0, Release));
    }
}

/// Runs first in the new thread. `pthread_exit` and `pthread_cancel` unwind through its frame.
unsafe extern "C-unwind" fn begin(inheritance: *mut c_void) -> *mut c_void {
    // SAFETY: `inherit` passed an entry of ON_THE_WAY; `pthread_create` orders its stores before
    // this.
    let inheritance = unsafe { &*inheritance.cast::<Inheritance>() };
    // SAFETY: `inherit` stored a function of this type.
    let start: ThreadStart = unsafe { std::mem::transmute(inheritance.start.load(Relaxed)) };
    let argument = inheritance.argument.load(Relaxed);
    let switch_interval_ns = inheritance.switch_interval_ns.load(Relaxed);
    inheritance.claimed.store(0, Release);
    threads::set_switch_interval_of_this_thread_ns(switch_interval_ns);
    // SAFETY: the function and the argument of the `pthread_create` call.
    unsafe { start(argument) }
}

/// Clears the list in a forked child, in which no other thread is starting.
pub fn forget_all() {
    ON_THE_WAY.iter().for_each(|each| each.claimed.store(0, Relaxed));
}
