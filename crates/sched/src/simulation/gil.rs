//! `take_gil` and `drop_gil` of CPython's `Python/ceval_gil.c`, step by step, and a policy in their place.
//!
//! Under `interval` waiters wait on `cond`, one switch interval at a time, and are called in the order in
//! which they began that. Under a policy they wait as `crates/gil` has them wait: the policy
//! chooses whom a drop calls, and when a waiter asks. A thread that comes while nobody holds takes the
//! GIL, whoever was called.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::Simulation;
use super::scenario::GilSetting;
use super::task::{Errand, Run, Stage, TaskId};
use super::timeline::Moment;
use crate::policy::{NEVER, PolicyName};
use crate::scheduler::{Scheduler, is_cpu_bound};
use crate::thread::{Thread, ThreadId, Threads};

/// As the live queue has it: a waiter looks after so long, whatever it was told.
const LOOK_NS: u64 = 100_000_000;
/// Likewise, how long who was forced to switch waits at most.
const SWITCH_LIMIT_NS: u64 = 10_000_000;
/// As `crates/gil` hints to the kernel: the slice of a thread that does not compute.
const SHORT_SLICE_NS: i64 = 100_000;
/// From a call until a thread that spins has seen it.
const SPIN_ANSWER_NS: u64 = 200;

/// The scheduler's side of the threads.
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
    last_holder: Option<TaskId>,
    switch_number: u64,
    pub requested: bool,
    requested_ns: u64,
    /// Python code until the holder looks at the request, or until its ticks are over.
    check_left_ns: u64,
    /// Those that wait on `cond` and have not been called, under `interval`.
    cond: VecDeque<TaskId>,
    /// Under any other policy.
    scheduler: Option<Scheduler>,
    threads: Table,
    /// Whom the last drop called.
    called: Option<TaskId>,
    switch_cond: VecDeque<TaskId>,
    /// How many want it and do not hold it.
    pub waiters: usize,
}

impl Gil {
    pub fn new(setting: &GilSetting, tasks: usize) -> Self {
        let interval_ns = setting.switch_interval_ns as u64;
        let mut threads = Table(vec![Thread::new(); tasks + 1]);
        let mut scheduler =
            (setting.policy != PolicyName::Interval).then(|| Scheduler::new(setting.policy, 1));
        if let Some(scheduler) = &mut scheduler {
            // It learns the switch interval from waiters; here it knows it from the begin.
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
            called: None,
            switch_cond: VecDeque::new(),
            waiters: 0,
        }
    }

    /// Whether threads that are to compute are told apart from those that wait for I/O, and the kernel is
    /// told so.
    fn hints(&self) -> bool {
        PolicyName::LIVE.contains(&self.policy) && self.scheduler.is_some()
    }

    /// How long a thread holds before it drops of itself; see `Policy::check_every_ns`.
    pub fn check_every_ns(&self) -> Option<u64> {
        self.scheduler.as_ref().and_then(Scheduler::check_every_ns)
    }

    /// Whether the holder, when it has come that far, drops.
    fn is_wanted(&self) -> bool {
        self.requested || (self.check_every_ns().is_some() && self.waiters > 0)
    }

    /// Its holder has run so much Python code. Ticks are counted whoever holds and whoever waits.
    pub fn ran_python(&mut self, ns: u64) {
        let over_ns = ns.saturating_sub(self.check_left_ns);
        self.check_left_ns = match self.check_every_ns() {
            Some(every_ns) if over_ns > 0 => every_ns - over_ns % every_ns,
            _ => self.check_left_ns.saturating_sub(ns),
        };
    }

    /// Whether the policy's queues give back each waiter, once, and nobody else. They are empty then.
    pub fn queues_are_whole(&mut self, now_ns: u64) -> bool {
        let Some(scheduler) = &mut self.scheduler else { return true };
        for _ in 0..self.waiters {
            let Some(next) = scheduler.next(&self.threads, now_ns) else { return false };
            scheduler.leave(&mut self.threads, next);
        }
        scheduler.next(&self.threads, now_ns).is_none()
            && self.threads.0.iter().all(|thread| !thread.is_queued())
    }

    fn forces_switch(&self) -> bool {
        self.scheduler.as_ref().is_none_or(Scheduler::forces_switch)
    }
}

impl Simulation {
    /// The thread, on its core, is in `take_gil`, at its begin or after a wait.
    pub(super) fn try_take(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        if let Some(holder) = self.gils[gil].holder {
            self.wait_for_gil(id, gil, holder);
        } else {
            self.take(id, gil);
        }
    }

