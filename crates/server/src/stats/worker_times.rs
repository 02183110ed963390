//! The activity of each worker thread, readable by other threads: completed requests, busy time,
//! and the running request.
//!
//! Slots exist only with telemetry. Times are cumulative; a reader keeps its previous reading.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

/// The activity of one worker thread. Writer: that thread; `longest_ns` is also reset by readers.
/// Readers: any thread.
#[derive(Debug, Default)]
pub struct WorkerTimes {
    /// | value | meaning |
    /// |---|---|
    /// | even | half as many requests have ended, and the counters include them |
    /// | odd | one more request has ended and is being added to the counters |
    ///
    /// A reader that finds the same even value before and after the other fields has read a
    /// consistent snapshot. `end` stores the odd value relaxed, before a release fence, and the
    /// even value with release. `read` loads with acquire, and once more, relaxed, after an acquire
    /// fence.
    version: AtomicU64,
    /// When the thread took the running request; 0 if none runs. `begin` stores it with release.
    begun_ns: AtomicU64,
    /// The number of completed requests, and the time and CPU time that they took. Relaxed;
    /// `version` orders them.
    completed: AtomicU64,
    busy_ns: AtomicU64,
    cpu_ns: AtomicU64,
    /// The longest completed request since the last reset. The thread raises it, a reader resets
    /// it; relaxed.
    longest_ns: AtomicU64,
}

/// A consistent snapshot of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub completed: u64,
    /// Includes the running request.
    pub busy_ns: u64,
    pub cpu_ns: u64,
    /// The elapsed time of the running request; 0 if none runs.
    pub current_ns: u64,
}

impl WorkerTimes {
    pub fn begin(&self, now_ns: u64) {
        self.begun_ns.store(now_ns, Release);
    }

    pub fn end(&self, now_ns: u64, cpu_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.begun_ns.load(Relaxed));
        let add = |counter: &AtomicU64, amount| {
            counter.store(counter.load(Relaxed) + amount, Relaxed);
        };
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        fence(Release);
        add(&self.completed, 1);
        add(&self.busy_ns, took_ns);
        add(&self.cpu_ns, cpu_ns);
        // If a reader resets the value at this moment, a request that was not longer may be missed.
        if took_ns > self.longest_ns.load(Relaxed) {
            self.longest_ns.store(took_ns, Relaxed);
        }
        self.begun_ns.store(0, Relaxed);
        self.version.store(version + 2, Release);
    }

    pub fn is_busy(&self) -> bool {
        self.begun_ns.load(Relaxed) != 0
    }

    pub fn read(&self, now_ns: u64) -> Reading {
        loop {
            let version = self.version.load(Acquire);
            if version % 2 == 1 {
                // The thread may have been preempted while it updates the counters.
                std::thread::yield_now();
                continue;
            }
            let begun_ns = self.begun_ns.load(Relaxed);
            let current_ns = if begun_ns == 0 { 0 } else { now_ns.saturating_sub(begun_ns) };
            let reading = Reading {
                completed: self.completed.load(Relaxed),
                busy_ns: self.busy_ns.load(Relaxed) + current_ns,
                cpu_ns: self.cpu_ns.load(Relaxed),
                current_ns,
            };
            fence(Acquire);
            // If the version changed, a request has ended meanwhile and may be counted twice or not
            // at all.
            if self.version.load(Relaxed) == version {
                return reading;
            }
        }
    }

    /// Returns the duration of the longest request that ended since the last call, and resets it.
    pub fn take_longest_ns(&self) -> u64 {
        self.longest_ns.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_request_is_busy_time_before_it_ends() {
        let slot = WorkerTimes::default();
        assert_eq!(slot.read(100), Reading::default());
        slot.begin(100);
        let reading = slot.read(150);
        assert_eq!((reading.busy_ns, reading.current_ns, reading.completed), (50, 50, 0));
        slot.end(170, 7);
        let reading = slot.read(1_000);
        assert_eq!((reading.busy_ns, reading.current_ns, reading.cpu_ns), (70, 0, 7));
        assert_eq!((slot.take_longest_ns(), slot.take_longest_ns()), (70, 0));
    }

    #[test]
    fn a_request_is_counted_in_full_or_not_at_all() {
        const LONG_NS: u64 = 1_000;
        const REQUESTS: u64 = 200_000;
        let slot = WorkerTimes::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=REQUESTS {
                    slot.begin(number * LONG_NS);
                    slot.end((number + 1) * LONG_NS, 1);
                    // Most of the time no request runs.
                    for _ in 0..20 {
                        std::hint::spin_loop();
                    }
                }
            });
            loop {
                let reading = slot.read(0);
                let busy_ns = reading.busy_ns - reading.current_ns;
                assert_eq!(
                    (reading.completed * LONG_NS, reading.completed),
                    (busy_ns, reading.cpu_ns)
                );
                if reading.completed == REQUESTS {
                    break;
                }
            }
        });
    }

    #[test]
    fn busy_time_never_exceeds_elapsed_time() {
        const LONG_NS: u64 = 1_000;
        const END_NS: u64 = 100_000 * LONG_NS;
        let (slot, clock) = (WorkerTimes::default(), AtomicU64::new(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The requests follow one another without a pause.
                for begun_ns in (1..END_NS).step_by(LONG_NS as usize) {
                    slot.begin(begun_ns);
                    clock.store(begun_ns + LONG_NS, SeqCst);
                    slot.end(begun_ns + LONG_NS, 1);
                }
            });
            let mut last = Reading::default();
            while last.completed < END_NS / LONG_NS {
                let reading = slot.read(clock.load(SeqCst));
                let now_ns = clock.load(SeqCst);
                assert!(reading.busy_ns < now_ns, "{reading:?} at {now_ns}");
                assert!(reading.completed >= last.completed && reading.cpu_ns >= last.cpu_ns);
                last = reading;
            }
        });
        assert_eq!(slot.read(0).busy_ns, END_NS);
    }
}
