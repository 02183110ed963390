//! How a thread that was forced to drop waits until another has taken the GIL, while a policy schedules
//! it: CPython's wait on `switch_cond`, with a moment of spinning first.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use headway_sched::{NOBODY, ThreadId};

use super::{clock, parking};

/// One for each GIL.
pub struct Switch {
    /// Whether the takes are noted here. Writer: an event, with the GIL's mutex held.
    in_use: AtomicBool,
    /// Grows with every take. Writer: the take, with the GIL's mutex and its switch mutex held.
    takes: AtomicU32,
    /// Threads that sleep on `takes`, or are about to. Writers: these threads. Each adds itself before it
    /// looks at `takes` the last time, and the take changes `takes` before it looks here: both
    /// sequentially consistent, so one of them sees the other.
    sleepers: AtomicU32,
    /// Who was called at the last drop, if it was awake: a thread that sleeps is not waited for by
    /// spinning, and its waker's core is the best for it to wake up on. Writer: the drop, with the GIL's mutex held.
    called: AtomicU32,
}

/// The wait ends after so long even without a take. CPython does not look at why it ended, and goes on to
/// take the GIL itself.
const LIMIT_NS: u64 = 10_000_000;

impl Switch {
    pub const fn new() -> Self {
        Self {
            in_use: AtomicBool::new(false),
            takes: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            called: AtomicU32::new(NOBODY),
        }
    }

    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// From now on takes are noted, or not any more; then nobody waits for them.
    pub fn set_in_use(&self, yes: bool) {
        self.in_use.store(yes, Relaxed);
        self.note_take();
    }

    /// In a forked child, where nobody waits.
    pub fn reset(&self) {
        self.in_use.store(false, Relaxed);
        self.sleepers.store(0, Relaxed);
    }

    pub fn called(&self) -> ThreadId {
        self.called.load(Relaxed)
    }

    pub fn note_called(&self, next: Option<ThreadId>) {
        self.called.store(next.unwrap_or(NOBODY), Relaxed);
    }

    /// Takes so far. The caller holds the switch mutex.
    pub fn takes(&self) -> u32 {
        self.takes.load(Acquire)
    }

    /// The GIL was taken.
    pub fn note_take(&self) {
        self.takes.store(self.takes.load(Relaxed).wrapping_add(1), SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            parking::wake_on(&self.takes, i32::MAX);
        }
    }

    /// Waits until the GIL was taken since `takes` was `seen`; for the first `spin_ns` without sleep.
    /// Without any mutex.
    pub fn wait(&self, seen: u32, spin_ns: u64) {
        let taken = || self.takes.load(SeqCst) != seen;
        if spin_ns > 0 && parking::spin(spin_ns, taken) {
            return;
        }
        let until_ns = clock::now_ns() + LIMIT_NS;
        self.sleepers.fetch_add(1, SeqCst);
        while !taken() && clock::now_ns() < until_ns {
            parking::sleep_on(&self.takes, seen, until_ns);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}
