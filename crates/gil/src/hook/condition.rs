//! The hooks of the condition variables, with the GIL's mutex held.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use headway_measure::clock::now_ns;
use headway_measure::tsc;

use super::{Hook, scheduling};
use crate::counters::{self, ProcessCounters};
use crate::events::{self, Outcome};
use crate::gil::{Gil, Role, life};
use crate::registry::{gils, rows};
use crate::{installation, learning};

type Cond = *mut c_void;
type Mutex = *mut c_void;

static SIGNAL: AtomicUsize = AtomicUsize::new(0);
static TIMEDWAIT: AtomicUsize = AtomicUsize::new(0);
static WAIT: AtomicUsize = AtomicUsize::new(0);

pub fn hooks() -> [Hook; 3] {
    [
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
    ]
}

/// The counters of the process if those of the GIL are open. Opens the GIL if `is_free`: this event
/// shows that the GIL is free, just before or after it.
#[inline(always)]
fn open_gil(gil: &'static Gil, is_free: bool) -> Option<&'static ProcessCounters> {
    let process = counters::of_this_process()?;
    match (gil.life.load(Relaxed), is_free) {
        (life::OPEN, _) => Some(process),
        (life::KNOWN, true) => open_at_first_event(gil, process),
        _ => None,
    }
}

#[cold]
fn open_at_first_event(
    gil: &'static Gil,
    process: &'static ProcessCounters,
) -> Option<&'static ProcessCounters> {
    // SAFETY: in an event of this GIL, the calling thread holds its mutex.
    unsafe { events::open(gil, process, now_ns()) };
    Some(process)
}

unsafe extern "C-unwind" fn cond_signal(cond: Cond) -> c_int {
    let real = original!(SIGNAL as unsafe extern "C-unwind" fn(Cond) -> c_int);
    let epoch = installation::epoch();
    if epoch == 0 {
        learning::saw_signal(cond as usize);
        // SAFETY: the caller's own call.
        return unsafe { real(cond) };
    }
    // The counter is read before the GIL's state, because memory that other threads have just
    // written is slow to reach.
    let reading = tsc::read();
    match gils::find(cond as usize) {
        Some((gil, Role::SwitchCond)) => {
            // A take: before it, the GIL was free.
            if let Some(process) = open_gil(gil, true) {
                // SAFETY: take_gil signals switch_cond with the GIL's mutex held.
                unsafe {
                    gil.event(gil.opening(epoch), |locked| {
                        let now_ns = gil.time_of_reading_ns(locked, reading);
                        events::take(gil, locked, process, now_ns);
                    })
                };
            }
        }
        Some((gil, Role::Cond)) => {
            let was_open = gil.life.load(Relaxed) == life::OPEN;
            // If a drop is the first event, the counters open after it.
            if let Some(process) = open_gil(gil, true) {
                if was_open {
                    // SAFETY: drop_gil signals cond with the GIL's mutex held.
                    unsafe {
                        gil.event(gil.opening(epoch), |locked| {
                            let now_ns = gil.time_of_reading_ns(locked, reading);
                            events::signal(gil, locked, process, now_ns);
                        })
                    };
                }
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
    let epoch = installation::epoch();
    // The clock first, as the counter in `cond_signal`.
    let began_ns = if epoch == 0 { 0 } else { now_ns() };
    let found = if epoch == 0 { None } else { gils::find(cond as usize) };
    if found.is_none() {
        learning::saw_timed_wait(cond as usize, mutex as usize);
    }
    let Some((gil, process)) = found.and_then(|(gil, _)| Some((gil, open_gil(gil, false)?))) else {
        // SAFETY: the caller's own call.
        return unsafe { real(cond, mutex, until) };
    };
    let opening = gil.opening(epoch);
    // SAFETY: a waiter holds the GIL's mutex when it begins to wait.
    if let Some(result) =
        unsafe { scheduling::timed_wait(gil, process, opening, mutex.cast(), began_ns) }
    {
        return result;
    }
    // SAFETY: a waiter holds the GIL's mutex when it begins to wait.
    let switch_number = unsafe {
        gil.event(opening, |locked| {
            let waiter = rows::of_this_thread(gil, process);
            events::timed_wait_began(gil, locked, waiter, began_ns)
        })
    };
    // SAFETY: the caller's own call.
    let result = unsafe { real(cond, mutex, until) };
    // `event` notices if the meter was removed meanwhile, or removed and installed again, and if
    // the GIL has ended.
    if let Some(switch_number) = switch_number {
        let outcome = match result == libc::ETIMEDOUT {
            true => Outcome::TimedOut,
            false => Outcome::Woken,
        };
        // SAFETY: pthread_cond_timedwait has locked the GIL's mutex again.
        unsafe {
            gil.event(opening, |locked| {
                events::timed_wait_ended(gil, locked, process, outcome, switch_number);
            });
        }
    }
    result
}

unsafe extern "C-unwind" fn cond_wait(cond: Cond, mutex: Mutex) -> c_int {
    let real = original!(WAIT as unsafe extern "C-unwind" fn(Cond, Mutex) -> c_int);
    let epoch = installation::epoch();
    let found = if epoch == 0 { None } else { gils::find(cond as usize) };
    let Some((gil, process)) = found.and_then(|(gil, _)| Some((gil, open_gil(gil, false)?))) else {
        // SAFETY: the caller's own call.
        return unsafe { real(cond, mutex) };
    };
    let opening = gil.opening(epoch);
    let began_ns = now_ns();
    // SAFETY: the caller's own mutex, which it holds.
    let (result, ended_ns) = match unsafe { scheduling::forced_wait(gil, process, mutex.cast()) } {
        Some(ended_ns) => (0, ended_ns),
        // SAFETY: the caller's own call.
        None => (unsafe { real(cond, mutex) }, now_ns()),
    };
    if gil.is_open_as(opening) {
        events::forced_wait(gil, process, began_ns, ended_ns);
    }
    result
}
