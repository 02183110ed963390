//! The data that a scheduler keeps of one thread on one GIL, and the access to it.

use core::ops::IndexMut;

/// The id of a thread in its scheduler. The driver assigns ids; an id is not reused while its
/// thread lives.
pub type ThreadId = u32;

/// No thread.
pub const NOBODY: ThreadId = ThreadId::MAX;

/// The driver's storage of threads. Live, it is a static array; in virtual time, a vector.
pub trait Threads: IndexMut<ThreadId, Output = Thread> {}

/// The length of the window over which a thread's held and away times are summed.
pub const WINDOW_NS: u64 = 20_000_000;
/// Time in which a holder does not run counts as computing beyond this, between two voluntary
/// absences.
const LOST_NS: u64 = 20_000_000;
/// The time that a thread ran during a hold, if the driver does not know it: all of the hold.
pub const WHOLE_HOLD: u64 = u64::MAX;

/// One thread on one GIL.
///
/// Times are in nanoseconds. The fields for use by a policy are zero in a thread that the policy
/// has not seen.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The switch interval of the GIL when the thread last waited.
    pub interval_ns: u64,
    /// The thread's own slice; 0 for one switch interval of the GIL. See `set_slice`.
    own_slice_ns: u64,
    /// The start of the present wait; 0 while the thread does not wait.
    pub waiting_since_ns: u64,
    /// The start of the present or last hold.
    pub taken_ns: u64,
    /// The time of the last drop or, after a forced drop, of the end of the forced-switch wait. 0
    /// before the first drop, and while the thread holds or waits.
    pub away_since_ns: u64,
    /// True if the last drop was forced.
    pub was_forced: bool,
    /// The time held within the window; older times count less. Of a hold, the time counts that
    /// the thread ran on a core.
    pub held_ns: u64,
    /// The time voluntarily away within the window; older times count less.
    pub away_ns: u64,
    /// The time held since the last voluntary absence, counted like `held_ns`.
    pub burst_ns: u64,
    /// The time of holds since the last voluntary absence that counts for none of these, because
    /// the thread did not run.
    lost_ns: u64,

    /// For the policy: the time that the thread may still hold before its turn ends.
    pub slice_left_ns: u64,
    /// For the policy: the thread's position in the order, earlier is smaller. A ticket or a
    /// deadline, depending on the policy.
    pub turn: u64,
    /// For the policy: the time until which the thread's hold must not be cut short.
    pub protected_until_ns: u64,
    /// For the policy: a class or flags.
    pub mark: u32,
    /// For the driver: the time at which the waiting thread next checks by itself whether to
    /// request a drop.
    pub looks_at_ns: u64,

    /// The serial of the scheduler whose policy wrote the policy's fields.
    scheduler: u32,
    pub(crate) queue: u32,
    pub(crate) before: ThreadId,
    pub(crate) behind: ThreadId,
}

impl Thread {
    pub const fn new() -> Self {
        Self {
            interval_ns: 0,
            own_slice_ns: 0,
            waiting_since_ns: 0,
            taken_ns: 0,
            away_since_ns: 0,
            was_forced: false,
            held_ns: 0,
            away_ns: 0,
            burst_ns: 0,
            lost_ns: 0,
            slice_left_ns: 0,
            turn: 0,
            protected_until_ns: 0,
            mark: 0,
            looks_at_ns: 0,
            scheduler: 0,
            queue: 0,
            before: NOBODY,
            behind: NOBODY,
        }
    }

    /// Returns whether the thread is in a queue.
    pub fn is_queued(&self) -> bool {
        self.queue != 0
    }

    /// Returns the length of a turn that the thread begins.
    pub fn slice_ns(&self) -> u64 {
        match self.own_slice_ns {
            0 => self.interval_ns,
            own_ns => own_ns,
        }
    }

    /// Sets the length of the thread's slice; 0 is one switch interval. The rest of a slice that
    /// has begun is limited to the new length. The driver calls this before it reports that the
    /// thread waits or takes.
    pub fn set_slice(&mut self, own_slice_ns: u64) {
        if self.own_slice_ns != own_slice_ns {
            self.own_slice_ns = own_slice_ns;
            self.slice_left_ns = self.slice_left_ns.min(self.slice_ns());
        }
    }

