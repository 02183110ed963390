//! The functions that stand in CPython's GOT slots, and the list of them.
//!
//! Each has the same four beats: is this a GIL's condition variable; keep the books; call what the
//! slot held before; keep the books. They run in every thread of the process. No hook allocates,
//! panics, changes errno or runs Python code.
//!
//! Most run with a GIL's mutex held. These must not block, take a lock that may be held elsewhere
//! or call a function of CPython. They may read the clock, use atomics and touch books of the slab.
//!
//! `cond_init`, `cond_destroy` and `create` run without a GIL's mutex: where an interpreter is made
//! or ends, and where a thread is started. Under these hooks, books get memory (`slab::prepare`),
//! an interpreter's id is asked of CPython, by two functions that read a field each
//! (`install::id_if_newest`), and two locks are taken: the one of `gils`, and under it the registry
//! lock of `threads`, where an entry of `gils` is used again. No holder of either waits for Python,
//! so that a thread that holds a GIL may wait for them.
//!
//! `extern "C-unwind"`: `pthread_cancel` and `pthread_exit` unwind through a waiting hook's frame;
//! none of them owns anything that would need dropping.

/// The original behind a slot, as a function of type `$type`.
macro_rules! original {
    ($cell:ident as $type:ty) => {
        // SAFETY: a slot is written only after its original was stored; the function has this type.
        unsafe { std::mem::transmute::<usize, $type>($cell.load(Relaxed)) }
    };
}

pub mod elf;
mod mutex;
mod scheduling;
pub mod semaphores;
pub mod slots;
pub mod thread_start;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::events::Outcome;
use crate::queue::futex;
use crate::registry::gil::{EPOCH, Gil, Role, life};
use crate::registry::gils;
use crate::registry::threads;
use crate::{counters, events, fork, kernel_hints, learning};
use headway_measure::clock::now_ns;
use thread_start::ThreadStart;

type Cond = *mut c_void;
type Mutex = *mut c_void;

/// One hooked symbol: its name, what replaces it, and where to find what was there before.
pub struct Hook {
    pub symbol: &'static [u8],
    pub replacement: *const c_void,
    /// Address of the real function. Written before the slot, by `slots`.
    pub original: &'static AtomicUsize,
}

static SIGNAL: AtomicUsize = AtomicUsize::new(0);
static TIMEDWAIT: AtomicUsize = AtomicUsize::new(0);
static WAIT: AtomicUsize = AtomicUsize::new(0);
static INIT: AtomicUsize = AtomicUsize::new(0);
static DESTROY: AtomicUsize = AtomicUsize::new(0);
static CREATE: AtomicUsize = AtomicUsize::new(0);
static LOCK: AtomicUsize = AtomicUsize::new(0);

/// The one list of hooked symbols, with those of `waiting` where these waits are to be seen.
pub fn hooks(waits: bool) -> Vec<Hook> {
    let hooks = [
        Hook {
            symbol: b"pthread_cond_signal",
            replacement: cond_signal as *const c_void,
            original: &SIGNAL,
        },
        Hook {
            symbol: b"pthread_cond_timedwait",
            replacement: cond_timedwait as *const c_void,
            original: &TIMEDWAIT,
        },
        Hook {
            symbol: b"pthread_cond_wait",
            replacement: cond_wait as *const c_void,
            original: &WAIT,
        },
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
        Hook { symbol: b"pthread_create", replacement: create as *const c_void, original: &CREATE },
        Hook {
            symbol: b"pthread_mutex_lock",
            replacement: mutex_lock as *const c_void,
            original: &LOCK,
        },
    ];
    hooks.into_iter().chain(semaphores::hooks().into_iter().filter(|_| waits)).collect()
}

