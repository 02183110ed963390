//! How threads wait for a GIL, ask for it and are called.
//!
//! Under `interval` they wait on `cond`, one switch interval at a time, and are called in the order in
//! which they began that. Under a policy they wait as `crates/gil` has them wait: the policy chooses whom a
//! drop calls, and when a waiter asks.

use crate::Simulation;
use crate::gil::Gil;
use crate::policies::SimulatedPolicy;
use crate::task::{Run, Stage, TaskId};
use crate::timeline::Moment;
use headway_sched::NEVER;
use headway_sched::ThreadId;
use headway_sched::{Scheduler, is_cpu_bound};

/// As the live queue has it: a waiter looks after so long, whatever it was told.
const LOOK_NS: u64 = 100_000_000;
/// Likewise, how long who was forced to switch waits at most.
const SWITCH_LIMIT_NS: u64 = 10_000_000;
/// As `crates/gil` hints to the kernel: the slice of a thread that does not compute.
const SHORT_SLICE_NS: i64 = 100_000;
/// From a call until a thread that spins has seen it.
const SPIN_ANSWER_NS: u64 = 200;

impl Simulation {
    /// A timed wait begins, or under a policy a wait in its queue.
    pub(super) fn wait_for_gil(&mut self, id: TaskId, gil: usize, holder: TaskId) {
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

    /// Tells the policy of the take, and calls the waiter that may ask sooner now than it knows. What that
    /// cost.
    pub(super) fn call_next_if_it_may_ask(&mut self, id: TaskId, gil: usize) -> u64 {
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

    /// Calls a waiter, if nobody has. What it cost.
    pub(super) fn call(&mut self, waiter: TaskId, by: TaskId) -> u64 {
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

    /// Nobody has taken the GIL yet.
    pub(super) fn sleep_for_switch(&mut self, id: TaskId) {
        self.tasks[id].stage = Stage::WaitForSwitch;
        self.block(id);
        if self.gils[self.gil_of(id)].hints() {
            self.start_timer(id, self.now_ns + SWITCH_LIMIT_NS);
        }
    }

    /// Under a policy, one that did not wait ends no forced wait while others wait.
    pub(super) fn ends_forced_waits(&self, gil: usize, waited: bool) -> bool {
        let Gil { scheduler, threads, .. } = &self.gils[gil];
        let others_wait =
            |scheduler: &Scheduler<SimulatedPolicy>| scheduler.next(threads, self.now_ns).is_some();
        waited || !scheduler.as_ref().is_some_and(others_wait)
    }

    /// `switch_cond` is signalled by each take.
    pub(super) fn end_forced_wait(&mut self, taker: TaskId, gil: usize) -> u64 {
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
}
