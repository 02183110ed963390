//! The forced-switch wait: a thread that was forced to drop waits until another one has taken.
//!
//! While a policy schedules the GIL, this replaces CPython's wait on `switch_cond`, and spins for a
//! moment first.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use headway_measure::clock;
use headway_sched::{NOBODY, ThreadId};

use super::Switch;
use super::futex::{Futex, ProcessFutex};

/// The state of the wait, one for each GIL. One cache line, which no other data shares: the threads
/// that wait read it in a loop.
#[repr(C, align(64))]
pub struct ForcedSwitch<F = ProcessFutex> {
    /// True while takes are noted here, which is while a policy schedules. Writer: an event, with
    /// the GIL's mutex held. Relaxed; see `takes()`.
    in_use: AtomicBool,
    /// The number of takes that made a switch; see `Switch`. Writer: the take, with the GIL's mutex
    /// and its switch mutex held.
    takes: F,
    /// Threads that sleep on `takes`, or are about to. Writers: these threads. A thread adds itself
    /// before it reads `takes` for the last time, and the take changes `takes` before it reads
    /// this: both are sequentially consistent, so one of them sees the other.
    sleepers: AtomicU32,
    /// The thread that the last drop woke, or `NOBODY`. Writer: the drop, with the GIL's mutex
    /// held. Relaxed: a reader only decides by it whether to spin.
    woken: AtomicU32,
    /// True while the hold counts as brief: after a take with `Switch::Brief`, until the drop or
    /// until a thread queues. Writers: these events, with the GIL's mutex held, and an uninstall.
    /// Relaxed: a reader only decides by it whether to spin.
    is_brief: AtomicBool,
}

/// The wait ends after this time even without a take. CPython ignores the reason, and continues to
/// take the GIL.
const LIMIT_NS: u64 = 10_000_000;

/// A thread stands back for this time at most, in which Python runs some dozens of bytecodes.
const BRIEF_HOLD_NS: u64 = 2_000;

impl ForcedSwitch {
    pub const fn new() -> Self {
        Self::on(ProcessFutex::new(0))
    }
}

impl<F: Futex> ForcedSwitch<F> {
    /// `takes` is 0.
    pub const fn on(takes: F) -> Self {
        Self {
            in_use: AtomicBool::new(false),
            takes,
            sleepers: AtomicU32::new(0),
            woken: AtomicU32::new(NOBODY),
            is_brief: AtomicBool::new(false),
        }
    }

    /// Begins or ends the noting of takes. At the end, it wakes all threads that wait for one.
    pub fn set_in_use(&self, yes: bool) {
        self.in_use.store(yes, Relaxed);
        self.note_take(Switch::Made);
    }

    /// Returns whether a policy schedules this GIL.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// Resets the state in a forked child, in which no thread waits.
    pub fn reset(&self) {
        self.in_use.store(false, Relaxed);
        self.sleepers.store(0, Relaxed);
    }

    pub fn woken(&self) -> ThreadId {
        self.woken.load(Relaxed)
    }

    /// The GIL was dropped, and `woken` was woken.
    pub fn note_drop(&self, woken: Option<ThreadId>) {
        self.woken.store(woken.unwrap_or(NOBODY), Relaxed);
        self.end_brief_hold();
    }

    /// Returns whether the hold counts as brief.
    #[inline(always)]
    pub fn is_hold_brief(&self) -> bool {
        self.is_brief.load(Relaxed)
    }

    /// The hold ends, or a thread waits in the queue for its end.
    pub fn end_brief_hold(&self) {
        if self.is_hold_brief() {
            self.is_brief.store(false, Relaxed);
        }
    }

    /// Spins while the hold counts as brief, for a limited time. It ends the forced-switch wait of
    /// a thread that runs on another core than the holder: if that thread came for the GIL at
    /// once, it would contend with the holder's drop.
    pub fn stand_back(&self) {
        if self.is_hold_brief() {
            self.takes.spin(BRIEF_HOLD_NS, || !self.is_hold_brief());
        }
    }

    /// The number of takes so far; `None` if they are not noted. The caller holds the switch mutex.
    pub fn takes(&self) -> Option<u32> {
        // The order matters: if the use ends in between, a thread that read the number before still
        // sees the take that `set_in_use` notes.
        let takes = self.takes.load();
        self.in_use.load(Relaxed).then_some(takes)
    }

    /// A thread has taken the GIL.
    pub fn note_take(&self, switch: Switch) {
        if switch == Switch::Pending {
            return;
        }
        self.is_brief.store(switch == Switch::Brief, Relaxed);
        self.takes.store(self.takes.load().wrapping_add(1));
        if self.sleepers.load(SeqCst) > 0 {
            self.takes.wake(i32::MAX);
        }
    }

    /// Waits until a take is noted after `seen`, and spins for the first `spin_ns`. The caller
    /// holds no mutex.
    pub fn wait(&self, seen: u32, spin_ns: u64) {
        let taken = || self.takes.load() != seen;
        if spin_ns > 0 && self.takes.spin(spin_ns, taken) {
            return;
        }
        let until_ns = clock::now_ns() + LIMIT_NS;
        self.sleepers.fetch_add(1, SeqCst);
        while !taken() && self.takes.wait(seen, until_ns) {}
        self.sleepers.fetch_sub(1, SeqCst);
    }
}