/// The slot of a GIL whose book is open; opens it at `free_ns` if this event tells that the GIL was free
/// just before or is just after.
#[inline(always)]
fn open_gil(gil: &'static Gil, free_ns: Option<u64>) -> Option<&'static counters::mapping::Slot> {
    let slot = counters::slot()?;
    match (gil.life.load(Relaxed), free_ns) {
        (life::OPEN, _) => Some(slot),
        (life::KNOWN, Some(now_ns)) => open_at_first_event(gil, slot, now_ns),
        _ => None,
    }
}

#[cold]
fn open_at_first_event(
    gil: &'static Gil,
    slot: &'static counters::mapping::Slot,
    now_ns: u64,
) -> Option<&'static counters::mapping::Slot> {
    // SAFETY: an event of this GIL: its mutex is held by the calling thread.
    unsafe { gil.open(slot, now_ns) };
    Some(slot)
}

unsafe extern "C-unwind" fn cond_signal(cond: Cond) -> c_int {
    let real = original!(SIGNAL as unsafe extern "C-unwind" fn(Cond) -> c_int);
    let epoch = EPOCH.load(Acquire);
    if epoch == 0 {
        learning::saw_signal(cond as usize);
        // SAFETY: the caller's own call.
        return unsafe { real(cond) };
    }
    // Before anything of the GIL is read: memory that other threads have just written is slow to reach.
    let now_ns = now_ns();
    match gils::find(cond as usize) {
        Some((gil, Role::SwitchCond)) => {
            // A take: before it, the GIL was free.
            if let Some(slot) = open_gil(gil, Some(now_ns)) {
                // SAFETY: take_gil signals switch_cond with the GIL's mutex held.
                unsafe {
                    gil.event(epoch, |locked| {
                        events::take(gil, locked, slot, gil.time_of_event_ns(now_ns))
                    })
                };
            }
        }
        Some((gil, Role::Cond)) => {
            let was_open = gil.life.load(Relaxed) == life::OPEN;
            // A first event that is a drop opens the book behind it.
            if let Some(slot) = open_gil(gil, Some(now_ns))
                && was_open
            {
                // SAFETY: drop_gil signals cond with the GIL's mutex held.
                unsafe {
                    gil.event(epoch, |locked| {
                        events::signal(gil, locked, slot, gil.time_of_event_ns(now_ns))
                    })
                };
            }
        }
        None => learning::saw_signal(cond as usize),
    }
    // SAFETY: the caller's own call.
    unsafe { real(cond) }
}

unsafe extern "C-unwind" fn cond_timedwait(
    cond: Cond,
    mutex: Mutex,
    until: *const libc::timespec,
) -> c_int {
    let real = original!(
        TIMEDWAIT as unsafe extern "C-unwind" fn(Cond, Mutex, *const libc::timespec) -> c_int
    );
    let epoch = EPOCH.load(Acquire);
    // As in `cond_signal`.
    let began_ns = if epoch == 0 { 0 } else { now_ns() };
    let found = if epoch == 0 { None } else { gils::find(cond as usize) };
    if found.is_none() {
        learning::saw_timed_wait(cond as usize, mutex as usize);
    }
    let Some((gil, slot)) = found.and_then(|(gil, _)| Some((gil, open_gil(gil, None)?))) else {
        // SAFETY: the caller's own call.
        return unsafe { real(cond, mutex, until) };
    };
    // SAFETY: as below; `until` is the caller's.
    if let Some(result) =
        unsafe { scheduling::timed_wait(gil, slot, epoch, mutex.cast(), until, began_ns) }
    {
        return result;
    }
    // SAFETY: a waiter holds the GIL's mutex when it begins to wait.
    let switch_number =
        unsafe { gil.event(epoch, |locked| events::timed_wait_began(gil, locked, slot, began_ns)) };
    // SAFETY: the caller's own call.
    let result = unsafe { real(cond, mutex, until) };
    // `event` sees whether the meter has been removed meanwhile, or removed and installed afresh.
    if let Some(switch_number) = switch_number {
        let outcome = match result == libc::ETIMEDOUT {
            true => Outcome::TimedOut,
            false => Outcome::Woken,
        };
        // SAFETY: pthread_cond_timedwait has locked the GIL's mutex again.
        unsafe {
            gil.event(epoch, |locked| {
                events::timed_wait_ended(gil, locked, outcome, switch_number);
            });
        }
    }
    result
}

