//! Threads and their GILs in virtual time: a discrete-event simulation, deterministic by seed.
//!
//! Threads follow scripts on the cores of a simulated machine. Its operating system is in `cores`,
//! CPython's protocol in `holding` and, with the policies, in `waiting`. The results of a run are
//! in `Outcome`. A run uses one thread and reads no clock.

#![forbid(unsafe_code)]

mod beazley;
mod cores;
mod counters;
mod distribution;
mod events;
mod gil;
mod holding;
mod policies;
mod requests;
mod scenario;
mod script;
mod task;
mod ticks;
mod timeline;
mod waiting;

use fastrand::Rng;
use serde::Serialize;

pub use counters::{GilCounters, Samples, ThreadCounters};
pub use distribution::{Distribution, Varying};
pub use policies::{PolicyName, SimulatedPolicy};
pub use scenario::{GilSetting, Machine, Scenario, Step, ThreadSetting};
pub use timeline::Moment;

use cores::Core;
use counters::Counters;
use events::{EventKind, Events};
use gil::Gil;
use script::Channel;
use task::{CoreId, Stage, Task, TaskId};
use timeline::Timeline;

#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    random: Rng,
    now_ns: u64,
    end_ns: u64,
    ended_ns: Option<u64>,
    events: Events,
    happened: u64,
    cores: Vec<Core>,
    tasks: Vec<Task>,
    gils: Vec<Gil>,
    channels: Vec<Channel>,
    counters: Counters,
    timeline: Timeline,
    /// The number of threads that run their script once and have not finished.
    unfinished: usize,
}

/// The results of a run; see `Outcome` of `lab/headway_lab/simulated/scenario.py`.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub events: u64,
    pub ended_ns: u64,
    pub threads: Vec<ThreadCounters>,
    pub gils: Vec<GilCounters>,
    pub timeline: Vec<(u64, usize, Moment)>,
    pub timeline_lost: u64,
}

impl Simulation {
    /// Creates a simulation. The error names the first invalid part of the scenario and the reason.
    pub fn new(scenario: Scenario) -> Result<Self, String> {
        scenario.check()?;
        let (begin_ns, end_ns) = (scenario.begin_ns as u64, scenario.end_ns as u64);
        let cores = scenario.machine.cores;
        let slice_ns = scenario.machine.slice_ns as i64;
        let names = scenario.threads.iter().map(|thread| thread.name.clone()).collect();
        let steps = scenario.threads.iter().flat_map(|thread| &thread.script);
        let channels = steps.filter_map(Step::channel).max().map_or(0, |last| last + 1);
        let tasks: Vec<Task> = scenario
            .threads
            .iter()
            .enumerate()
            .map(|(index, setting)| {
                let core = setting.cores.first().copied().unwrap_or(index % cores);
                Task::new(setting.clone(), slice_ns, core)
            })
            .collect();
        let gils: Vec<Gil> =
            scenario.gils.iter().map(|setting| Gil::new(setting, tasks.len())).collect();
        let mut simulation = Self {
            random: Rng::with_seed(scenario.seed),
            now_ns: 0,
            end_ns,
            ended_ns: None,
            events: Events::default(),
            happened: 0,
            cores: (0..cores).map(|_| Core::default()).collect(),
            counters: Counters::new(begin_ns, end_ns, names, gils.len()),
            timeline: Timeline::new(scenario.timeline_events, begin_ns),
            unfinished: scenario.threads.iter().filter(|thread| thread.once).count(),
            tasks,
            gils,
            channels: (0..channels).map(|_| Channel::default()).collect(),
            scenario,
        };
        for task in 0..simulation.tasks.len() {
            let at_ns = simulation.tasks[task].setting.starts_ns as u64;
            simulation.tasks[task].timer_due_ns = at_ns;
            simulation.plan_at(at_ns, EventKind::Timer { task, timer: 0 });
        }
        for core in 0..cores {
            simulation.plan_steal(core);
        }
        Ok(simulation)
    }

    /// Runs the whole simulation, as `run_events` does in parts.
    pub fn run(mut self) -> Outcome {
        while !self.run_events(u64::MAX) {}
        self.outcome()
    }

    /// Runs until all scripts that are run once have finished, or until the end. Without such
    /// scripts, it runs until the end, and then until the requests in progress have finished, for
    /// at most the length of the window. Returns false if it stopped before, after `events` events,
    /// and true if the simulation is over.
    pub fn run_events(&mut self, events: u64) -> bool {
        let stops_at = self.happened.saturating_add(events);
        let waits_for_scripts = self.scenario.threads.iter().any(|thread| thread.once);
        if self.ended_ns.is_none() {
            let is_over = |this: &Self| waits_for_scripts && this.unfinished == 0;
            if !self.run_until(self.end_ns, stops_at, is_over) {
                return false;
            }
            self.ended_ns = Some(self.now_ns);
        }
        let late_ns = self.end_ns + self.counters.inside_ns(0, self.end_ns);
        waits_for_scripts
            || self.run_until(late_ns, stops_at, |this| !this.has_request_in_progress())
    }