    fn take(&mut self, id: TaskId, gil: usize) {
        let now_ns = self.now_ns;
        let since_ns = self.tasks[id].waiting_since_ns.take();
        let this = &mut self.gils[gil];
        let waiters = this.waiters;
        this.waiters -= usize::from(since_ns.is_some());
        this.holder = Some(id);
        this.requested = false;
        let switched = this.last_holder != Some(id);
        this.last_holder = Some(id);
        this.switch_number += u64::from(switched);
        self.books.taken(gil, waiters, switched, now_ns);
        self.books.took(id, since_ns, now_ns);
        self.note(id, Moment::Take);
        let mut cost_ns = self.call_next_if_it_may_ask(id, gil);
        if self.ends_forced_waits(gil, since_ns.is_some()) {
            cost_ns += self.end_forced_wait(id, gil);
        }
        let task = &mut self.tasks[id];
        task.timed_out = false;
        task.taken_ns = now_ns;
        task.left_ns = cost_ns;
        task.stage = Stage::Taken;
    }

    /// Back to the step that it was interrupted in, or to the next.
    pub(super) fn after_take(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        task.go_by_clock(self.now_ns);
        if task.compute_left_ns > 0 {
            task.stage = Stage::Compute;
            self.plan_compute(id);
        } else {
            task.stage = Stage::Next;
        }
    }

    /// Tells the policy of the take, and calls the waiter that may ask sooner now than it knows. What that
    /// cost.
    fn call_next_if_it_may_ask(&mut self, id: TaskId, gil: usize) -> u64 {
        let now_ns = self.now_ns;
        let Gil { scheduler, threads, .. } = &mut self.gils[gil];
        let Some(scheduler) = scheduler else { return 0 };
        scheduler.take(threads, id as ThreadId, now_ns);
        let Some(next) = scheduler.next(threads, now_ns) else { return 0 };
        let ask_ns = scheduler.ask_ns(threads, next, id as ThreadId, now_ns);
        let patience_ns = threads[next].interval_ns.min(threads[id as ThreadId].slice_ns()) / 8;
        let slack_ns = if ask_ns <= now_ns { 0 } else { patience_ns };
        if ask_ns.saturating_add(slack_ns) >= threads[next].looks_at_ns {
            return 0;
        }
        threads[next].looks_at_ns = ask_ns;
        self.call(next as TaskId, id)
    }

    /// Under a policy, one that did not wait ends no forced wait while others wait.
    fn ends_forced_waits(&self, gil: usize, waited: bool) -> bool {
        let Gil { scheduler, threads, .. } = &self.gils[gil];
        let others_wait = |scheduler: &Scheduler| scheduler.next(threads, self.now_ns).is_some();
        waited || !scheduler.as_ref().is_some_and(others_wait)
    }

    /// `switch_cond` is signalled by each take.
    fn end_forced_wait(&mut self, taker: TaskId, gil: usize) -> u64 {
        let mut cost_ns = 0;
        while let Some(id) = self.gils[gil].switch_cond.pop_front() {
            self.forced_wait_over(id, gil);
            cost_ns += self.rouse(id, taker);
            if self.gils[gil].scheduler.is_none() {
                break;
            }
        }
        cost_ns
    }

    fn forced_wait_over(&mut self, id: TaskId, gil: usize) {
        self.note(id, Moment::ForcedWaitOver);
        self.gils[gil].threads[id as ThreadId].forced_wait_ended(self.now_ns);
    }

    /// A timed wait begins, or under a policy a wait in its queue.
    fn wait_for_gil(&mut self, id: TaskId, gil: usize, holder: TaskId) {
        let now_ns = self.now_ns;
        let timed_out = std::mem::take(&mut self.tasks[id].timed_out);
        if self.tasks[id].waiting_since_ns.is_none() {
            self.tasks[id].waiting_since_ns = Some(now_ns);
            self.books.contended(gil, self.gils[gil].waiters, now_ns);
            self.gils[gil].waiters += 1;
            self.note(id, Moment::Wait);
        }
        if self.gils[gil].scheduler.is_some() {
            if self.gils[gil].check_every_ns().is_some() {
                self.plan_holder(holder);
            }
            return self.wait_by_policy(id, gil, holder);
        }
        let this = &mut self.gils[gil];
        if timed_out && this.switch_number == self.tasks[id].switch_number {
            self.request_drop(id, gil, holder);
        }
        let this = &mut self.gils[gil];
        self.tasks[id].switch_number = this.switch_number;
        this.cond.push_back(id);
        let until_ns = now_ns + this.interval_ns;
        self.tasks[id].stage = Stage::WaitForGil;
        self.block(id);
        self.start_timer(id, until_ns);
    }

