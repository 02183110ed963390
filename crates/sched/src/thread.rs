//! What a scheduler knows of one thread on one GIL, and the means to find it.

use core::ops::IndexMut;

/// Names a thread to its scheduler. The driver chooses; an id is not used twice while its thread
/// lives.
pub type ThreadId = u32;

/// No thread.
pub const NOBODY: ThreadId = ThreadId::MAX;

/// Where the driver keeps its threads. Live, an array that is never allocated; in virtual time, a
/// vector.
pub trait Threads: IndexMut<ThreadId, Output = Thread> {}

/// How far back a thread's habits count.
pub const WINDOW_NS: u64 = 20_000_000;

/// One thread on one GIL.
///
/// Times are nanoseconds. What a policy adds for itself is at the end; it finds those fields zero in a
/// thread that it has not seen.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The switch interval of the GIL as it was when the thread last waited.
    pub interval_ns: u64,
    /// The slice that the thread alone has; 0 for one switch interval of the GIL. See `set_slice`.
    own_slice_ns: u64,
    /// When its present wait began; 0 while it does not wait.
    pub waiting_since_ns: u64,
    /// When its present, or last, hold began.
    pub taken_ns: u64,
    /// When it dropped, or, if it had to wait for the switch, when that was over; 0 before its first
    /// drop, and while it holds or waits.
    pub away_since_ns: u64,
    /// Whether its last drop was forced.
    pub was_forced: bool,
    /// Time held within the window, older times counting less.
    pub held_ns: u64,
    /// Time voluntarily away within the window, likewise.
    pub away_ns: u64,
    /// Time held since it was last away of its own accord.
    pub burst_ns: u64,

    /// How much longer it may hold before its turn is over.
    pub slice_left_ns: u64,
    /// Its place in the order: earlier is smaller. A ticket or a deadline, as the policy has it.
    pub turn: u64,
    /// Until when its hold is not to be cut short.
    pub protected_until_ns: u64,
    /// What the policy remembers of it: a class, or a flag.
    pub mark: u32,
    /// The driver's: when the waiting thread next looks of itself whether to ask.
    pub looks_at_ns: u64,

    /// Which scheduler the policy's fields are of.
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

    /// Whether it is in a queue.
    pub fn is_queued(&self) -> bool {
        self.queue != 0
    }

    /// How long its turn is when it begins one.
    pub fn slice_ns(&self) -> u64 {
        match self.own_slice_ns {
            0 => self.interval_ns,
            own_ns => own_ns,
        }
    }

    /// Its slice is so long from now on, or, with 0, one switch interval; of the one that it has begun it keeps
    /// no more. For the driver, before it tells that the thread waits or takes.
    pub fn set_slice(&mut self, own_slice_ns: u64) {
        if self.own_slice_ns != own_slice_ns {
            self.own_slice_ns = own_slice_ns;
            self.slice_left_ns = self.slice_left_ns.min(self.slice_ns());
        }
    }

    /// It has waited for the switch that it was forced to, until now. For the driver: no policy looks at a
    /// thread that neither waits nor holds.
    pub fn forced_wait_ended(&mut self, now_ns: u64) {
        self.away_since_ns = now_ns;
    }

    /// Its habits say nothing of what it does from now on; what it owes to others it still does. For
    /// the driver, as `forced_wait_ended`.
    pub fn begin_anew(&mut self) {
        debug_assert!(!self.is_queued());
        (self.held_ns, self.away_ns, self.burst_ns) = (0, 0, 0);
    }

    /// Clears what an earlier scheduler's policy left.
    pub(crate) fn enter(&mut self, scheduler: u32) {
        if self.scheduler != scheduler {
            self.scheduler = scheduler;
            self.slice_left_ns = 0;
            self.turn = 0;
            self.protected_until_ns = 0;
            self.mark = 0;
        }
    }

    /// The thread is back from wherever it went after its last drop.
    pub(crate) fn come_back(&mut self, now_ns: u64) {
        if self.away_since_ns == 0 {
            return;
        }
        let away_ns = now_ns.saturating_sub(self.away_since_ns);
        self.away_since_ns = 0;
        // One that was forced to drop is back at once, but for the time that the operating system kept
        // it from running; that says nothing of its habits.
        if self.was_forced && away_ns < WINDOW_NS {
            return;
        }
        self.burst_ns = 0;
        self.held_ns = faded(self.held_ns, away_ns);
        self.away_ns = faded(self.away_ns, away_ns) + away_ns.min(WINDOW_NS);
    }

    /// When the turn of this holder is over, if nothing interrupts it. To come back for the last eighth of a
    /// slice is not worth a wake-up: then it is over now.
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

    pub(crate) fn end_hold(&mut self, forced: bool, now_ns: u64) {
        let hold_ns = now_ns.saturating_sub(self.taken_ns);
        self.held_ns = faded(self.held_ns, hold_ns) + hold_ns.min(WINDOW_NS);
        self.away_ns = faded(self.away_ns, hold_ns);
        self.burst_ns += hold_ns;
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

/// What is left of `past_ns` after another `elapsed_ns` of the window.
fn faded(past_ns: u64, elapsed_ns: u64) -> u64 {
    match elapsed_ns < WINDOW_NS {
        true => past_ns - past_ns * elapsed_ns / WINDOW_NS,
        false => 0,
    }
}
