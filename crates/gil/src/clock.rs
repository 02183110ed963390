//! The clock that all books are kept by: CLOCK_MONOTONIC, the one CPython waits by.

/// Nanoseconds since an arbitrary start, the same in every process of this machine.
#[inline]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to. Served by the vDSO: no system call, and errno
    // stays as it is, since the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
