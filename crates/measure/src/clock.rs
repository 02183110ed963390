//! The clocks that Headway reads. Events and intervals use CLOCK_MONOTONIC, which CPython waits by.

/// Nanoseconds since an arbitrary start, the same in every process of this machine.
#[inline]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, by a clock that the administrator may set.
pub fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Seconds since 1970, by the same clock.
pub fn wall_s() -> f64 {
    wall_ns() as f64 / 1e9
}

/// The moment of `now_ns` in seconds since 1970.
pub fn wall_of_ns(moment_ns: u64) -> f64 {
    wall_s() - now_ns().saturating_sub(moment_ns) as f64 / 1e9
}

/// Nanoseconds since 1970 with a resolution of a few milliseconds: reading needs no hardware clock.
pub fn wall_coarse_ns() -> u64 {
    read(libc::CLOCK_REALTIME_COARSE)
}

/// CPU time of the calling thread since it began. The reading is a system call.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of this process since it began.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of all threads of another process; `None` if the process has ended.
pub fn cpu_ns_of_process(pid: i32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock` and `now` are valid places to write to.
    let known = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut now) == 0
    };
    known.then(|| nanoseconds(now))
}

/// CPU time of a thread of this process, by its kernel thread ID. Returns `None` and sets errno if
/// the thread has ended.
pub fn cpu_ns_of_thread(native_id: u32) -> Option<u64> {
    // The kernel's encoding of a thread's clock: the complement of the thread ID, shifted, and
    // CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED.
    let clock = (!(native_id as libc::clockid_t) << 3) | 6;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to; an unknown clock is an error.
    let result = unsafe { libc::clock_gettime(clock, &mut now) };
    (result == 0).then(|| nanoseconds(now))
}

pub fn nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline(always)]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to. The call cannot fail for the clocks that callers
    // pass, so errno keeps its value. The vDSO answers, except for CPU time, which is a system
    // call.
    unsafe { libc::clock_gettime(clock, &mut now) };
    nanoseconds(now)
}
