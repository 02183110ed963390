//! The time-stamp counter of x86-64, for events that are too frequent for `clock::now_ns`.
//!
//! An event reads the counter first, and converts the reading later, when it has the [`Conversion`]
//! of its lock. A conversion extends the last reading of CLOCK_MONOTONIC by the counter, for a
//! quarter of a millisecond at most. Then it reads the clock again, so errors do not add up. A
//! reading that does not lie in this quarter of a millisecond gets the time of the clock, less the
//! ticks since the reading, whatever the reason is: a pause, a suspended machine, a counter that
//! jumped. If the thread lost its core after the reading, that is the time after the pause.
//!
//! The result is off from CLOCK_MONOTONIC by
//! - half the time that it takes to read both, some 10 ns, and 0.5 us at most at 2 GHz;
//! - the change of the clock's rate since it was measured, over a quarter of a millisecond: 0.13 us
//!   while NTP slews the clock by 500 ppm, and 26 us if a tool slews it by the 10 % that the kernel
//!   allows. The first rate, which is used for 17 ms, is off by 1 us at most at 2 GHz;
//! - a jump of the counter, for a quarter of a millisecond.
//!
//! The counter is read without a fence. The processor may read it before instructions in front of
//! it have ended, which the kernel's own reading of the counter excludes. So two threads' readings
//! may be in the wrong order by as long as a load from memory takes. Users of a conversion do not
//! let their time go backwards.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::clock::now_ns;

/// A conversion extends a reading of the clock for this time: 262 us.
const ANCHOR_NS: u64 = 1 << 18;
/// The rate is measured over this time, 17 ms, or more. The first one is measured over `ANCHOR_NS`.
const BASELINE_NS: u64 = 1 << 24;
/// A longer time, 2.1 s, is not used for the rate. It limits the size of products.
const LONGEST_BASELINE_NS: u64 = 1 << 31;
/// The counter and the clock are compared only if both were read within this number of ticks. A
/// thread that loses its core in between takes longer.
const SAMPLE_TICKS: u64 = 2048;
/// The clock and the counter agree if they differ by no more than this time and an eighth of the
/// time since they were compared last. The kernel slews the clock by a tenth at most.
const TOLERANCE_NS: u64 = 10_000;
/// A conversion that found so many disagreements does not use the counter any more.
const MOST_DISAGREEMENTS: u32 = 16;

/// True if events read the counter. Writer: `use_if_reliable`, before the first event. Readers:
/// every event, relaxed: the installation of the hooks orders them.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Lets `read` use the counter if it has a constant rate and is what the kernel computes its clocks
/// from. A reading must not be converted after a call that it came before.
pub fn use_if_reliable() {
    const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let is_clock_source = || std::fs::read(CLOCK_SOURCE).is_ok_and(|name| name == b"tsc\n");
    if !IN_USE.load(Relaxed) && counter::is_invariant() && is_clock_source() {
        IN_USE.store(true, Relaxed);
    }
}

/// A value of the counter or, where that is not used, of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Reading(u64);

/// Reads the counter, without a fence.
#[inline(always)]
pub fn read() -> Reading {
    match IN_USE.load(Relaxed) {
        true => Reading(counter::ticks()),
        false => Reading(now_ns()),
    }
}

/// The counter and the clock at one moment.
struct Sample {
    before_ticks: u64,
    now_ns: u64,
    after_ticks: u64,
}

impl Sample {
    fn take() -> Self {
        // The kernel's reading waits for the instructions before it, and the last one here for the
        // kernel's, so the three are in order.
        let before_ticks = counter::ticks();
        let now_ns = now_ns();
        Self { before_ticks, now_ns, after_ticks: counter::ticks_after_all() }
    }

    /// The counter at `now_ns`; `None` if it is not known well enough.
    fn ticks(&self) -> Option<u64> {
        let taken = self.after_ticks.wrapping_sub(self.before_ticks);
        (taken <= SAMPLE_TICKS).then(|| self.before_ticks.wrapping_add(taken / 2))
    }
}

/// Converts readings to nanoseconds of CLOCK_MONOTONIC. It has no synchronization of its own: a
/// lock has one, which its events change while they hold the lock. Neither allocates nor panics.
#[derive(Debug)]
pub struct Conversion {
    /// The last comparison of the counter and the clock.
    anchor_ticks: u64,
    anchor_ns: u64,
    /// Nanoseconds for each tick, times 2^32.
    rate: u64,
    /// `ANCHOR_NS` in ticks; 0 while the rate is not known.
    limit_ticks: u64,
    /// The comparison since which the rate is measured; 0 before the first one.
    origin_ticks: u64,
    origin_ns: u64,
    disagreements: u32,
}

impl Conversion {
    pub const fn new() -> Self {
        Self {
            anchor_ticks: 0,
            anchor_ns: 0,
            rate: 0,
            limit_ticks: 0,
            origin_ticks: 0,
            origin_ns: 0,
            disagreements: 0,
        }
    }

