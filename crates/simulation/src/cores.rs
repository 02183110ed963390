//! The operating system: which thread is on which core.
//!
//! As Linux does it, in outline: each core has a queue; by EEVDF, of those that have not had more than
//! their share the one whose slice ends first runs; a thread that wakes up goes to an idle core if there
//! is one, else to the core that it was on or to that of who woke it, and runs there at once if its turn
//! is before that of the thread that runs. A slice is seen to be over at a tick. Idle cores take over
//! threads that have waited elsewhere for a while.

use crate::Simulation;
use crate::distribution::{Distribution, Varying};
use crate::events::What;
use crate::task::{CoreId, Run, Stage, TaskId};
use crate::timeline::Moment;

/// As Linux's `cache_nice_tries` has it.
const MOST_FAILURES: u32 = 2;

#[derive(Debug, Default)]
pub struct Core {
    pub current: Option<TaskId>,
    /// When the current thread's work went on, or will.
    since_ns: u64,
    /// Until when it is taken away.
    stolen_until_ns: u64,
    /// Who was on it last: to go on with it costs nothing.
    last: Option<TaskId>,
    queue: Vec<TaskId>,
    /// How often in turn a tick found it idle while threads waited elsewhere, and it took over none.
    failures: u32,
    /// A thread was woken for this core and is not there yet.
    arriving: bool,
    /// Events of an earlier plan are void.
    pub plan: u64,
    /// The current thread has used up a slice since it was put here.
    slice_over: bool,
    /// A thread has come to the queue.
    reschedules: bool,
    ticks: bool,
    /// The virtual time at which nobody was there any more.
    idle_vtime_ns: i64,
    /// And the time.
    idle_since_ns: u64,
}

impl Core {
    fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty() && !self.arriving
    }

    /// How many want it.
    fn load(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some()) + usize::from(self.arriving)
    }
}

impl Simulation {
    /// Makes a blocked thread runnable. `waker` is the core of who does it; `sync` if that is about to wait
    /// for it. What that costs who does it.
    pub(super) fn wake(&mut self, id: TaskId, waker: Option<CoreId>, sync: bool) -> u64 {
        debug_assert_eq!(self.tasks[id].run, Run::Blocked);
        let core = self.core_for(id, waker, sync);
        self.tasks[id].timer += 1;
        self.tasks[id].timer_due_ns = u64::MAX;
        if self.cores[core].is_idle() {
            self.tasks[id].run = Run::Arriving;
            self.cores[core].arriving = true;
            let idle_ns = self.now_ns - self.cores[core].idle_since_ns;
            let machine = &self.scenario.machine;
            let long = idle_ns as f64 >= machine.long_idle_ns;
            let (wake_ns, call_ns) = match (long, &machine.wake_idle_long_ns, &machine.call_long_ns)
            {
                (true, Some(wake_ns), Some(call_ns)) => (wake_ns, call_ns),
                _ => (&machine.wake_idle_ns, &machine.call_ns),
            };
            let wake_ns = wake_ns.sample_ns(&mut self.random);
            let call_ns = call_ns.sample_ns(&mut self.random);
            self.plan_at(self.now_ns + wake_ns, What::Arrive { task: id, core });
            call_ns
        } else {
            self.enqueue(id, core);
            0
        }
    }

    pub(super) fn arrive(&mut self, id: TaskId, core: CoreId) {
        self.cores[core].arriving = false;
        self.enqueue(id, core);
    }

    fn core_for(&self, id: TaskId, waker: Option<CoreId>, sync: bool) -> CoreId {
        let task = &self.tasks[id];
        let idle = |core: CoreId| task.may_run_on(core) && self.cores[core].is_idle();
        if idle(task.core) {
            return task.core;
        }
        if let Some(core) = (0..self.cores.len()).find(|core| idle(*core)) {
            return core;
        }
        let before = match task.may_run_on(task.core) {
            true => task.core,
            false => task.setting.cores[0],
        };
        let Some(waker) = waker.filter(|core| task.may_run_on(*core)) else { return before };
        let others = self.cores[waker].load() - usize::from(sync);
        match others < self.cores[before].load() {
            true => waker,
            false => before,
        }
    }

    /// The current thread waits for something; whoever is next runs.
    pub(super) fn block(&mut self, id: TaskId) {
        let core = self.tasks[id].core;
        self.leave_core(id, Run::Blocked);
        self.fill(core);
    }

    pub(super) fn finish(&mut self, id: TaskId) {
        let core = self.tasks[id].core;
        self.leave_core(id, Run::Over);
        self.fill(core);
    }

