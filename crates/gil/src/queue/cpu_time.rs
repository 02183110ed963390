//! For how long a thread ran on a core while it held the GIL.
//!
//! The kernel may take the core from a thread that holds the GIL. A hold of microseconds then lasts
//! for milliseconds by the wall clock, and a policy would take an I/O-bound thread for a CPU-bound
//! one. The thread's CPU clock tells the two apart, but its reading is a system call. So a take of
//! an I/O-bound thread reads it, only if the last reading is older than `FRESH_NS`, and a drop only
//! after a long hold. A reading that is older counts more time as run, and no less.

use headway_measure::clock;
use headway_sched::WHOLE_HOLD;

use crate::errno::preserving_errno;

/// A hold that is shorter counts as a whole.
const LONG_NS: u64 = 1_000_000;
/// A reading that is younger at a take serves for the hold. What the thread ran in between counts
/// as time that it ran during the hold, and alone is no long hold.
const FRESH_NS: u64 = 500_000;

/// The last reading of a thread's CPU clock. Only its thread writes and reads it, in events of the
/// GIL that it holds.
#[derive(Clone, Copy)]
pub struct CpuTime {
    read_at_ns: u64,
    cpu_ns: u64,
}

impl CpuTime {
    pub const fn new() -> Self {
        Self { read_at_ns: 0, cpu_ns: 0 }
    }

    /// The calling thread begins to hold.
    #[inline]
    pub fn begin_hold(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.read_at_ns) >= FRESH_NS {
            self.read(now_ns);
        }
    }

    /// A hold of the calling thread ends. Returns for how long it ran, or a little more.
    #[inline]
    pub fn end_hold(&mut self, hold_ns: u64, now_ns: u64) -> u64 {
        match hold_ns < LONG_NS {
            true => WHOLE_HOLD,
            false => {
                let before_ns = self.cpu_ns;
                self.read(now_ns);
                match self.cpu_ns {
                    0 => WHOLE_HOLD,
                    cpu_ns => cpu_ns.saturating_sub(before_ns),
                }
            }
        }
    }

    #[cold]
    fn read(&mut self, now_ns: u64) {
        // 0 if a sandbox refuses the system call.
        self.cpu_ns = preserving_errno(clock::thread_cpu_ns);
        self.read_at_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hold(cpu_time: &mut CpuTime, act: impl FnOnce()) -> u64 {
        let taken_ns = clock::now_ns();
        cpu_time.begin_hold(taken_ns);
        act();
        let now_ns = clock::now_ns();
        cpu_time.end_hold(now_ns - taken_ns, now_ns)
    }

    fn compute() {
        let end_ns = clock::thread_cpu_ns() + 3 * LONG_NS;
        while clock::thread_cpu_ns() < end_ns {}
    }

    #[test]
    fn a_thread_that_sleeps_in_a_hold_does_not_run() {
        let mut cpu_time = CpuTime::new();
        let sleep = || std::thread::sleep(Duration::from_nanos(20 * LONG_NS));
        assert!(hold(&mut cpu_time, sleep) < LONG_NS);
        assert!(hold(&mut cpu_time, compute) >= 3 * LONG_NS);
        assert!(hold(&mut cpu_time, sleep) < LONG_NS);
    }

    #[test]
    fn a_short_hold_counts_as_a_whole() {
        let mut cpu_time = CpuTime::new();
        cpu_time.begin_hold(LONG_NS);
        assert_eq!(cpu_time.end_hold(LONG_NS - 1, 2 * LONG_NS), WHOLE_HOLD);
    }
}
