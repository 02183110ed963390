//! The clock that all books are kept by: CLOCK_MONOTONIC, the one CPython waits by.

/// Nanoseconds since an arbitrary start, the same in every process of this machine.
#[inline]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, by the clock that can be set.
pub fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

pub fn nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline(always)]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to. Served by the vDSO: no system call, and errno
    // stays as it is, since the call cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &mut now) };
    nanoseconds(now)
}