unsafe extern "C-unwind" fn cond_wait(cond: Cond, mutex: Mutex) -> c_int {
    let real = original!(WAIT as unsafe extern "C-unwind" fn(Cond, Mutex) -> c_int);
    let epoch = EPOCH.load(Acquire);
    let found = if epoch == 0 { None } else { gils::find(cond as usize) };
    let Some((gil, slot)) = found.and_then(|(gil, _)| Some((gil, open_gil(gil, None)?))) else {
        // SAFETY: the caller's own call.
        return unsafe { real(cond, mutex) };
    };
    let began_ns = now_ns();
    // SAFETY: the caller's own mutex, which it holds.
    let result = match unsafe { scheduling::forced_wait(gil, slot, mutex.cast()) } {
        true => 0,
        // SAFETY: the caller's own call.
        false => unsafe { real(cond, mutex) },
    };
    if EPOCH.load(Acquire) == epoch && gil.life.load(Relaxed) == life::OPEN {
        events::forced_wait(gil, slot, began_ns, now_ns());
    }
    result
}

/// A GIL is made, or, in a forked child, made anew in place.
unsafe extern "C-unwind" fn cond_init(cond: Cond, attributes: *const c_void) -> c_int {
    let real = original!(INIT as unsafe extern "C-unwind" fn(Cond, *const c_void) -> c_int);
    // SAFETY: the caller's own call.
    let result = unsafe { real(cond, attributes) };
    if EPOCH.load(Acquire) != 0 {
        match gils::find(cond as usize) {
            Some((gil, Role::Cond)) => fork::gil_made_anew(gil, cond as usize),
            Some((_, Role::SwitchCond)) => {}
            None => keeping_errno(|| learning::saw_init(cond as usize)),
        }
    }
    result
}

/// A GIL is destroyed. CPythons up to 3.15 do so only in part of the cases: see
/// `gils::match_interpreters`. Called without the GIL's mutex, by the last thread that knows it.
unsafe extern "C-unwind" fn cond_destroy(cond: Cond) -> c_int {
    let real = original!(DESTROY as unsafe extern "C-unwind" fn(Cond) -> c_int);
    if EPOCH.load(Acquire) != 0
        && let Some((gil, Role::Cond)) = gils::find(cond as usize)
        && let Some(slot) = counters::slot()
    {
        keeping_errno(|| gils::close_gone(gil, slot));
    }
    // SAFETY: the caller's own call.
    unsafe { real(cond) }
}

/// A thread locks the GIL's mutex to take the GIL or to drop it, or any other mutex of CPython's.
unsafe extern "C-unwind" fn mutex_lock(mutex: Mutex) -> c_int {
    let real = original!(LOCK as mutex::Lock);
    // `learning` has confirmed that the mutex lies behind `cond`.
    let cond = (mutex as usize).wrapping_sub(learning::COND_BYTES);
    let found = if EPOCH.load(Acquire) == 0 { None } else { gils::find(cond) };
    match found {
        Some((gil, Role::Cond)) if gil.life.load(Relaxed) == life::OPEN => {
            // SAFETY: the caller's own call, on the mutex of an open GIL.
            unsafe { mutex::lock(gil, mutex.cast(), real) }
        }
        // SAFETY: the caller's own call.
        _ => unsafe { real(mutex.cast()) },
    }
}

/// A thread is about to be started: the moment to have a book ready for it, and what it inherits. Called without a
/// GIL's mutex.
unsafe extern "C-unwind" fn create(
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
    if EPOCH.load(Acquire) != 0
        && let Some(slot) = counters::slot()
    {
        keeping_errno(|| {
            counters::free_list::prepare(slot);
            kernel_hints::take_back_from_this_thread(threads::books_of_this_thread_by_index());
        });
    }
    let started = thread_start::inherit(start, argument);
    // SAFETY: the caller's own call, but for what the thread does first.
    let result = unsafe { real(thread, attributes, started.start, started.argument) };
    if result != 0 {
        started.failed();
    }
    result
}

/// Runs what may change errno, and puts it back.
fn keeping_errno(act: impl FnOnce()) {
    futex::keeping_errno(|| {
        act();
        0
    });
}
