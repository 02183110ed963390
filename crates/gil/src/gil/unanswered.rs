//! The CPU time that a holder uses while a drop request against it is pending.
//!
//! Python code answers a drop request within microseconds of its own CPU time, at the next check of
//! the interpreter loop. A holder that takes longer either runs C code that never checks, or does
//! not run: the kernel runs other threads, or a call blocks with the GIL held. The CPU time tells
//! the two cases apart.
//!
//! The clock of the holder is read at the first request under the policy `interval`, which makes
//! few, and else when a request is repeated; then at the drop, if it comes late. Runs in hooks,
//! with the GIL's mutex held.

use std::sync::atomic::Ordering::Relaxed;

use headway_measure::clock;

use super::hold_time::Cpu;
use crate::counters::ThreadCounters;
use crate::errno::preserving_errno;

/// A request that is repeated sooner than this says nothing about the holder.
const SOONEST_NS: u64 = 1_000_000;

/// The holder's CPU time at one moment of the present hold, at the first drop request or after it.
pub struct Unanswered {
    /// The CPU time and the moment; `None` until it is read.
    reading: Option<(u64, u64)>,
}

impl Unanswered {
    pub const fn new() -> Self {
        Self { reading: None }
    }

    /// The first drop request against a hold was made. `reads`: the clock is read.
    pub fn begin(&mut self, holder: &ThreadCounters, now_ns: u64, reads: bool) {
        self.reading = None;
        if reads {
            self.read(holder, now_ns);
        }
    }

    /// The request was repeated `since_ns` after the first.
    #[cold]
    pub fn repeat(&mut self, holder: &ThreadCounters, now_ns: u64, since_ns: u64) {
        if self.reading.is_none() && since_ns >= SOONEST_NS {
            self.read(holder, now_ns);
        }
    }

    fn read(&mut self, holder: &ThreadCounters, now_ns: u64) {
        self.reading = cpu_ns_of(holder).map(|cpu_ns| (cpu_ns, now_ns));
    }

    /// The hold ends. Returns the CPU time that the holder has used since the clock was read, at
    /// least 1 ns; `None` if it is not known, or the drop is not late.
    #[inline]
    pub fn end(&mut self, holder: &ThreadCounters, now_ns: u64, late: bool) -> Option<Cpu> {
        let (before_ns, read_at_ns) = self.reading.take().filter(|_| late)?;
        let used_ns = cpu_ns_of(holder)?.saturating_sub(before_ns).max(1);
        Some(Cpu { used_ns, of_ns: now_ns.saturating_sub(read_at_ns) })
    }
}

/// `None` for a thread without a row of its own, and for one that has ended.
fn cpu_ns_of(holder: &ThreadCounters) -> Option<u64> {
    match holder.native_id.load(Relaxed) {
        0 => None,
        native_id => preserving_errno(|| clock::cpu_ns_of_thread(native_id)),
    }
}
