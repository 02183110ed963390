//! How a thread that was forced to drop waits until another has taken the GIL, while a policy schedules
//! it: CPython's wait on `switch_cond`, with a moment of spinning first.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use headway_sched::{NOBODY, ThreadId};

use crate::queue::futex::{Futex, Word};
use headway_measure::clock;

/// One for each GIL.
pub struct Switch<W = Futex> {
    /// Whether the takes are noted here. Writer: an event, with the GIL's mutex held.
    in_use: AtomicBool,
    /// Grows with the takes of threads that waited, and with all while none waits. Writer: the take, with the GIL's mutex and its switch mutex held.
    takes: W,
    /// Threads that sleep on `takes`, or are about to. Writers: these threads. Each adds itself before it
    /// looks at `takes` the last time, and the take changes `takes` before it looks here: both
    /// sequentially consistent, so one of them sees the other.
    sleepers: AtomicU32,
    /// Who was called at the last drop. Writer: the drop, with the GIL's mutex held.
    called: AtomicU32,
}

/// The wait ends after so long even without a take. CPython does not look at why it ended, and goes on to
/// take the GIL itself.
const LIMIT_NS: u64 = 10_000_000;

impl Switch {
    pub const fn new() -> Self {
        Self::on(Futex::new())
    }
}

impl<W: Word> Switch<W> {
    /// `takes` is 0.
    pub const fn on(takes: W) -> Self {
        Self {
            in_use: AtomicBool::new(false),
            takes,
            sleepers: AtomicU32::new(0),
            called: AtomicU32::new(NOBODY),
        }
    }

    /// From now on takes are noted, or not any more; then nobody waits for them.
    pub fn set_in_use(&self, yes: bool) {
        self.in_use.store(yes, Relaxed);
        self.note_take();
    }

    /// Whether a policy schedules this GIL.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
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

    /// Takes so far, or `None` if they are not noted. The caller holds the switch mutex.
    pub fn takes(&self) -> Option<u32> {
        // In this order: if the use ends in between, the take that `set_in_use` notes is still to come
        // for who read the number before.
        let takes = self.takes.load();
        self.in_use.load(Relaxed).then_some(takes)
    }

    /// The GIL was taken by a thread that waited, or nobody waits.
    pub fn note_take(&self) {
        self.takes.store(self.takes.load().wrapping_add(1));
        if self.sleepers.load(SeqCst) > 0 {
            self.takes.wake(i32::MAX);
        }
    }

    /// Waits until such a take, since `takes` was `seen`; for the first `spin_ns` without sleep.
    /// Without any mutex.
    pub fn wait(&self, seen: u32, spin_ns: u64) {
        let taken = || self.takes.load() != seen;
        if spin_ns > 0 && self.takes.spin(spin_ns, taken) {
            return;
        }
        let until_ns = clock::now_ns() + LIMIT_NS;
        self.sleepers.fetch_add(1, SeqCst);
        while !taken() && self.takes.sleep(seen, until_ns) {}
        self.sleepers.fetch_sub(1, SeqCst);
    }
}
