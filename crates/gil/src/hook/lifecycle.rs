//! The hooks that run without a GIL's mutex: where an interpreter is made or ends, and where a
//! thread is started.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::Hook;
use super::thread_start::{self, ThreadStart};
use crate::counters::{self, free_list};
use crate::errno::preserving_errno;
use crate::registry::rows;
use crate::{gil_creation, installation, kernel_hints};

type Cond = *mut c_void;

static INIT: AtomicUsize = AtomicUsize::new(0);
static DESTROY: AtomicUsize = AtomicUsize::new(0);
static CREATE: AtomicUsize = AtomicUsize::new(0);

pub fn hooks() -> [Hook; 3] {
    [
        Hook {
            symbol: b"pthread_cond_init",
            replacement: cond_init as *const c_void,
            original: &INIT,
        },
        Hook {
            symbol: b"pthread_cond_destroy",
            replacement: cond_destroy as *const c_void,
            original: &DESTROY,
        },
        Hook {
            symbol: b"pthread_create",
            replacement: thread_create as *const c_void,
            original: &CREATE,
        },
    ]
}

/// A GIL is initialized, or, in a forked child, initialized again.
unsafe extern "C-unwind" fn cond_init(cond: Cond, attributes: *const c_void) -> c_int {
    let real = original!(INIT as unsafe extern "C-unwind" fn(Cond, *const c_void) -> c_int);
    // SAFETY: the caller's own call.
    let result = unsafe { real(cond, attributes) };
    if installation::is_installed() {
        preserving_errno(|| gil_creation::saw_init(cond as usize));
    }
    result
}

/// A GIL is destroyed.
unsafe extern "C-unwind" fn cond_destroy(cond: Cond) -> c_int {
    let real = original!(DESTROY as unsafe extern "C-unwind" fn(Cond) -> c_int);
    if installation::is_installed() {
        preserving_errno(|| gil_creation::saw_destroy(cond as usize));
    }
    // SAFETY: the caller's own call.
    unsafe { real(cond) }
}

/// A thread is about to be started: it needs a row, and inherits a switch interval.
unsafe extern "C-unwind" fn thread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: ThreadStart,
    argument: *mut c_void,
) -> c_int {
    let real = original!(
        CREATE
            as unsafe extern "C-unwind" fn(
                *mut libc::pthread_t,
                *const libc::pthread_attr_t,
                ThreadStart,
                *mut c_void,
            ) -> c_int
    );
    if installation::is_installed() {
        if let Some(process) = counters::of_this_process() {
            preserving_errno(|| {
                free_list::prepare(process);
                kernel_hints::take_back_from_this_thread(rows::rows_of_this_thread());
            });
        }
    }
    let started = thread_start::inherit(start, argument);
    // SAFETY: the caller's own call, except that the thread first runs `thread_start`.
    let result = unsafe { real(thread, attributes, started.start, started.argument) };
    if result != 0 {
        started.failed();
    }
    result
}
