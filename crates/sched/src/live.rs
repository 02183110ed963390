//! The policies that schedule a running CPython.

use crate::deadline::Deadline;
use crate::interval::Interval;
use crate::policy::Policy;
use crate::priority::Priority;
use crate::thread::{ThreadId, Threads};

/// The names of the policies. Their order is part of the format of the meter's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    Interval,
    Priority,
    Deadline,
}

impl PolicyName {
    pub const ALL: [Self; 3] = [Self::Interval, Self::Priority, Self::Deadline];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Priority => "priority",
            Self::Deadline => "deadline",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }
}

/// One of the policies.
#[derive(Debug)]
pub enum LivePolicy {
    Interval(Interval),
    Priority(Priority),
    Deadline(Deadline),
}

impl LivePolicy {
    pub const fn new(name: PolicyName) -> Self {
        match name {
            PolicyName::Interval => Self::Interval(Interval::new()),
            PolicyName::Priority => Self::Priority(Priority::new()),
            PolicyName::Deadline => Self::Deadline(Deadline::new()),
        }
    }
}

/// Calls a method of the policy in force.
macro_rules! dispatch {
    ($of:expr, $policy:ident => $call:expr) => {
        match $of {
            LivePolicy::Interval($policy) => $call,
            LivePolicy::Priority($policy) => $call,
            LivePolicy::Deadline($policy) => $call,
        }
    };
}

impl Policy for LivePolicy {
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, now_ns: u64) {
        dispatch!(self, policy => policy.wait(threads, waiter, now_ns));
    }

    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId) {
        dispatch!(self, policy => policy.leave(threads, waiter));
    }

    fn take<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        dispatch!(self, policy => policy.take(threads, thread, now_ns));
    }

    fn drop<T: Threads>(&mut self, threads: &mut T, thread: ThreadId, now_ns: u64) {
        dispatch!(self, policy => policy.drop(threads, thread, now_ns));
    }

    fn next<T: Threads>(&self, threads: &T, now_ns: u64) -> Option<ThreadId> {
        dispatch!(self, policy => policy.next(threads, now_ns))
    }

    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64 {
        dispatch!(self, policy => policy.ask_ns(threads, waiter, holder, now_ns))
    }
}
