//! The hook of `pthread_mutex_lock`: since when a thread waits for a GIL's mutex, and how it locks
//! it and the GIL's switch mutex.
//!
//! CPython holds these mutexes for a fraction of a microsecond at a time. glibc's default mutex
//! lets a thread that finds it locked sleep at once, and sleeping and waking take some 50 us. While
//! a policy schedules the GIL, a thread therefore tries for a moment before it sleeps. Under
//! `interval` it sleeps as it would without Headway.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use headway_measure::clock::now_ns;

use super::Hook;
use crate::gil::addresses::cond_of_mutex;
use crate::gil::{Gil, Role, life};
use crate::installation;
use crate::registry::gils;
use crate::registry::threads::this_thread;

type Mutex = *mut libc::pthread_mutex_t;
type Lock = unsafe extern "C-unwind" fn(Mutex) -> c_int;

static LOCK: AtomicUsize = AtomicUsize::new(0);

pub fn hook() -> Hook {
    Hook {
        symbol: b"pthread_mutex_lock",
        replacement: mutex_lock as *const c_void,
        original: &LOCK,
    }
}

/// A thread locks the GIL's mutex to take the GIL or to drop it, its switch mutex to take it or in
/// the forced-switch wait, or any other mutex of CPython.
unsafe extern "C-unwind" fn mutex_lock(mutex: Mutex) -> c_int {
    let real = original!(LOCK as Lock);
    // `learning` has confirmed that the mutex lies behind `cond`. The switch mutex lies behind
    // `switch_cond`.
    let cond = cond_of_mutex(mutex as usize);
    let found = if installation::is_installed() { gils::find(cond) } else { None };
    match found {
        Some((gil, Role::Cond)) if gil.life.load(Relaxed) == life::OPEN => {
            // SAFETY: the caller's own call, on the mutex of an open GIL.
            unsafe { lock(gil, mutex, real) }
        }
        Some((gil, Role::SwitchCond)) if gil.forced_switch.is_in_use() => {
            // SAFETY: the caller's own call.
            unsafe { spin_and_lock(mutex, real) }
        }
        // SAFETY: the caller's own call.
        _ => unsafe { real(mutex) },
    }
}

/// Replaces `pthread_mutex_lock` on a GIL's mutex. The holder of the GIL locks the mutex to drop
/// it: its wait for the mutex prolongs the hold. Any other thread waits for the GIL.
///
/// # Safety
/// As `real`, which is `pthread_mutex_lock`; `mutex` is that of `gil`.
#[inline(always)]
unsafe fn lock(gil: &'static Gil, mutex: Mutex, real: Lock) -> c_int {
    // SAFETY: the mutex is initialized, as the caller promises.
    if unsafe { libc::pthread_mutex_trylock(mutex) } == 0 {
        gil.mutex_wait_began_ns.store(0, Relaxed);
        return 0;
    }
    // SAFETY: the mutex is that of `gil`, and `real` locks it, as the caller promises.
    unsafe { lock_contended(gil, mutex, real) }
}

#[cold]
#[inline(never)]
unsafe fn lock_contended(gil: &'static Gil, mutex: Mutex, real: Lock) -> c_int {
    // The clock is read before the GIL's state, because memory that other threads have just written
    // is slow to reach.
    let now_ns = now_ns();
    let takes = gil.holder_thread.load(Relaxed) != this_thread();
    let began_ns = if takes { now_ns } else { 0 };
    gil.mutex_waiters.fetch_add(takes as u32, Relaxed);
    let result = match gil.forced_switch.is_in_use() {
        // SAFETY: the caller's own call.
        true => unsafe { spin_and_lock(mutex, real) },
        // SAFETY: the caller's own call.
        false => unsafe { real(mutex) },
    };
    gil.mutex_waiters.fetch_sub(takes as u32, Relaxed);
    if result == 0 {
        gil.mutex_wait_began_ns.store(began_ns, Relaxed);
    }
    result
}

/// # Safety
/// As `real`, which is `pthread_mutex_lock`.
#[inline(never)]
unsafe fn spin_and_lock(mutex: Mutex, real: Lock) -> c_int {
    // SAFETY: the mutex is initialized, as the caller promises.
    match unsafe { spin(mutex) } {
        true => 0,
        // SAFETY: as the caller promises.
        false => unsafe { real(mutex) },
    }
}

/// Locks the mutex again after a wait that released it.
///
/// # Safety
/// As `pthread_mutex_lock`.
pub unsafe fn lock_again(mutex: Mutex) {
    // SAFETY: the mutex is initialized, as the caller promises.
    unsafe {
        if !spin(mutex) {
            libc::pthread_mutex_lock(mutex);
        }
    }
}

/// Tries to lock the mutex for about as long as an event holds it. Returns whether it was locked.
///
/// # Safety
/// As `pthread_mutex_trylock`.
unsafe fn spin(mutex: Mutex) -> bool {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        // SAFETY: the mutex is initialized, as the caller promises.
        if unsafe { libc::pthread_mutex_trylock(mutex) } == 0 {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}