    /// Returns the results of a simulation that is over.
    pub fn outcome(mut self) -> Outcome {
        let ended_ns = self.ended_ns.unwrap_or(self.now_ns);
        self.close_counters(ended_ns);
        let (timeline, timeline_lost) = self.timeline.close();
        Outcome {
            events: self.happened,
            ended_ns,
            threads: self.counters.threads,
            gils: self.counters.gils,
            timeline,
            timeline_lost,
        }
    }

    /// Runs until `is_over` or `until_ns`. Returns false if it stopped before, after `stops_at`
    /// events in all.
    fn run_until(&mut self, until_ns: u64, stops_at: u64, is_over: impl Fn(&Self) -> bool) -> bool {
        while !is_over(self) {
            if self.happened >= stops_at {
                return false;
            }
            let Some((at_ns, kind)) = self.events.next(until_ns) else {
                self.now_ns = until_ns;
                return true;
            };
            debug_assert!(at_ns >= self.now_ns, "time runs back");
            self.now_ns = at_ns;
            self.happened += 1;
            self.handle(kind);
            self.reschedule();
        }
        true
    }

    fn handle(&mut self, kind: EventKind) {
        match kind {
            EventKind::StageOver { core, plan } => {
                if self.cores[core].plan == plan {
                    if let Some(current) = self.cores[core].current {
                        self.account(core);
                        self.advance(current);
                    }
                }
            }
            EventKind::Timer { task, timer } => {
                if self.tasks[task].timer == timer {
                    self.timers_over(self.tasks[task].core);
                }
            }
            EventKind::Arrive { task, core } => self.arrive(task, core),
            EventKind::Steal { core } => self.steal(core),
            EventKind::Tick { core } => self.tick(core),
        }
    }

    /// Handles a timer's interrupt: ends all timed waits of the core that are due, in order of
    /// their times.
    fn timers_over(&mut self, core: CoreId) {
        let is_due = |task: &Task| task.core == core && task.timer_due_ns <= self.now_ns;
        let mut due: Vec<TaskId> =
            (0..self.tasks.len()).filter(|id| is_due(&self.tasks[*id])).collect();
        due.sort_by_key(|id| self.tasks[*id].timer_due_ns);
        for id in due {
            self.stop_waiting(id);
            self.wake(id, Some(core), false);
        }
    }

    /// Wakes the blocked thread at `until_ns`, delayed by the timer slack.
    fn start_timer(&mut self, task: TaskId, until_ns: u64) {
        let slack_ns = self.scenario.machine.timer_slack_ns as u64;
        self.tasks[task].timer += 1;
        self.tasks[task].timer_due_ns = until_ns;
        let timer = self.tasks[task].timer;
        self.plan_at(until_ns.saturating_add(slack_ns), EventKind::Timer { task, timer });
    }

    fn plan_at(&mut self, at_ns: u64, kind: EventKind) {
        self.events.plan(at_ns, kind);
    }

    /// Accounts for `used_ns` on the thread's core until now.
    fn used(&mut self, id: TaskId, used_ns: u64) {
        let task = &mut self.tasks[id];
        let computing = matches!(task.stage, Stage::Compute | Stage::Call);
        task.left_ns = task.left_ns.saturating_sub(used_ns);
        if task.stage == Stage::Compute {
            task.compute_left_ns = task.compute_left_ns.saturating_sub(used_ns);
            if let Some(gil) = task.setting.gil {
                self.gils[gil].ran_python(used_ns);
            }
        }
        self.counters.used(id, self.now_ns - used_ns, self.now_ns, computing);
    }

    fn note(&mut self, id: TaskId, moment: Moment) {
        if self.now_ns <= self.end_ns {
            self.timeline.note(self.now_ns, id, moment);
        }
    }

    /// Returns whether a request that began within the window is in progress.
    fn has_request_in_progress(&self) -> bool {
        self.tasks.iter().any(|task| task.began_ns.is_some_and(|began_ns| began_ns < self.end_ns))
    }

    /// Counts holds, waits and processor time that are in progress at the end.
    fn close_counters(&mut self, ended_ns: u64) {
        for core in 0..self.cores.len() {
            self.account(core);
        }
        for gil in 0..self.gils.len() {
            if let Some(holder) = self.gils[gil].holder {
                let held_ns = self.counters.inside_ns(self.tasks[holder].taken_ns, ended_ns);
                self.counters.threads[holder].held_ns += held_ns;
                self.counters.gils[gil].held_ns += held_ns;
            }
            let Gil { holder, waiters, .. } = self.gils[gil];
            self.counters.ends(gil, holder.is_some(), waiters, ended_ns);
            debug_assert!(self.gils[gil].queues_are_whole(self.now_ns));
        }
    }
}
