//! How threads wait for a GIL, request it and are woken.
//!
//! Under `interval` they wait on `cond`, one switch interval at a time, and are woken in the order
//! in which these waits began. Under a policy they wait as in `crates/gil`: the policy chooses the
//! thread that a drop wakes, and the time at which a waiter requests a drop.

use crate::Simulation;
use crate::gil::Gil;
use crate::policies::SimulatedPolicy;
use crate::task::{Run, Stage, TaskId};
use crate::timeline::Moment;
use headway_sched::NEVER;
use headway_sched::ThreadId;
use headway_sched::{Scheduler, is_cpu_bound};

/// The next waiter checks the GIL after this time, and every other one after the later time, as in
/// the live queue, whatever the policy answered.
const RECHECK_NS: u64 = 100_000_000;
const LATER_RECHECK_NS: u64 = 10 * RECHECK_NS;
/// The longest forced-switch wait, as in the live queue.
const SWITCH_LIMIT_NS: u64 = 10_000_000;
/// The slice of a thread that does not compute, as `crates/gil` requests it from the kernel.
const SHORT_SLICE_NS: i64 = 100_000;
/// The time from a wakeup until a spinning thread has seen it.
const SPIN_ANSWER_NS: u64 = 200;

impl Simulation {
    /// Begins a timed wait or, under a policy, a wait in the policy's queue.
    pub(super) fn wait_for_gil(&mut self, id: TaskId, gil: usize, holder: TaskId) {
        let now_ns = self.now_ns;
        let timed_out = std::mem::take(&mut self.tasks[id].timed_out);
        if self.tasks[id].waiting_since_ns.is_none() {
            self.tasks[id].waiting_since_ns = Some(now_ns);
            self.counters.contended(gil, self.gils[gil].waiters, now_ns);
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
            // The waiter leaves, requests a drop, and returns with its position.
            scheduler.leave(threads, me);
            scheduler.wait(threads, me, *interval_ns, now_ns);
            ask_ns = now_ns + *interval_ns;
            self.request_drop(id, gil, holder);
        }
        let hints = self.gils[gil].hints();
        let Gil { scheduler: Some(scheduler), threads, .. } = &mut self.gils[gil] else { return };
        let is_next = scheduler.next(threads, now_ns) == Some(me);
        let recheck_ns = if is_next { RECHECK_NS } else { LATER_RECHECK_NS };
        let until_ns = ask_ns.min(now_ns + recheck_ns);
        threads[me].looks_at_ns = until_ns;
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

    /// Blocks a waiter that no thread has woken yet.
    pub(super) fn sleep_for_gil(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let until_ns = self.gils[gil].threads[id as ThreadId].looks_at_ns;
        self.tasks[id].stage = Stage::WaitForGil;
        self.block(id);
        if until_ns != NEVER && self.gils[gil].check_every_ns().is_none() {
            self.start_timer(id, until_ns.max(self.now_ns));
        }
    }

    /// Ends a timed wait, for the GIL or for the switch.
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
        let machine = &self.scenario.machine;
        let answer_ns = machine.answer_ns.as_ref().filter(|_| self.gils[gil].hints());
        let check_ns = answer_ns.unwrap_or(&machine.check_ns).sample_ns(&mut self.random);
        // The time that the holder has run until now does not count towards its check.
        self.account(self.tasks[holder].core);
        let this = &mut self.gils[gil];
        if !this.requested {
            this.check_left_ns = check_ns.max(1);
        }
        this.requested = true;
        this.requested_ns = self.now_ns;
        self.counters.asked(id, gil, self.now_ns);
        self.note(id, Moment::Ask);
        self.plan_holder(holder);
    }

    /// Plans an earlier drop of the holder.
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

    /// Reports the take to the policy, and wakes the next waiter if it may now request a drop
    /// earlier than it expects. Returns the cost.
    pub(super) fn wake_next_if_it_may_request(&mut self, id: TaskId, gil: usize) -> u64 {
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
        self.wake_waiter(next as TaskId, id)
    }

    /// Wakes a waiter, if no thread has. Returns the cost.
    pub(super) fn wake_waiter(&mut self, waiter: TaskId, by: TaskId) -> u64 {
        let gil = self.gil_of(waiter);
        self.gils[gil].cond.retain(|id| *id != waiter);
        self.end_wait(waiter, by)
    }

    /// Ends the wait of a thread that sleeps or spins. Returns the cost.
    fn end_wait(&mut self, id: TaskId, by: TaskId) -> u64 {
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

    /// Blocks a thread in its forced-switch wait: no thread has taken the GIL yet.
    pub(super) fn sleep_for_switch(&mut self, id: TaskId) {
        self.tasks[id].stage = Stage::WaitForSwitch;
        self.block(id);
        if self.gils[self.gil_of(id)].hints() {
            self.start_timer(id, self.now_ns + SWITCH_LIMIT_NS);
        }
    }

    /// Returns whether a take ends the forced-switch waits. Under a policy, the take of a thread
    /// that did not wait does not end them while others wait.
    pub(super) fn ends_forced_waits(&self, gil: usize, waited: bool) -> bool {
        let Gil { scheduler, threads, .. } = &self.gils[gil];
        let others_wait =
            |scheduler: &Scheduler<SimulatedPolicy>| scheduler.next(threads, self.now_ns).is_some();
        waited || !scheduler.as_ref().is_some_and(others_wait)
    }

    /// Ends forced-switch waits: each take signals `switch_cond`. Returns the cost.
    pub(super) fn end_forced_wait(&mut self, taker: TaskId, gil: usize) -> u64 {
        let mut cost_ns = 0;
        while let Some(id) = self.gils[gil].switch_cond.pop_front() {
            self.forced_wait_over(id, gil);
            cost_ns += self.end_wait(id, taker);
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
