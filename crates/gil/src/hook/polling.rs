//! The hooks of waits for events; see `loops`. They run without a GIL and without its mutex.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Hook;
use crate::errno::preserving_errno;
use crate::loops;

static WAIT: AtomicUsize = AtomicUsize::new(0);
static PWAIT: AtomicUsize = AtomicUsize::new(0);
static CLOSE: AtomicUsize = AtomicUsize::new(0);

pub fn hooks() -> [Hook; 3] {
    [
        Hook { symbol: b"epoll_wait", replacement: epoll_wait as *const c_void, original: &WAIT },
        Hook {
            symbol: b"epoll_pwait",
            replacement: epoll_pwait as *const c_void,
            original: &PWAIT,
        },
        Hook { symbol: b"close", replacement: close as *const c_void, original: &CLOSE },
    ]
}

/// Ends an iteration, waits, and begins the next one. Preserves errno, by which the wait reports
/// how it ended.
#[inline(always)]
fn wait(descriptor: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let wait = preserving_errno(|| loops::wait_began(descriptor));
    let result = real();
    if let Some(wait) = wait {
        preserving_errno(|| loops::wait_ended(wait));
    }
    result
}

unsafe extern "C-unwind" fn epoll_wait(
    descriptor: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    limit_ms: c_int,
) -> c_int {
    let real = original!(
        WAIT as unsafe extern "C-unwind" fn(c_int, *mut libc::epoll_event, c_int, c_int) -> c_int
    );
    // SAFETY: the caller's own call.
    wait(descriptor, || unsafe { real(descriptor, events, count, limit_ms) })
}

unsafe extern "C-unwind" fn epoll_pwait(
    descriptor: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    limit_ms: c_int,
    signals: *const libc::sigset_t,
) -> c_int {
    let real = original!(
        PWAIT
            as unsafe extern "C-unwind" fn(
                c_int,
                *mut libc::epoll_event,
                c_int,
                c_int,
                *const libc::sigset_t,
            ) -> c_int
    );
    // SAFETY: the caller's own call.
    wait(descriptor, || unsafe { real(descriptor, events, count, limit_ms, signals) })
}

unsafe extern "C-unwind" fn close(descriptor: c_int) -> c_int {
    let real = original!(CLOSE as unsafe extern "C-unwind" fn(c_int) -> c_int);
    loops::closed(descriptor);
    // SAFETY: the caller's own call.
    unsafe { real(descriptor) }
}