    fn wait_by_policy(&mut self, id: TaskId, gil: usize, holder: TaskId) {
        let now_ns = self.now_ns;
        let Gil { scheduler, threads, interval_ns, requested, requested_ns, .. } =
            &mut self.gils[gil];
        let Some(scheduler) = scheduler else { return };
        let me = id as ThreadId;
        if !threads[me].is_queued() {
            scheduler.wait(threads, me, *interval_ns, now_ns);
        }
        let mut ask_ns = match requested {
            true => *requested_ns + *interval_ns,
            false => scheduler.ask_ns(threads, me, holder as ThreadId, now_ns),
        };
        if ask_ns <= now_ns {
            // It leaves, asks, and comes back with its place.
            scheduler.leave(threads, me);
            scheduler.wait(threads, me, *interval_ns, now_ns);
            ask_ns = now_ns + *interval_ns;
            self.request_drop(id, gil, holder);
        }
        let hints = self.gils[gil].hints();
        let Gil { scheduler: Some(scheduler), threads, .. } = &mut self.gils[gil] else { return };
        let until_ns = ask_ns.min(now_ns + LOOK_NS);
        threads[me].looks_at_ns = until_ns;
        let is_next = scheduler.next(threads, now_ns) == Some(me);
        let cpu_bound = is_cpu_bound(threads, me);
        if hints {
            self.tasks[id].slice_ns = match cpu_bound {
                true => self.scenario.machine.slice_ns as i64,
                false => SHORT_SLICE_NS,
            };
        }
        let spin_ns = self.scenario.machine.spin_ns as u64;
        let elsewhere = self.tasks[holder].core != self.tasks[id].core;
        if hints && is_next && elsewhere && spin_ns > 0 {
            self.tasks[id].stage = Stage::SpinForGil;
            self.tasks[id].left_ns = spin_ns;
        } else {
            self.sleep_for_gil(id);
        }
    }

    /// Nobody has called it yet.
    pub(super) fn sleep_for_gil(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let until_ns = self.gils[gil].threads[id as ThreadId].looks_at_ns;
        self.tasks[id].stage = Stage::WaitForGil;
        self.block(id);
        if until_ns != NEVER && self.gils[gil].check_every_ns().is_none() {
            self.start_timer(id, until_ns.max(self.now_ns));
        }
    }

    /// Its timed wait is over, for the GIL or for the switch.
    pub(super) fn stop_waiting(&mut self, id: TaskId) {
        match self.tasks[id].stage {
            Stage::WaitForGil => {
                self.tasks[id].timed_out = true;
                let gil = self.gil_of(id);
                self.gils[gil].cond.retain(|waiter| *waiter != id);
            }
            Stage::WaitForSwitch => {
                let gil = self.gil_of(id);
                self.gils[gil].switch_cond.retain(|waiter| *waiter != id);
                self.forced_wait_over(id, gil);
            }
            _ => {}
        }
    }

    fn request_drop(&mut self, id: TaskId, gil: usize, holder: TaskId) {
        let check_ns = self.scenario.machine.check_ns.sample_ns(&mut self.random);
        // What the holder has run until now brings it no nearer to its check.
        self.account(self.tasks[holder].core);
        let this = &mut self.gils[gil];
        if !this.requested {
            this.check_left_ns = check_ns.max(1);
        }
        this.requested = true;
        this.requested_ns = self.now_ns;
        self.books.asked(id, gil, self.now_ns);
        self.note(id, Moment::Ask);
        self.plan_holder(holder);
    }

    /// The holder is to drop sooner than it knew.
    fn plan_holder(&mut self, holder: TaskId) {
        if self.tasks[holder].stage == Stage::Compute {
            let core = self.tasks[holder].core;
            self.account(core);
            self.plan_compute(holder);
            if self.tasks[holder].run == Run::Running {
                self.plan_core(core);
            }
        }
    }

    /// How long the thread computes before it sees a drop request, or before its check.
    pub(super) fn plan_compute(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        task.left_ns = task.compute_left_ns;
        if let Some(gil) = task.setting.gil
            && self.gils[gil].is_wanted()
        {
            task.left_ns = task.left_ns.min(self.gils[gil].check_left_ns);
        }
    }

    /// C code has returned, after which the evaluation loop looks at its breaker at once. To ticks it was one
    /// of many bytecodes.
    pub(super) fn called(&mut self, id: TaskId) {
        self.tasks[id].stage = Stage::Next;
        if self.tasks[id].setting.gil.is_some_and(|gil| self.gils[gil].requested) {
            self.begin_drop(id, Errand::Retake);
        }
    }

    /// Between two bytecodes, after so much computing that it looks whether to drop.
    pub(super) fn check(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let this = &mut self.gils[gil];
        if !this.is_wanted() {
            return self.plan_compute(id);
        }
        if let Some(every_ns) = this.check_every_ns() {
            this.check_left_ns = every_ns;
        }
        self.begin_drop(id, Errand::Retake);
    }

