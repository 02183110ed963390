//! The scheduler of one GIL: the policy in force, and the threads' times, on which every policy
//! relies.

use crate::live::{LivePolicy, PolicyName};
use crate::policy::Policy;
use crate::priority;
use crate::thread::{ThreadId, Threads};

/// CPython's default, used until a waiter reports its interval.
const DEFAULT_INTERVAL_NS: u64 = 5_000_000;

/// Drives a policy. A driver, live or in virtual time, reports each event of one GIL to the
/// scheduler, in order, and follows its answers.
#[derive(Debug)]
pub struct Scheduler<P = LivePolicy> {
    policy: P,
    /// Distinguishes the successive schedulers of one GIL.
    serial: u32,
    interval_ns: u64,
}

impl Scheduler {
    /// Creates a scheduler with empty queues. `serial` differs from the serials of the GIL's
    /// earlier schedulers, whose queues the threads have left.
    pub const fn new(policy: PolicyName, serial: u32) -> Self {
        Self::with_policy(LivePolicy::new(policy), serial)
    }
}

impl<P> Scheduler<P> {
    /// Creates a scheduler of this policy; see [`new`](Scheduler::new).
    pub const fn with_policy(policy: P, serial: u32) -> Self {
        Self { policy, serial, interval_ns: DEFAULT_INTERVAL_NS }
    }

    pub fn policy(&self) -> &P {
        &self.policy
    }
}

impl<P: Policy> Scheduler<P> {
    /// `waiter` found the GIL held and waits, with this switch interval. If it waits again after
    /// [`leave`](Self::leave), its wait continues and it keeps its position.
    pub fn wait(
        &mut self,
        threads: &mut impl Threads,
        waiter: ThreadId,
        interval_ns: u64,
        now_ns: u64,
    ) {
        self.interval_ns = interval_ns;
        let thread = &mut threads[waiter];
        thread.enter(self.serial);
        thread.interval_ns = interval_ns;
        thread.come_back(now_ns);
        if thread.waiting_since_ns == 0 {
            thread.waiting_since_ns = now_ns.max(1);
        }
        self.policy.wait(threads, waiter, now_ns);
    }

    /// `waiter` leaves the queue to check whether the GIL is free, or because it has requested a
    /// drop.
    pub fn leave(&mut self, threads: &mut impl Threads, waiter: ThreadId) {
        self.policy.leave(threads, waiter);
    }

    /// `thread` has taken the GIL.
    pub fn take(&mut self, threads: &mut impl Threads, thread: ThreadId, now_ns: u64) {
        self.leave(threads, thread);
        let interval_ns = self.interval_ns;
        let taker = &mut threads[thread];
        if taker.interval_ns == 0 {
            taker.interval_ns = interval_ns;
        }
        taker.enter(self.serial);
        taker.come_back(now_ns);
        self.policy.take(threads, thread, now_ns);
        threads[thread].begin_hold(now_ns);
    }

    /// `thread` has dropped the GIL, voluntarily or, if `forced`, while a drop request was pending.
    /// `ran_ns` is the time for which it ran on a core during the hold, or
    /// [`WHOLE_HOLD`](crate::WHOLE_HOLD).
    pub fn drop(
        &mut self,
        threads: &mut impl Threads,
        thread: ThreadId,
        forced: bool,
        ran_ns: u64,
        now_ns: u64,
    ) {
        threads[thread].end_hold(forced, ran_ns, now_ns);
        self.policy.drop(threads, thread, now_ns);
    }

    /// Returns the waiter to wake if the GIL is free now.
    pub fn next(&self, threads: &impl Threads, now_ns: u64) -> Option<ThreadId> {
        self.policy.next(threads, now_ns)
    }

    /// Returns the time at which `waiter` requests that `holder` drop; see [`Policy::ask_ns`].
    pub fn ask_ns(
        &self,
        threads: &impl Threads,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64 {
        self.policy.ask_ns(threads, waiter, holder, now_ns)
    }
}

/// Returns whether `priority` would class a thread that does not hold as CPU-bound, whatever the
/// policy in force is.
pub fn is_cpu_bound(threads: &impl Threads, thread: ThreadId) -> bool {
    priority::is_cpu_bound(&threads[thread], 0)
}
