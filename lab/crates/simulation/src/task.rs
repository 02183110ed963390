//! One thread: its state in its script, at its GIL and in the operating system.

use crate::scenario::ThreadSetting;

pub type TaskId = usize;
pub type CoreId = usize;

/// The state of a thread in the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    Blocked,
    /// Woken, on the way to a core that was idle.
    Arriving,
    Queued,
    Running,
    Over,
}

/// The current activity of a thread. The next stage begins, on a core, when the thread has used up
/// `left_ns` there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Is ready for the next step of the script.
    Next,
    /// Runs Python code with the GIL, and sees drop requests.
    Compute,
    /// Runs C code that keeps the GIL.
    Call,
    /// Runs C code that keeps the GIL, then answers the message that was received last.
    Answering,
    /// Is about to take the GIL.
    Take,
    /// Spins for a moment before it sleeps for the GIL.
    SpinForGil,
    WaitForGil,
    /// Has taken the GIL, and wakes the threads that wait for the take.
    Taken,
    /// Is about to drop the GIL.
    Drop,
    /// Has dropped the GIL, and woken a waiter.
    Dropped,
    SpinForSwitch,
    WaitForSwitch,
    /// Runs without the GIL, in a step for which it dropped it.
    Away,
    /// Has finished the step without the GIL, and is about to take it again.
    Back,
    Asking,
    WaitForAnswer,
    WaitForMessage,
    Replying,
}

/// The continuation after a drop of the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterDrop {
    /// Takes the GIL again: the thread dropped on request.
    Retake,
    Step(StepId),
    /// Ends: the script has finished.
    End,
}

/// An index into the script.
pub type StepId = usize;

#[derive(Debug)]
pub struct Task {
    pub setting: ThreadSetting,
    pub run: Run,
    /// The core that the thread is on, or was on last.
    pub core: CoreId,
    pub last_ran_ns: u64,
    /// The part of the thread's data that the caches lost in its longest absence since its last
    /// system call, 0 to 1: the next system call takes longer by as much of `cold_ns`.
    pub coldness: f64,
    /// EEVDF's data: the virtual time used, the virtual time at which the slice ends, and for a
    /// blocked thread the amount by which it had less than its share.
    pub vruntime_ns: i64,
    pub vdeadline_ns: i64,
    pub lag_ns: i64,
    pub slice_ns: i64,

    pub stage: Stage,
    pub next_step: StepId,
    /// The processor time until the stage is over.
    pub left_ns: u64,
    /// The processor time until the compute step is over.
    pub compute_left_ns: u64,
    /// The fixed time at which the compute step ends, if it has one.
    pub until_ns: Option<u64>,
    pub after_drop: AfterDrop,
    /// The number of the timer. Events of an earlier timer are void.
    pub timer: u64,
    /// The time at which the timer is due, which precedes its event by the timer slack; `u64::MAX`
    /// without a timer.
    pub timer_due_ns: u64,
    /// True if the wait that has just ended timed out.
    pub timed_out: bool,
    /// The sender of the message that was received last, if it waits for an answer.
    pub asked_by: Option<TaskId>,

    /// The start of the wait for the GIL, which may consist of several timed waits.
    pub waiting_since_ns: Option<u64>,
    /// The GIL's switch number at the start of the timed wait.
    pub switch_number: u64,
    pub taken_ns: u64,
    /// The processor time until now, and until the last take.
    pub ran_ns: u64,
    pub ran_at_take_ns: u64,
    pub began_ns: Option<u64>,
    /// The start of the present or last exchange of a message and its answer.
    pub asked_since_ns: u64,
}

impl Task {
    pub fn new(setting: ThreadSetting, slice_ns: i64, core: CoreId) -> Self {
        Self {
            setting,
            run: Run::Blocked,
            core,
            last_ran_ns: 0,
            coldness: 0.0,
            vruntime_ns: 0,
            vdeadline_ns: 0,
            lag_ns: 0,
            slice_ns,
            stage: Stage::Back,
            next_step: 0,
            left_ns: 0,
            compute_left_ns: 0,
            until_ns: None,
            after_drop: AfterDrop::Retake,
            timer: 0,
            timer_due_ns: u64::MAX,
            timed_out: false,
            asked_by: None,
            waiting_since_ns: None,
            switch_number: 0,
            taken_ns: 0,
            ran_ns: 0,
            ran_at_take_ns: 0,
            began_ns: None,
            asked_since_ns: 0,
        }
    }

    pub fn may_run_on(&self, core: CoreId) -> bool {
        self.setting.cores.is_empty() || self.setting.cores.contains(&core)
    }

    /// Adjusts a compute step that ends at a fixed time, wherever the thread was in the meantime.
    pub fn apply_end_time(&mut self, now_ns: u64) {
        if let Some(until_ns) = self.until_ns {
            self.compute_left_ns = until_ns.saturating_sub(now_ns);
        }
    }
}
