//! `take_gil` and `drop_gil` of CPython's `Python/ceval_gil.c`, step by step, and what a thread
//! does with the GIL until it sees a drop request. A thread that arrives while no thread holds the
//! GIL takes it, even if another thread was woken.

use crate::Simulation;
use crate::gil::Gil;
use crate::task::{AfterDrop, Stage, TaskId};
use crate::timeline::Moment;
use headway_sched::ThreadId;

impl Simulation {
    /// Runs `take_gil` on the thread's core, from its start or after a wait.
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
        self.counters.taken(gil, waiters, switched, now_ns);
        self.counters.took(id, since_ns, now_ns);
        self.note(id, Moment::Take);
        let mut cost_ns = self.contended_ns(gil, waiters > 0);
        cost_ns += self.wake_next_if_it_may_request(id, gil);
        if self.ends_forced_waits(gil, since_ns.is_some()) {
            cost_ns += self.end_forced_wait(id, gil);
        }
        let task = &mut self.tasks[id];
        task.timed_out = false;
        task.taken_ns = now_ns;
        task.ran_at_take_ns = task.ran_ns;
        task.left_ns = cost_ns;
        task.stage = Stage::Taken;
    }

    /// Continues the interrupted step, or begins the next one.
    pub(super) fn after_take(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        task.apply_end_time(self.now_ns);
        if task.compute_left_ns > 0 {
            task.stage = Stage::Compute;
            self.plan_compute(id);
        } else {
            task.stage = Stage::Next;
        }
    }

    /// Plans how long the thread computes before it sees a drop request, or before its check.
    pub(super) fn plan_compute(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        task.left_ns = task.compute_left_ns;
        if let Some(gil) = task.setting.gil {
            if self.gils[gil].drop_is_due() {
                task.left_ns = task.left_ns.min(self.gils[gil].check_left_ns);
            }
        }
    }

    /// Ends a call of C code. The evaluation loop then checks its eval breaker at once. For the
    /// ticks, the call was one of many bytecodes.
    pub(super) fn after_call(&mut self, id: TaskId) {
        self.tasks[id].stage = Stage::Next;
        if self.tasks[id].setting.gil.is_some_and(|gil| self.gils[gil].requested) {
            self.begin_drop(id, AfterDrop::Retake);
        }
    }

    /// Checks between two bytecodes whether to drop, after `check_left_ns` of computing.
    pub(super) fn check(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let this = &mut self.gils[gil];
        if !this.drop_is_due() {
            return self.plan_compute(id);
        }
        if let Some(every_ns) = this.check_every_ns() {
            this.check_left_ns = every_ns;
        }
        self.begin_drop(id, AfterDrop::Retake);
    }

    /// Drops the GIL on the thread's core: `drop_gil` up to its wakeup of a waiter.
    pub(super) fn drop_gil(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let now_ns = self.now_ns;
        let forced = self.gils[gil].requested;
        self.counters.dropped(id, gil, self.tasks[id].taken_ns, forced, now_ns);
        self.counters.freed(gil, self.gils[gil].waiters, now_ns);
        self.note(id, if forced { Moment::ForcedDrop } else { Moment::Drop });
        let ran_ns = self.tasks[id].ran_ns - self.tasks[id].ran_at_take_ns;
        let Gil { scheduler, threads, cond, holder, woken, waiters, .. } = &mut self.gils[gil];
        *holder = None;
        *woken = match scheduler {
            Some(scheduler) => {
                scheduler.drop(threads, id as ThreadId, forced, ran_ns, now_ns);
                let next = scheduler.next(threads, now_ns).map(|next| next as TaskId);
                debug_assert_eq!(
                    next.is_some(),
                    *waiters > 0,
                    "the policy's queues hold the waiters"
                );
                next
            }
            None => cond.front().copied(),
        };
        let cost_ns = match *woken {
            Some(next) => self.wake_waiter(next, id),
            None => 0,
        };
        self.tasks[id].stage = Stage::Dropped;
        self.tasks[id].left_ns = cost_ns;
    }

    /// Runs the rest of `drop_gil`: a thread that was forced to drop waits until another has taken
    /// the GIL, unless the thread ends.
    pub(super) fn after_drop(&mut self, id: TaskId) {
        let gil = self.gil_of(id);
        let this = &mut self.gils[gil];
        let nobody_took = this.holder.is_none() && this.last_holder == Some(id);
        let ends = self.tasks[id].after_drop == AfterDrop::End;
        if !(this.requested && nobody_took && this.forces_switch()) || ends {
            return self.run_errand(id);
        }
        let spins = this.hints()
            && this.woken.is_some_and(|woken| self.tasks[woken].core != self.tasks[id].core);
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

    pub(super) fn run_errand(&mut self, id: TaskId) {
        match self.tasks[id].after_drop {
            AfterDrop::Retake => self.begin_take(id),
            AfterDrop::Step(step) => self.begin_step_without_gil(id, step),
            AfterDrop::End => self.end_script(id),
        }
    }

    /// Begins to take the GIL on the thread's core, if the thread has a GIL.
    pub(super) fn begin_take(&mut self, id: TaskId) {
        if self.tasks[id].setting.gil.is_none() {
            self.tasks[id].stage = Stage::Next;
            return;
        }
        self.tasks[id].stage = Stage::Take;
        self.tasks[id].left_ns = self.scenario.machine.take_ns.sample_ns(&mut self.random);
    }

    /// Begins to drop the GIL on the thread's core, if the thread has a GIL, and runs `after_drop`
    /// afterwards.
    pub(super) fn begin_drop(&mut self, id: TaskId, after_drop: AfterDrop) {
        self.tasks[id].after_drop = after_drop;
        if self.tasks[id].setting.gil.is_none() {
            return self.run_errand(id);
        }
        let gil = self.gil_of(id);
        let contended_ns = self.contended_ns(gil, self.gils[gil].waiters > 0);
        let drop_ns = self.scenario.machine.drop_ns.sample_ns(&mut self.random);
        self.tasks[id].stage = Stage::Drop;
        self.tasks[id].left_ns = drop_ns + contended_ns;
    }

    /// Returns the additional time of a take or drop: under a live policy, the waiters' queue and
    /// its cache lines move between cores.
    fn contended_ns(&mut self, gil: usize, contended: bool) -> u64 {
        if !contended || !self.gils[gil].hints() {
            return 0;
        }
        self.scenario.machine.contended_ns.sample_ns(&mut self.random)
    }

    pub(super) fn gil_of(&self, id: TaskId) -> usize {
        self.tasks[id].setting.gil.expect("only threads that have a GIL take and drop it")
    }
}
