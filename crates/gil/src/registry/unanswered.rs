//! How much CPU time a holder uses while a drop request against it is pending.
//!
//! Python code answers a drop request within microseconds of its own CPU time, at the next check of the interpreter
//! loop. A holder that goes on for longer either runs C code that never looks, or is kept off the processor: by the
//! kernel, which runs others, or by a call that blocks with the GIL held. The CPU time tells the two apart.
//!
//! Costs nothing where requests are answered: the clock of the holder is read when a request is made again, one switch
//! interval after the first, and when that hold ends. Runs in hooks, with the GIL's mutex held.

use std::sync::atomic::Ordering::Relaxed;

use crate::counters::book::ThreadBook;
use crate::queue::futex::keeping_errno;
use headway_measure::clock;

/// A request that is made again sooner than this says nothing yet.
const SOONEST_NS: u64 = 1_000_000;

/// The holder's CPU time at one moment of the present hold, a while after the first drop request.
pub struct Unanswered {
    /// CPU time; `None` until it is read.
    cpu_ns: Option<u64>,
}

impl Unanswered {
    pub const fn new() -> Self {
        Self { cpu_ns: None }
    }

    /// The first drop request against a hold.
    pub fn begin(&mut self) {
        self.cpu_ns = None;
    }

    /// Another one, `since_ns` after the first.
    #[cold]
    pub fn go_on(&mut self, holder: &ThreadBook, since_ns: u64) {
        if self.cpu_ns.is_none() && since_ns >= SOONEST_NS {
            self.cpu_ns = cpu_ns_of(holder);
        }
    }

    /// The hold ends: the CPU time that the holder has used since `go_on`, at least 1 ns; `None` if that is not known.
    #[inline]
    pub fn end(&mut self, holder: &ThreadBook) -> Option<u64> {
        let before_ns = self.cpu_ns.take()?;
        Some(cpu_ns_of(holder)?.saturating_sub(before_ns).max(1))
    }
}

/// `None` for a thread without a book of its own, and for one that has ended.
fn cpu_ns_of(holder: &ThreadBook) -> Option<u64> {
    match holder.native_id.load(Relaxed) {
        0 => None,
        native_id => {
            let mut cpu_ns = None;
            keeping_errno(|| {
                cpu_ns = clock::cpu_ns_of_thread(native_id);
                0
            });
            cpu_ns
        }
    }
}
