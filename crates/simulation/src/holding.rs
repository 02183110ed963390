//! `take_gil` and `drop_gil` of CPython's `Python/ceval_gil.c`, step by step, and what a thread does with the
//! GIL until it sees a drop request. A thread that comes while nobody holds takes the GIL, whoever was
//! called.

use crate::Simulation;
use crate::gil::Gil;
use crate::task::{Errand, Stage, TaskId};
use crate::timeline::Moment;
use headway_sched::ThreadId;

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