    /// The time of a reading that the calling thread has just made. It may be a little earlier than
    /// the time of the reading before.
    #[inline(always)]
    pub fn ns(&mut self, reading: Reading) -> u64 {
        let ticks = reading.0.wrapping_sub(self.anchor_ticks);
        match ticks < self.limit_ticks {
            true => self.anchor_ns + self.ticks_to_ns(ticks),
            false => self.anchor_again(reading),
        }
    }

    /// For `limit_ticks` at most, so the product is at most `ANCHOR_NS << 32`.
    #[inline(always)]
    fn ticks_to_ns(&self, ticks: u64) -> u64 {
        ticks.wrapping_mul(self.rate) >> 32
    }

    #[cold]
    #[inline(never)]
    fn anchor_again(&mut self, reading: Reading) -> u64 {
        match IN_USE.load(Relaxed) {
            true if self.has_given_up() => now_ns(),
            true => self.anchor_by(reading, &Sample::take()),
            false => reading.0,
        }
    }

    fn has_given_up(&self) -> bool {
        self.disagreements >= MOST_DISAGREEMENTS
    }

    /// Compares the counter and the clock, and returns the time of the reading, which was made
    /// before the sample.
    fn anchor_by(&mut self, reading: Reading, sample: &Sample) -> u64 {
        let now_ns = sample.now_ns;
        let Some(now_ticks) = sample.ticks() else {
            return now_ns;
        };
        if self.limit_ticks != 0 && !self.agrees(now_ticks, now_ns) {
            let disagreements = self.disagreements.saturating_add(1);
            *self = Self { disagreements, ..Self::new() };
        }
        self.measure_rate(now_ticks, now_ns);
        (self.anchor_ticks, self.anchor_ns) = (now_ticks, now_ns);
        let ago_ticks = now_ticks.wrapping_sub(reading.0);
        match ago_ticks < self.limit_ticks {
            true => now_ns.saturating_sub(self.ticks_to_ns(ago_ticks)),
            false => now_ns,
        }
    }

    /// Returns whether the counter has run as the clock has since the last comparison.
    fn agrees(&self, now_ticks: u64, now_ns: u64) -> bool {
        let passed_ticks = now_ticks.wrapping_sub(self.anchor_ticks);
        let predicted_ns = (u128::from(passed_ticks) * u128::from(self.rate)) >> 32;
        let passed_ns = now_ns.wrapping_sub(self.anchor_ns);
        predicted_ns.abs_diff(u128::from(passed_ns)) <= u128::from(TOLERANCE_NS + passed_ns / 8)
    }

    fn measure_rate(&mut self, now_ticks: u64, now_ns: u64) {
        let passed_ns = now_ns.wrapping_sub(self.origin_ns);
        let passed_ticks = now_ticks.wrapping_sub(self.origin_ticks);
        let enough_ns = if self.limit_ticks == 0 { ANCHOR_NS } else { BASELINE_NS };
        if passed_ns < enough_ns {
            return;
        }
        // Counters of 0.1 to 16 GHz: anything else is no rate.
        const RATES: std::ops::RangeInclusive<u64> = 1 << 28..=10 << 32;
        let measured = (self.origin_ns != 0 && passed_ns < LONGEST_BASELINE_NS)
            .then(|| (passed_ns << 32).checked_div(passed_ticks))
            .flatten()
            .filter(|rate| RATES.contains(rate));
        if let Some(rate) = measured {
            self.rate = rate;
            self.limit_ticks = (ANCHOR_NS << 32).checked_div(rate).unwrap_or(0);
        }
        if measured.is_none() || passed_ns >= BASELINE_NS {
            (self.origin_ticks, self.origin_ns) = (now_ticks, now_ns);
        }
    }
}

impl Default for Conversion {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};

    /// Returns whether the counter runs at a constant rate in all states of the processor.
    // `__cpuid` is safe in newer versions of Rust.
    #[allow(unused_unsafe)]
    pub fn is_invariant() -> bool {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        // SAFETY: all processors of this architecture have the instruction.
        unsafe {
            __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT
                && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
        }
    }

    #[inline(always)]
    pub fn ticks() -> u64 {
        // SAFETY: the instruction has no effect but its result. A process that may not execute it
        // (PR_TSC_SIGSEGV) could not call clock_gettime either, which executes it in user space
        // while the kernel computes its clocks from it.
        unsafe { _rdtsc() }
    }

    /// Reads the counter after all earlier instructions have ended.
    pub fn ticks_after_all() -> u64 {
        // SAFETY: as in `ticks`; the fence has no effect on memory.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }
}

/// Elsewhere the counter is not used: on AArch64, the C library reads the clock without a system
/// call and without a conversion that is worth avoiding.
#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub fn is_invariant() -> bool {
        false
    }

    pub fn ticks() -> u64 {
        0
    }

    pub fn ticks_after_all() -> u64 {
        0
    }
}

#[cfg(test)]
#[path = "tsc_tests.rs"]
mod tests;
