//! The policies of a simulated GIL: those of a running CPython, and three historical ones.

use headway_sched::{LivePolicy, Policy, ThreadId, Threads};

use crate::beazley::Beazley;
use crate::requests::Requests;
use crate::ticks::{CHECK_NS, Ticks};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    Live(headway_sched::PolicyName),
    Ticks,
    Requests,
    Beazley,
}

impl PolicyName {
    pub const INTERVAL: Self = Self::Live(headway_sched::PolicyName::Interval);
    pub const PRIORITY: Self = Self::Live(headway_sched::PolicyName::Priority);
    pub const DEADLINE: Self = Self::Live(headway_sched::PolicyName::Deadline);

    pub const ALL: [Self; 6] = [
        Self::INTERVAL,
        Self::PRIORITY,
        Self::DEADLINE,
        Self::Ticks,
        Self::Requests,
        Self::Beazley,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live(name) => name.as_str(),
            Self::Ticks => "ticks",
            Self::Requests => "requests",
            Self::Beazley => "beazley",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }
}

#[derive(Debug)]
pub enum SimulatedPolicy {
    Live(LivePolicy),
    Ticks(Ticks),
    Requests(Requests),
    Beazley(Beazley),
}

impl SimulatedPolicy {
    pub const fn new(name: PolicyName) -> Self {
        match name {
            PolicyName::Live(name) => Self::Live(LivePolicy::new(name)),
            PolicyName::Ticks => Self::Ticks(Ticks::new()),
            PolicyName::Requests => Self::Requests(Requests::new()),
            PolicyName::Beazley => Self::Beazley(Beazley::new()),
        }
    }

    /// Returns how long a thread holds the GIL before it drops it without a request and tries to
    /// take it again at once. `None` means that it holds until a waiter requests a drop.
    pub fn check_every_ns(&self) -> Option<u64> {
        matches!(self, Self::Ticks(_)).then_some(CHECK_NS)
    }

    /// Returns whether a thread that drops the GIL on request waits until another has taken it.
    pub fn forces_switch(&self) -> bool {
        !matches!(self, Self::Ticks(_))
    }
}

/// Calls a method of the policy in force.
macro_rules! dispatch {
    ($of:expr, $policy:ident => $call:expr) => {
        match $of {
            SimulatedPolicy::Live($policy) => $call,
            SimulatedPolicy::Ticks($policy) => $call,
            SimulatedPolicy::Requests($policy) => $call,
            SimulatedPolicy::Beazley($policy) => $call,
        }
    };
}

impl Policy for SimulatedPolicy {
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