    fn leave_core(&mut self, id: TaskId, run: Run) {
        let core = self.tasks[id].core;
        let vtime_ns = self.vtime_ns(core);
        let limit_ns = (2 * self.tasks[id].slice_ns).max(self.scenario.machine.tick_ns as i64);
        let task = &mut self.tasks[id];
        task.lag_ns = (vtime_ns - task.vruntime_ns).clamp(-limit_ns, limit_ns);
        task.run = run;
        task.last_ran_ns = self.now_ns;
        let core = &mut self.cores[core];
        core.current = None;
        core.last = Some(id);
        core.plan += 1;
        if core.queue.is_empty() {
            core.idle_vtime_ns = vtime_ns;
            core.idle_since_ns = self.now_ns;
        }
        self.note(id, Moment::Stop);
    }

    /// A core without a thread gets the next of its queue, or one that waits elsewhere.
    fn fill(&mut self, core: CoreId) {
        if self.cores[core].queue.is_empty() && !self.cores[core].arriving {
            self.pull(core);
        }
        if let Some(next) = self.pick(core) {
            self.put(next, core);
        }
    }

    /// Takes over a thread that has waited elsewhere for so long that its memory is cold there anyway.
    fn pull(&mut self, core: CoreId) {
        let patient = self.cores[core].failures <= MOST_FAILURES;
        let hot_ns = if patient { self.scenario.machine.hot_ns as u64 } else { 0 };
        let is_cold = |id: &TaskId| {
            let task = &self.tasks[*id];
            task.may_run_on(core) && self.now_ns >= task.last_ran_ns + hot_ns
        };
        let from = (0..self.cores.len())
            .filter(|other| *other != core && self.cores[*other].queue.iter().any(is_cold))
            .max_by_key(|other| self.cores[*other].queue.len());
        let Some(from) = from else { return };
        let Some(place) = self.cores[from].queue.iter().position(is_cold) else { return };
        let vtime_ns = self.vtime_ns(from);
        let id = self.cores[from].queue.remove(place);
        self.tasks[id].lag_ns = vtime_ns - self.tasks[id].vruntime_ns;
        self.enqueue(id, core);
    }

    fn enqueue(&mut self, id: TaskId, core: CoreId) {
        self.account(core);
        let vtime_ns = self.vtime_ns(core);
        let runnable = self.runnable(core).count() as i64;
        let task = &mut self.tasks[id];
        // Who had less than its share keeps the difference, after the queue's time has moved by its coming;
        // who had more waits until that has evened out, where it was.
        let lag_ns = match task.lag_ns {
            lag_ns if lag_ns >= 0 && runnable > 0 => lag_ns * (runnable + 1) / runnable,
            lag_ns if lag_ns < 0 && task.core == core => {
                (vtime_ns - task.vruntime_ns).clamp(lag_ns, 0)
            }
            _ => 0,
        };
        task.vruntime_ns = vtime_ns - lag_ns;
        task.vdeadline_ns = task.vruntime_ns + task.slice_ns;
        task.run = Run::Queued;
        task.core = core;
        self.cores[core].queue.push(id);
        self.cores[core].reschedules = true;
        self.start_ticks(core);
    }

    /// After an event: where a thread has come, whoever's turn it is runs.
    pub(super) fn reschedule(&mut self) {
        for core in 0..self.cores.len() {
            if std::mem::take(&mut self.cores[core].reschedules) {
                self.preempt(core);
            }
        }
    }

    fn runnable(&self, core: CoreId) -> impl Iterator<Item = TaskId> {
        let core = &self.cores[core];
        core.queue.iter().copied().chain(core.current)
    }

    /// The mean of those that are runnable.
    fn vtime_ns(&self, core: CoreId) -> i64 {
        let (mut sum_ns, mut count) = (0, 0);
        for id in self.runnable(core) {
            sum_ns += self.tasks[id].vruntime_ns;
            count += 1;
        }
        match count {
            0 => self.cores[core].idle_vtime_ns,
            count => sum_ns / count,
        }
    }

    /// Who has not had more than its share, or is in the midst of its slice, and of them the one whose slice
    /// ends first; of equals, who came first.
    fn pick(&self, core: CoreId) -> Option<TaskId> {
        let vtime_ns = self.vtime_ns(core);
        let current = self.cores[core].current.filter(|_| !self.cores[core].slice_over);
        self.runnable(core)
            .filter(|id| self.tasks[*id].vruntime_ns <= vtime_ns || current == Some(*id))
            .min_by_key(|id| self.tasks[*id].vdeadline_ns)
            .or_else(|| self.runnable(core).min_by_key(|id| self.tasks[*id].vruntime_ns))
    }

    /// Lets the thread run whose turn it is. The times of the core are up to date.
    fn preempt(&mut self, core: CoreId) {
        // It wakes up: whoever came after the thread that it does so for waits for that, too.
        if self.cores[core].arriving {
            return;
        }
        self.account(core);
        let next = self.pick(core);
        if next == self.cores[core].current {
            return;
        }
        if let Some(current) = self.cores[core].current {
            self.cores[core].queue.push(current);
            self.cores[core].last = Some(current);
            self.tasks[current].run = Run::Queued;
            self.tasks[current].last_ran_ns = self.now_ns;
            self.note(current, Moment::Stop);
        }
        if let Some(next) = next {
            self.put(next, core);
        }
    }

