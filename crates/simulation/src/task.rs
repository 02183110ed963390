//! One thread: where it is with its script, its GIL and the operating system.

use crate::scenario::ThreadSetting;

pub type TaskId = usize;
pub type CoreId = usize;

/// To the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    Blocked,
    /// Woken, on the way to a core that was idle.
    Arriving,
    Queued,
    Running,
    Over,
}

/// What the thread is at; what comes next happens on a core, when its time `left_ns` there is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The next step of the script.
    Next,
    /// Python code, with the GIL: it sees drop requests.
    Compute,
    /// C code that keeps the GIL.
    Call,
    /// The same, and then the message that was received last is answered.
    Answering,
    /// To take the GIL.
    Take,
    /// It spins for a moment before it sleeps for the GIL.
    SpinForGil,
    WaitForGil,
    /// It has, and calls who waits for that.
    Taken,
    /// To drop the GIL.
    Drop,
    /// It has, and called who waits.
    Dropped,
    SpinForSwitch,
    WaitForSwitch,
    /// Without the GIL, on its way to the step that it dropped it for.
    Away,
    /// What it does without the GIL is done: back to it.
    Back,
    Asking,
    WaitForAnswer,
    WaitForMessage,
    Replying,
}

/// What it is to do once it has dropped the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// It was asked to drop, and computes on.
    Retake,
    Step(StepId),
    /// Nothing: its script is over.
    End,
}

/// A place in its script.
pub type StepId = usize;

#[derive(Debug)]
pub struct Task {
    pub setting: ThreadSetting,
    pub run: Run,
    /// The core that it is on, or was on last.
    pub core: CoreId,
    pub last_ran_ns: u64,
    /// Nothing of it is in a core's caches: its next system call takes longer.
    pub is_cold: bool,
    /// EEVDF: virtual time used, when the slice is over by it, and, of a blocked thread, by how much it had
    /// less than its share.
    pub vruntime_ns: i64,
    pub vdeadline_ns: i64,
    pub lag_ns: i64,
    pub slice_ns: i64,

    pub stage: Stage,
    pub next_step: StepId,
    /// Processor time until the stage is over.
    pub left_ns: u64,
    /// Of a compute step.
    pub compute_left_ns: u64,
    /// When it ends by the clock, if it does.
    pub until_ns: Option<u64>,
    pub errand: Errand,
    /// Events of an earlier timer are void.
    pub timer: u64,
    /// When its timer is due, which is some time before it is over; the end of time without one.
    pub timer_due_ns: u64,
    /// Whether the wait that has just ended did so because its time was over.
    pub timed_out: bool,
    /// Who sent the message that it received last, and waits for an answer.
    pub asked_by: Option<TaskId>,

    /// Since when it waits for the GIL, its timed waits together.
    pub waiting_since_ns: Option<u64>,
    /// The GIL's switch number when the timed wait began.
    pub switch_number: u64,
    pub taken_ns: u64,
    pub began_ns: Option<u64>,
    /// Since when it asks and waits for the answer.
    pub asked_since_ns: u64,
}

impl Task {
    pub fn new(setting: ThreadSetting, slice_ns: i64, core: CoreId) -> Self {
        Self {
            setting,
            run: Run::Blocked,
            core,
            last_ran_ns: 0,
            is_cold: false,
            vruntime_ns: 0,
            vdeadline_ns: 0,
            lag_ns: 0,
            slice_ns,
            stage: Stage::Back,
            next_step: 0,
            left_ns: 0,
            compute_left_ns: 0,
            until_ns: None,
            errand: Errand::Retake,
            timer: 0,
            timer_due_ns: u64::MAX,
            timed_out: false,
            asked_by: None,
            waiting_since_ns: None,
            switch_number: 0,
            taken_ns: 0,
            began_ns: None,
            asked_since_ns: 0,
        }
    }

    pub fn may_run_on(&self, core: CoreId) -> bool {
        self.setting.cores.is_empty() || self.setting.cores.contains(&core)
    }

    /// What ends by the clock ends then wherever the thread was meanwhile.
    pub fn go_by_clock(&mut self, now_ns: u64) {
        if let Some(until_ns) = self.until_ns {
            self.compute_left_ns = until_ns.saturating_sub(now_ns);
        }
    }
}
