//! The hooks of waits on semaphores, on free-threaded builds; see `parked_waits`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Hook;
use crate::errno::preserving_errno;
use crate::parked_waits;
use headway_measure::clock;

type Semaphore = *mut c_void;

static WAIT: AtomicUsize = AtomicUsize::new(0);
static CLOCKWAIT: AtomicUsize = AtomicUsize::new(0);
static TIMEDWAIT: AtomicUsize = AtomicUsize::new(0);

pub fn hooks() -> [Hook; 3] {
    [
        Hook { symbol: b"sem_wait", replacement: sem_wait as *const c_void, original: &WAIT },
        Hook {
            symbol: b"sem_clockwait",
            replacement: sem_clockwait as *const c_void,
            original: &CLOCKWAIT,
        },
        // CPython calls this if it was built for a glibc before 2.30.
        Hook {
            symbol: b"sem_timedwait",
            replacement: sem_timedwait as *const c_void,
            original: &TIMEDWAIT,
        },
    ]
}

/// Counts a wait. Preserves errno, by which semaphores report how the wait ended.
#[inline(always)]
fn wait(limit_ns: impl FnOnce(u64) -> Option<u64>, real: impl FnOnce() -> c_int) -> c_int {
    let wait = parked_waits::wait_began(limit_ns);
    let result = real();
    if let Some(wait) = wait {
        preserving_errno(|| parked_waits::wait_ended(wait));
    }
    result
}

unsafe extern "C-unwind" fn sem_wait(semaphore: Semaphore) -> c_int {
    let real = original!(WAIT as unsafe extern "C-unwind" fn(Semaphore) -> c_int);
    // SAFETY: the caller's own call.
    wait(|_| None, || unsafe { real(semaphore) })
}

unsafe extern "C-unwind" fn sem_clockwait(
    semaphore: Semaphore,
    clock: libc::clockid_t,
    until: *const libc::timespec,
) -> c_int {
    let real = original!(
        CLOCKWAIT
            as unsafe extern "C-unwind" fn(
                Semaphore,
                libc::clockid_t,
                *const libc::timespec,
            ) -> c_int
    );
    // SAFETY: the caller's `until` is readable. CPython waits by CLOCK_MONOTONIC here.
    let limit_ns = |now_ns| Some(unsafe { clock::nanoseconds(*until) }.saturating_sub(now_ns));
    // SAFETY: the caller's own call.
    wait(limit_ns, || unsafe { real(semaphore, clock, until) })
}

unsafe extern "C-unwind" fn sem_timedwait(
    semaphore: Semaphore,
    until: *const libc::timespec,
) -> c_int {
    let real = original!(
        TIMEDWAIT as unsafe extern "C-unwind" fn(Semaphore, *const libc::timespec) -> c_int
    );
    // SAFETY: the caller's `until` is readable. It is a time of CLOCK_REALTIME.
    let limit_ns = |_| Some(unsafe { clock::nanoseconds(*until) }.saturating_sub(clock::wall_ns()));
    // SAFETY: the caller's own call.
    wait(limit_ns, || unsafe { real(semaphore, until) })
}
