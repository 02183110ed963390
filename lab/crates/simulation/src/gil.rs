//! One GIL: its fields as in CPython's `Python/ceval_gil.c`, the policy in force, and the waiters.
//! The actions of threads on it are in `holding` and `waiting`.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::policies::{PolicyName, SimulatedPolicy};
use crate::scenario::GilSetting;
use crate::task::TaskId;
use headway_sched::Scheduler;
use headway_sched::{Thread, ThreadId, Threads};

/// The scheduler's data of the threads.
#[derive(Debug)]
pub struct Table(Vec<Thread>);

impl Index<ThreadId> for Table {
    type Output = Thread;
    fn index(&self, id: ThreadId) -> &Thread {
        &self.0[id as usize]
    }
}

impl IndexMut<ThreadId> for Table {
    fn index_mut(&mut self, id: ThreadId) -> &mut Thread {
        &mut self.0[id as usize]
    }
}

impl Threads for Table {}

#[derive(Debug)]
pub struct Gil {
    pub policy: PolicyName,
    pub interval_ns: u64,
    pub holder: Option<TaskId>,
    pub last_holder: Option<TaskId>,
    pub switch_number: u64,
    pub requested: bool,
    pub requested_ns: u64,
    /// The time of Python code until the holder checks for a request, or until its ticks are used
    /// up.
    pub check_left_ns: u64,
    /// Under `interval`: the threads that wait on `cond` and have not been woken.
    pub cond: VecDeque<TaskId>,
    /// Under any other policy.
    pub scheduler: Option<Scheduler<SimulatedPolicy>>,
    pub threads: Table,
    /// The thread that the last drop woke.
    pub woken: Option<TaskId>,
    pub switch_cond: VecDeque<TaskId>,
    /// The number of threads that wait for the GIL.
    pub waiters: usize,
}

impl Gil {
    pub fn new(setting: &GilSetting, tasks: usize) -> Self {
        let interval_ns = setting.switch_interval_ns as u64;
        let mut threads = Table(vec![Thread::new(); tasks + 1]);
        let mut scheduler = (setting.policy != PolicyName::INTERVAL)
            .then(|| Scheduler::with_policy(SimulatedPolicy::new(setting.policy), 1));
        if let Some(scheduler) = &mut scheduler {
            // A scheduler learns the switch interval from waiters; this one has it from the
            // beginning.
            scheduler.wait(&mut threads, tasks as ThreadId, interval_ns, 0);
            scheduler.leave(&mut threads, tasks as ThreadId);
        }
        Self {
            policy: setting.policy,
            interval_ns,
            holder: None,
            last_holder: None,
            switch_number: 0,
            requested: false,
            requested_ns: 0,
            check_left_ns: 0,
            cond: VecDeque::new(),
            scheduler,
            threads,
            woken: None,
            switch_cond: VecDeque::new(),
            waiters: 0,
        }
    }

    /// Returns whether the scheduler distinguishes CPU-bound from I/O-bound threads, and passes
    /// hints about them to the kernel.
    pub fn hints(&self) -> bool {
        matches!(self.policy, PolicyName::Live(_)) && self.scheduler.is_some()
    }

    /// Returns how long a thread holds before it drops without a request; see
    /// `SimulatedPolicy::check_every_ns`.
    pub fn check_every_ns(&self) -> Option<u64> {
        self.scheduler.as_ref()?.policy().check_every_ns()
    }

    /// Returns whether the holder drops at its next check.
    pub fn drop_is_due(&self) -> bool {
        self.requested || (self.check_every_ns().is_some() && self.waiters > 0)
    }

    /// Accounts for Python code that the holder has run. Ticks are counted across holders, with or
    /// without waiters.
    pub fn ran_python(&mut self, ns: u64) {
        let over_ns = ns.saturating_sub(self.check_left_ns);
        self.check_left_ns = match self.check_every_ns() {
            Some(every_ns) if over_ns > 0 => every_ns - over_ns % every_ns,
            _ => self.check_left_ns.saturating_sub(ns),
        };
    }

    /// Returns whether the policy's queues hold each waiter once, and no other thread. Empties
    /// them.
    pub fn queues_are_whole(&mut self, now_ns: u64) -> bool {
        let Some(scheduler) = &mut self.scheduler else { return true };
        for _ in 0..self.waiters {
            let Some(next) = scheduler.next(&self.threads, now_ns) else { return false };
            scheduler.leave(&mut self.threads, next);
        }
        scheduler.next(&self.threads, now_ns).is_none()
            && self.threads.0.iter().all(|thread| !thread.is_queued())
    }

    pub fn forces_switch(&self) -> bool {
        self.scheduler.as_ref().is_none_or(|scheduler| scheduler.policy().forces_switch())
    }
}
