//! How a thread locks a GIL's mutex, and since when it waits for it.
//!
//! Under the rules of `hook`. CPython holds this mutex for a fraction of a microsecond at a time, but
//! glibc's default mutex puts a thread that finds it locked to sleep at once, and sleeping and waking
//! cost some 50 us. While a policy schedules the GIL, a thread therefore tries for a moment before it
//! sleeps. Under `interval` it sleeps as it would without Headway.

use std::ffi::c_int;
use std::sync::atomic::Ordering::*;

use crate::registry::gil::{Gil, this_thread};
use headway_measure::clock::now_ns;

pub type Mutex = *mut libc::pthread_mutex_t;
pub type Lock = unsafe extern "C-unwind" fn(Mutex) -> c_int;

/// Stands in for `pthread_mutex_lock` on a GIL's mutex. A thread that holds the GIL locks the mutex to drop
/// it: what it waits for the mutex lengthens its hold. Every other waits for the GIL.
///
/// # Safety
/// As `real`, which is `pthread_mutex_lock`; `mutex` is that of `gil`.
#[inline(always)]
pub unsafe fn lock(gil: &'static Gil, mutex: Mutex, real: Lock) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { libc::pthread_mutex_trylock(mutex) } == 0 {
        gil.mutex_wait_began_ns.store(0, Relaxed);
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { lock_contended(gil, mutex, real) }
}

#[cold]
#[inline(never)]
unsafe fn lock_contended(gil: &'static Gil, mutex: Mutex, real: Lock) -> c_int {
    // Before anything of the GIL is read: memory that other threads have just written is slow to reach.
    let now_ns = now_ns();
    let takes = gil.holder_thread.load(Relaxed) != this_thread();
    let began_ns = if takes { now_ns } else { 0 };
    gil.mutex_waiters.fetch_add(takes as u32, Relaxed);
    // SAFETY: the caller's promise.
    let result = match gil.switch.is_in_use() && unsafe { spin(mutex) } {
        true => 0,
        // SAFETY: the caller's promise.
        false => unsafe { real(mutex) },
    };
    gil.mutex_waiters.fetch_sub(takes as u32, Relaxed);
    if result == 0 {
        gil.mutex_wait_began_ns.store(began_ns, Relaxed);
    }
    result
}

/// Locks the mutex again after a wait that let go of it.
///
/// # Safety
/// As `pthread_mutex_lock`.
pub unsafe fn lock_again(mutex: Mutex) {
    // SAFETY: the caller's promise.
    unsafe {
        if !spin(mutex) {
            libc::pthread_mutex_lock(mutex);
        }
    }
}

/// Tries to lock the mutex, for about as long as it is held for an event. Whether it was locked.
///
/// # Safety
/// As `pthread_mutex_trylock`.
unsafe fn spin(mutex: Mutex) -> bool {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        // SAFETY: the caller's promise.
        if unsafe { libc::pthread_mutex_trylock(mutex) } == 0 {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}