    /// Ends the forced-switch wait that followed the thread's last drop. The driver may call this
    /// directly: no policy reads a thread that neither waits nor holds.
    pub fn forced_wait_ended(&mut self, now_ns: u64) {
        self.away_since_ns = now_ns;
    }

    /// Clears the thread's past behaviour, which does not predict what it does from now on. Its
    /// slice and its turn stay. The driver may call this directly, like `forced_wait_ended`.
    pub fn begin_anew(&mut self) {
        debug_assert!(!self.is_queued());
        (self.held_ns, self.away_ns, self.burst_ns, self.lost_ns) = (0, 0, 0, 0);
    }

    /// Clears the fields that the policy of an earlier scheduler wrote.
    pub(crate) fn enter(&mut self, scheduler: u32) {
        if self.scheduler != scheduler {
            self.scheduler = scheduler;
            self.slice_left_ns = 0;
            self.turn = 0;
            self.protected_until_ns = 0;
            self.mark = 0;
        }
    }

    /// Accounts for the time since the thread's last drop.
    pub(crate) fn come_back(&mut self, now_ns: u64) {
        if self.away_since_ns == 0 {
            return;
        }
        let away_ns = now_ns.saturating_sub(self.away_since_ns);
        self.away_since_ns = 0;
        // A thread that answers a drop request comes back at once, but others may have its core.
        if self.was_forced && away_ns < WINDOW_NS {
            return;
        }
        (self.burst_ns, self.lost_ns) = (0, 0);
        self.held_ns = decayed(self.held_ns, away_ns);
        self.away_ns = decayed(self.away_ns, away_ns) + away_ns.min(WINDOW_NS);
    }

    /// Returns the time at which this holder's turn ends if nothing interrupts it. The last eighth
    /// of a slice is not worth a wakeup: within it, the turn ends now.
    pub(crate) fn slice_end_ns(&self, now_ns: u64) -> u64 {
        let end_ns = self.taken_ns + self.slice_left_ns;
        match end_ns <= now_ns + self.slice_rest_ns() {
            true => now_ns,
            false => end_ns,
        }
    }

    fn slice_rest_ns(&self) -> u64 {
        self.slice_ns() / 8
    }

    pub(crate) fn begin_hold(&mut self, now_ns: u64) {
        self.come_back(now_ns);
        self.waiting_since_ns = 0;
        self.taken_ns = now_ns;
    }

    /// The thread's behaviour is the time that it ran, `ran_ns`. That the kernel kept it from
    /// running is no property of the thread, up to `LOST_NS`: a thread that gets no core for longer
    /// must not be the first to get the GIL. A slice is GIL time, which other threads lack even
    /// while the holder does not run.
    pub(crate) fn end_hold(&mut self, forced: bool, ran_ns: u64, now_ns: u64) {
        let hold_ns = now_ns.saturating_sub(self.taken_ns);
        let lost_ns = hold_ns.saturating_sub(ran_ns).min(LOST_NS - self.lost_ns);
        self.lost_ns += lost_ns;
        let ran_ns = hold_ns - lost_ns;
        self.held_ns = decayed(self.held_ns, ran_ns) + ran_ns.min(WINDOW_NS);
        self.away_ns = decayed(self.away_ns, ran_ns);
        self.burst_ns += ran_ns;
        self.slice_left_ns = match self.slice_left_ns.saturating_sub(hold_ns) {
            rest_ns if rest_ns <= self.slice_rest_ns() => 0,
            left_ns => left_ns,
        };
        self.was_forced = forced;
        self.away_since_ns = now_ns;
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the part of `past_ns` that remains after another `elapsed_ns` of the window.
fn decayed(past_ns: u64, elapsed_ns: u64) -> u64 {
    match elapsed_ns < WINDOW_NS {
        true => past_ns - past_ns * elapsed_ns / WINDOW_NS,
        false => 0,
    }
}
