//! The operating system's scheduler, which places threads on cores.
//!
//! The model follows Linux in outline. Each core has a run queue. By EEVDF, of the threads that
//! have not had more than their share, the one whose slice ends first runs. A thread that wakes
//! goes to an idle core if there is one, else to the core that it ran on last or to the core of the
//! thread that woke it, and preempts the current thread of that core if its deadline is earlier.
//! The end of a slice is noticed at a tick. Idle cores take over threads that have waited on other
//! cores for a while.

use crate::Simulation;
use crate::distribution::{Distribution, Varying};
use crate::events::EventKind;
use crate::task::{CoreId, Run, Stage, TaskId};
use crate::timeline::Moment;

/// As Linux's `cache_nice_tries`.
const MOST_FAILURES: u32 = 2;

#[derive(Debug, Default)]
pub struct Core {
    pub current: Option<TaskId>,
    /// The time at which the current thread's work continued, or will continue.
    since_ns: u64,
    /// The time until which the core is stolen.
    stolen_until_ns: u64,
    /// The thread that ran here last. Continuing with it costs nothing.
    last: Option<TaskId>,
    queue: Vec<TaskId>,
    /// The number of successive ticks that found this core idle while threads waited on other cores
    /// and could not be taken over.
    failures: u32,
    /// True if a thread was woken for this core and has not arrived yet.
    arriving: bool,
    /// The number of the core's plan. Events of an earlier plan are void.
    pub plan: u64,
    /// True if the current thread has used up a slice since it was put here.
    slice_over: bool,
    /// True if a thread has joined the queue since the last rescheduling.
    reschedules: bool,
    ticks: bool,
    /// The virtual time at which the core became idle.
    idle_vtime_ns: i64,
    /// The time at which the core became idle.
    idle_since_ns: u64,
}

impl Core {
    fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty() && !self.arriving
    }

    /// Returns the number of threads on this core, running, queued and arriving.
    fn load(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some()) + usize::from(self.arriving)
    }
}

impl Simulation {
    /// Makes a blocked thread runnable. `waker` is the core of the thread that wakes it; `sync`
    /// means that the waking thread is about to wait for it. Returns the cost for the waking
    /// thread.
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
            self.plan_at(self.now_ns + wake_ns, EventKind::Arrive { task: id, core });
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

    /// Blocks the current thread, and runs the next.
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

    /// Fills a core without a thread from its queue, or with a thread that waits on another core.
    fn fill(&mut self, core: CoreId) {
        if self.cores[core].queue.is_empty() && !self.cores[core].arriving {
            self.pull(core);
        }
        if let Some(next) = self.pick(core) {
            self.put(next, core);
        }
    }