    fn put(&mut self, id: TaskId, core: CoreId) {
        let switch_ns = match self.cores[core].last == Some(id) {
            true => 0,
            false => self.scenario.machine.switch_ns.sample_ns(&mut self.random),
        };
        self.cores[core].queue.retain(|queued| *queued != id);
        self.cores[core].current = Some(id);
        self.cores[core].slice_over = false;
        let from_ns = (self.now_ns + switch_ns).max(self.cores[core].stolen_until_ns);
        self.cores[core].since_ns = from_ns;
        let long_ns = self.scenario.machine.long_idle_ns;
        let task = &mut self.tasks[id];
        task.is_cold |= (self.now_ns - task.last_ran_ns) as f64 >= long_ns;
        task.run = Run::Running;
        task.core = core;
        // As Linux counts it: else threads that wake up for nothing would cost the core and never pay.
        task.vruntime_ns += switch_ns as i64;
        self.go_on_at(id, from_ns);
        self.note(id, Moment::Run);
        self.plan_core(core);
    }

    /// The current thread's work goes on then; what ends by the clock may have less of it left.
    fn go_on_at(&mut self, id: TaskId, from_ns: u64) {
        let task = &mut self.tasks[id];
        if task.stage == Stage::Compute && task.until_ns.is_some() {
            task.go_by_clock(from_ns);
            self.plan_compute(id);
        }
    }

    /// When the current thread's stage is over, if nothing happens until then.
    pub(super) fn plan_core(&mut self, core: CoreId) {
        self.cores[core].plan += 1;
        if let Some(id) = self.cores[core].current {
            let plan = self.cores[core].plan;
            let from_ns = self.cores[core].since_ns.max(self.now_ns);
            self.plan_at(from_ns + self.tasks[id].left_ns, What::StageOver { core, plan });
        }
    }

    /// The current thread has used its core until now.
    pub(super) fn account(&mut self, core: CoreId) {
        let Some(id) = self.cores[core].current else { return };
        let used_ns = self.now_ns.saturating_sub(self.cores[core].since_ns);
        if used_ns == 0 {
            return;
        }
        self.cores[core].since_ns = self.now_ns;
        self.used(id, used_ns);
        let task = &mut self.tasks[id];
        task.vruntime_ns += used_ns as i64;
        if task.vruntime_ns >= task.vdeadline_ns {
            task.vdeadline_ns = task.vruntime_ns + task.slice_ns;
            self.cores[core].slice_over = true;
        }
    }

    /// The next time that the core is taken away.
    pub(super) fn plan_steal(&mut self, core: CoreId) {
        let every_ns = self.scenario.machine.stolen_every_ns;
        let gap_ns = Distribution::Varying(Varying::Exponential(every_ns));
        let at_ns = self.now_ns + gap_ns.sample_ns(&mut self.random).max(1);
        self.plan_at(at_ns, What::Steal { core });
    }

    /// Its thread stands still, and the operating system does not know.
    pub(super) fn steal(&mut self, core: CoreId) {
        self.account(core);
        let stolen_ns = self.scenario.machine.stolen_ns.sample_ns(&mut self.random);
        let until_ns = self.now_ns + stolen_ns;
        let this = &mut self.cores[core];
        this.stolen_until_ns = this.stolen_until_ns.max(until_ns);
        this.since_ns = this.since_ns.max(this.stolen_until_ns);
        let (current, from_ns) = (this.current, this.since_ns);
        if let Some(id) = current {
            self.go_on_at(id, from_ns);
        }
        self.plan_core(core);
        self.plan_steal(core);
    }

    /// Ticks are of interest while somebody waits for the core.
    fn start_ticks(&mut self, core: CoreId) {
        if !self.cores[core].ticks {
            self.cores[core].ticks = true;
            self.plan_tick(core);
        }
    }

    fn plan_tick(&mut self, core: CoreId) {
        let tick_ns = self.scenario.machine.tick_ns as u64;
        let at_ns = (self.now_ns / tick_ns + 1) * tick_ns;
        self.plan_at(at_ns, What::Tick { core });
    }

    pub(super) fn tick(&mut self, core: CoreId) {
        if self.cores[core].queue.is_empty() {
            self.cores[core].ticks = false;
            return;
        }
        // Before the turns change, with which all would be warm again.
        for other in 0..self.cores.len() {
            if self.cores[other].is_idle() {
                self.fill(other);
                // Who finds only warm threads takes one of them after some time.
                let idle = self.cores[other].is_idle();
                self.cores[other].failures = if idle { self.cores[other].failures + 1 } else { 0 };
            }
        }
        self.preempt(core);
        self.plan_tick(core);
    }
}
