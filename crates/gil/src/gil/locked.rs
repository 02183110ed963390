//! The present state of a GIL.

use headway_measure::tsc::Conversion;
use headway_sched::ThreadId;

use super::hold_time::{HoldTime, kind};
use super::unanswered::Unanswered;
use crate::counters::ThreadCounters;
use crate::queue::Queue;

/// The present state of a GIL. Guarded by the GIL's mutex, which CPython holds around every call
/// that the hooks see.
#[repr(C)]
pub struct Locked {
    /// The time of the opening or of the last event; see `Gil::time_of_event_ns`.
    pub(super) latest_ns: u64,
    /// The holder's counters; null before the first hold.
    pub holder: *const ThreadCounters,
    /// The row of the thread that took last; `u32::MAX` before the first take.
    pub last_holder: u32,
    /// Threads inside a timed wait whose beginning the hook saw.
    pub in_timed_wait: u32,
    /// Threads whose wait has begun and has not ended.
    pub waiters: u32,
    pub held: bool,
    /// True while a drop request against the present hold is pending.
    pub drop_requested: bool,
    /// True if the policy made the request before the switch interval was over: a preemption.
    pub requested_early: bool,
    /// When the pending request was made for the first time.
    pub requested_ns: u64,
    /// `Collected::total_ns` when the pending request was made for the first time.
    pub collected_at_request_ns: u64,
    /// When the pending request was made for the last time.
    pub requested_last_ns: u64,
    /// The time of all long holds since the opening, by kind.
    pub hold_time: HoldTime,
    /// The part of the wait before the present hold that a policy could prevent, if the hold is
    /// short; 0 if there was none.
    pub preventable_ns: u64,
    /// The CPU time of the holder while the request is pending.
    pub unanswered: Unanswered,
    pub queue: Queue,
    /// Gives the readings of the time-stamp counter their times.
    pub(super) conversion: Conversion,
}

impl Locked {
    pub(super) const fn new() -> Self {
        Self {
            latest_ns: 0,
            holder: std::ptr::null(),
            last_holder: u32::MAX,
            in_timed_wait: 0,
            waiters: 0,
            held: false,
            drop_requested: false,
            requested_early: false,
            requested_ns: 0,
            collected_at_request_ns: 0,
            requested_last_ns: 0,
            hold_time: [0; kind::COUNT],
            preventable_ns: 0,
            unanswered: Unanswered::new(),
            queue: Queue::new(),
            conversion: Conversion::new(),
        }
    }

    /// The present holder, as the scheduler identifies it.
    pub fn holder_id(&self) -> Option<ThreadId> {
        self.held.then_some(self.last_holder)
    }
}