    /// Takes over a thread that has waited on another core for so long that its memory is no longer
    /// in the caches there.
    fn pull(&mut self, core: CoreId) {
        let waits_for_cold = self.cores[core].failures <= MOST_FAILURES;
        let hot_ns = if waits_for_cold { self.scenario.machine.hot_ns as u64 } else { 0 };
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
        // A thread that had less than its share keeps the difference, adjusted for the change of
        // the queue's virtual time by its arrival. A thread that had more waits on its core until
        // the difference has evened out.
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

    /// Lets the thread with the earliest deadline run on each core where a thread has arrived.
    /// Called after each event.
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

    /// Returns the mean virtual time of the runnable threads.
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

    /// Returns the next thread: of the threads that have not had more than their share, or are
    /// within their slice, the one whose slice ends first; with equal ends, the one that arrived
    /// first.
    fn pick(&self, core: CoreId) -> Option<TaskId> {
        let vtime_ns = self.vtime_ns(core);
        let current = self.cores[core].current.filter(|_| !self.cores[core].slice_over);
        self.runnable(core)
            .filter(|id| self.tasks[*id].vruntime_ns <= vtime_ns || current == Some(*id))
            .min_by_key(|id| self.tasks[*id].vdeadline_ns)
            .or_else(|| self.runnable(core).min_by_key(|id| self.tasks[*id].vruntime_ns))
    }

    /// Lets the picked thread run.
    fn preempt(&mut self, core: CoreId) {
        // The core is waking up. Threads that came after the one that it wakes for wait for it,
        // too.
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
        let away_ns = (self.now_ns - task.last_ran_ns) as f64;
        task.coldness = task.coldness.max((away_ns / long_ns).min(1.0));
        task.run = Run::Running;
        task.core = core;
        // Linux accounts for the time of the switch in this way. Otherwise, threads that wake up
        // for nothing would use the core and never be charged.
        task.vruntime_ns += switch_ns as i64;
        self.resume_at(id, from_ns);
        self.note(id, Moment::Run);
        self.plan_core(core);
    }

    /// Lets the current thread's work continue at `from_ns`. A step that ends at a fixed time may
    /// have less computation left.
    fn resume_at(&mut self, id: TaskId, from_ns: u64) {
        let task = &mut self.tasks[id];
        if task.stage == Stage::Compute && task.until_ns.is_some() {
            task.apply_end_time(from_ns);
            self.plan_compute(id);
        }
    }

    /// Plans the end of the current thread's stage, for the case that no event happens before.
    pub(super) fn plan_core(&mut self, core: CoreId) {
        self.cores[core].plan += 1;
        if let Some(id) = self.cores[core].current {
            let plan = self.cores[core].plan;
            let from_ns = self.cores[core].since_ns.max(self.now_ns);
            self.plan_at(from_ns + self.tasks[id].left_ns, EventKind::StageOver { core, plan });
        }
    }

    /// Accounts for the current thread's use of the core until now.
    pub(super) fn account(&mut self, core: CoreId) {
        let Some(id) = self.cores[core].current else { return };
        let used_ns = self.now_ns.saturating_sub(self.cores[core].since_ns);
        if used_ns == 0 {
            return;
        }
        self.cores[core].since_ns = self.now_ns;
        self.used(id, used_ns);
        let task = &mut self.tasks[id];
        task.ran_ns += used_ns;
        task.vruntime_ns += used_ns as i64;
        if task.vruntime_ns >= task.vdeadline_ns {
            task.vdeadline_ns = task.vruntime_ns + task.slice_ns;
            self.cores[core].slice_over = true;
        }
    }

    /// Plans the next time at which the core is stolen.
    pub(super) fn plan_steal(&mut self, core: CoreId) {
        let every_ns = self.scenario.machine.stolen_every_ns;
        let gap_ns = Distribution::Varying(Varying::Exponential(every_ns));
        let at_ns = self.now_ns + gap_ns.sample_ns(&mut self.random).max(1);
        self.plan_at(at_ns, EventKind::Steal { core });
    }

    /// Stops the current thread for a while; the operating system does not know that the core is
    /// stolen.
    pub(super) fn steal(&mut self, core: CoreId) {
        self.account(core);
        let stolen_ns = self.scenario.machine.stolen_ns.sample_ns(&mut self.random);
        let until_ns = self.now_ns + stolen_ns;
        let this = &mut self.cores[core];
        this.stolen_until_ns = this.stolen_until_ns.max(until_ns);
        this.since_ns = this.since_ns.max(this.stolen_until_ns);
        let (current, from_ns) = (this.current, this.since_ns);
        if let Some(id) = current {
            self.resume_at(id, from_ns);
        }
        self.plan_core(core);
        self.plan_steal(core);
    }

    /// Starts the ticks of a core. They matter only while threads wait for the core.
    fn start_ticks(&mut self, core: CoreId) {
        if !self.cores[core].ticks {
            self.cores[core].ticks = true;
            self.plan_tick(core);
        }
    }

    fn plan_tick(&mut self, core: CoreId) {
        let tick_ns = self.scenario.machine.tick_ns as u64;
        let at_ns = (self.now_ns / tick_ns + 1) * tick_ns;
        self.plan_at(at_ns, EventKind::Tick { core });
    }

    pub(super) fn tick(&mut self, core: CoreId) {
        if self.cores[core].queue.is_empty() {
            self.cores[core].ticks = false;
            return;
        }
        // This precedes the preemption: the threads that it switches would all be warm again.
        for other in 0..self.cores.len() {
            if self.cores[other].is_idle() {
                self.fill(other);
                // A core that finds only warm threads takes one of them after some time.
                let idle = self.cores[other].is_idle();
                self.cores[other].failures = if idle { self.cores[other].failures + 1 } else { 0 };
            }
        }
        self.preempt(core);
        self.plan_tick(core);
    }
}