    /// The thread, on its core, has dropped the GIL: `drop_gil` up to its call.
    pub(super) fn drop_gil(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let now_ns = self.now_ns;
        let forced = self.gils[gil].requested;
        self.books.dropped(id, gil, self.tasks[id].taken_ns, forced, now_ns);
        self.books.freed(gil, self.gils[gil].waiters, now_ns);
        self.note(id, if forced { Moment::ForcedDrop } else { Moment::Drop });
        let Gil { scheduler, threads, cond, holder, called, waiters, .. } = &mut self.gils[gil];
        *holder = None;
        *called = match scheduler {
            Some(scheduler) => {
                scheduler.drop(threads, id as ThreadId, forced, now_ns);
                let next = scheduler.next(threads, now_ns).map(|next| next as TaskId);
                debug_assert_eq!(
                    next.is_some(),
                    *waiters > 0,
                    "who waits is in the policy's queues"
                );
                next
            }
            None => cond.front().copied(),
        };
        let cost_ns = match *called {
            Some(next) => self.call(next, id),
            None => 0,
        };
        self.tasks[id].stage = Stage::Dropped;
        self.tasks[id].left_ns = cost_ns;
    }

    /// Calls a waiter, if nobody has. What it cost.
    fn call(&mut self, waiter: TaskId, by: TaskId) -> u64 {
        let gil = self.gil_of(waiter);
        self.gils[gil].cond.retain(|id| *id != waiter);
        self.rouse(waiter, by)
    }

    /// Ends the wait of a thread that sleeps, or spins.
    fn rouse(&mut self, id: TaskId, by: TaskId) -> u64 {
        match (self.tasks[id].run, self.tasks[id].stage) {
            (Run::Blocked, Stage::WaitForGil | Stage::WaitForSwitch) => {
                self.tasks[id].left_ns = 0;
                self.wake(id, Some(self.tasks[by].core), false)
            }
            (run, Stage::SpinForGil | Stage::SpinForSwitch) => {
                let core = self.tasks[id].core;
                self.account(core);
                self.tasks[id].stage = match self.tasks[id].stage {
                    Stage::SpinForGil => Stage::WaitForGil,
                    _ => Stage::WaitForSwitch,
                };
                self.tasks[id].left_ns = SPIN_ANSWER_NS;
                if run == Run::Running {
                    self.plan_core(core);
                }
                0
            }
            _ => 0,
        }
    }

    /// The rest of `drop_gil`: who was asked waits until another has taken the GIL, unless it ends.
    pub(super) fn after_drop(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let this = &mut self.gils[gil];
        let nobody_took = this.holder.is_none() && this.last_holder == Some(id);
        let ends = self.tasks[id].errand == Errand::End;
        if !(this.requested && nobody_took && this.forces_switch()) || ends {
            return self.run_errand(id);
        }
        let spins = this.hints()
            && this.called.is_some_and(|called| self.tasks[called].core != self.tasks[id].core);
        if this.scheduler.is_none() {
            this.requested = false;
        }
        this.switch_cond.push_back(id);
        self.note(id, Moment::ForcedWait);
        let spin_ns = self.scenario.machine.spin_ns as u64;
        if spins && spin_ns > 0 {
            self.tasks[id].stage = Stage::SpinForSwitch;
            self.tasks[id].left_ns = spin_ns;
        } else {
            self.sleep_for_switch(id);
        }
    }

    /// Nobody has taken the GIL yet.
    pub(super) fn sleep_for_switch(&mut self, id: TaskId) {
        self.tasks[id].stage = Stage::WaitForSwitch;
        self.block(id);
        if self.gils[self.gil_of(id)].hints() {
            self.start_timer(id, self.now_ns + SWITCH_LIMIT_NS);
        }
    }

    pub(super) fn run_errand(&mut self, id: TaskId) {
        match self.tasks[id].errand {
            Errand::Retake => self.begin_take(id),
            Errand::Step(step) => self.go_away(id, step),
            Errand::End => self.end_script(id),
        }
    }

    /// The thread, on its core, wants the GIL, if it has one.
    pub(super) fn begin_take(&mut self, id: TaskId) {
        if self.tasks[id].setting.gil.is_none() {
            self.tasks[id].stage = Stage::Next;
            return;
        }
        self.tasks[id].stage = Stage::Take;
        self.tasks[id].left_ns = self.scenario.machine.take_ns.sample_ns(&mut self.random);
    }

    /// The thread, on its core, drops the GIL, if it has one, and then does that.
    pub(super) fn begin_drop(&mut self, id: TaskId, errand: Errand) {
        self.tasks[id].errand = errand;
        if self.tasks[id].setting.gil.is_none() {
            return self.run_errand(id);
        }
        self.tasks[id].stage = Stage::Drop;
        self.tasks[id].left_ns = self.scenario.machine.drop_ns.sample_ns(&mut self.random);
    }

    pub(super) fn gil_of(&self, id: TaskId) -> usize {
        self.tasks[id].setting.gil.expect("only threads that have a GIL take and drop it")
    }
}
