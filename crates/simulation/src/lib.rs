//! Threads and their GILs in virtual time: discrete events, deterministic by seed.
//!
//! Threads follow scripts on the cores of a simulated machine; its operating system is in `cores`,
//! CPython's protocol in `holding` and, with the policies, in `waiting`. What a run tells is in `Outcome`.
//! One thread runs it; it reads no clock.

#![forbid(unsafe_code)]

mod beazley;
mod books;
mod cores;
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

pub use books::{GilBook, Samples, ThreadBook};
pub use distribution::{Distribution, Varying};
pub use policies::{PolicyName, SimulatedPolicy};
pub use scenario::{GilSetting, Machine, Scenario, Step, ThreadSetting};
pub use timeline::Moment;

use books::Books;
use cores::Core;
use events::{Events, What};
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
    books: Books,
    timeline: Timeline,
    /// Threads whose script is run once and is not over.
    unfinished: usize,
}

/// What came of it; see `Outcome` of `python/headway/simulate/scenario.py`.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub events: u64,
    pub ended_ns: u64,
    pub threads: Vec<ThreadBook>,
    pub gils: Vec<GilBook>,
    pub timeline: Vec<(u64, usize, Moment)>,
    pub timeline_lost: u64,
}

impl Simulation {
    /// Or the place of the scenario that cannot be, and why.
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
            books: Books::new(begin_ns, end_ns, names, gils.len()),
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
            simulation.plan_at(at_ns, What::Timer { task, timer: 0 });
        }
        for core in 0..cores {
            simulation.plan_steal(core);
        }
        Ok(simulation)
    }

    /// All of it, see `go_on`.
    pub fn run(mut self) -> Outcome {
        while !self.go_on(u64::MAX) {}
        self.outcome()
    }

    /// Until all scripts that are run once are over, or the end; where there are none, until the end and then
    /// on until the requests are answered that are under way, for as long as the window was at most. It
    /// stops after so many events. Whether it is over.
    pub fn go_on(&mut self, events: u64) -> bool {
        let stops_at = self.happened.saturating_add(events);
        let waits_for_scripts = self.scenario.threads.iter().any(|thread| thread.once);
        if self.ended_ns.is_none() {
            let is_over = |this: &Self| waits_for_scripts && this.unfinished == 0;
            if !self.run_until(self.end_ns, stops_at, is_over) {
                return false;
            }
            self.ended_ns = Some(self.now_ns);
        }
        let late_ns = self.end_ns + self.books.inside_ns(0, self.end_ns);
        waits_for_scripts || self.run_until(late_ns, stops_at, |this| !this.is_asked())
    }

    /// When it is over.
    pub fn outcome(mut self) -> Outcome {
        let ended_ns = self.ended_ns.unwrap_or(self.now_ns);
        self.close_books(ended_ns);
        let (timeline, timeline_lost) = self.timeline.close();
        Outcome {
            events: self.happened,
            ended_ns,
            threads: self.books.threads,
            gils: self.books.gils,
            timeline,
            timeline_lost,
        }
    }

    /// Whether it came so far, before there were so many events.
    fn run_until(&mut self, until_ns: u64, stops_at: u64, is_over: impl Fn(&Self) -> bool) -> bool {
        while !is_over(self) {
            if self.happened >= stops_at {
                return false;
            }
            let Some((at_ns, what)) = self.events.next(until_ns) else {
                self.now_ns = until_ns;
                return true;
            };
            debug_assert!(at_ns >= self.now_ns, "time runs back");
            self.now_ns = at_ns;
            self.happened += 1;
            self.happen(what);
            self.reschedule();
        }
        true
    }

    fn happen(&mut self, what: What) {
        match what {
            What::StageOver { core, plan } => {
                if self.cores[core].plan == plan
                    && let Some(current) = self.cores[core].current
                {
                    self.account(core);
                    self.advance(current);
                }
            }
            What::Timer { task, timer } => {
                if self.tasks[task].timer == timer {
                    self.timers_over(self.tasks[task].core);
                }
            }
            What::Arrive { task, core } => self.arrive(task, core),
            What::Steal { core } => self.steal(core),
            What::Tick { core } => self.tick(core),
        }
    }

    /// A timer's interrupt ends all timed waits of that core that are due, in the order in which they are.
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

    /// The blocked thread is woken then, as late as timers are.
    fn start_timer(&mut self, task: TaskId, until_ns: u64) {
        let slack_ns = self.scenario.machine.timer_slack_ns as u64;
        self.tasks[task].timer += 1;
        self.tasks[task].timer_due_ns = until_ns;
        let timer = self.tasks[task].timer;
        self.plan_at(until_ns.saturating_add(slack_ns), What::Timer { task, timer });
    }

    fn plan_at(&mut self, at_ns: u64, what: What) {
        self.events.plan(at_ns, what);
    }

    /// The thread has been on its core from then until now.
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
        self.books.used(id, self.now_ns - used_ns, self.now_ns, computing);
    }

    fn note(&mut self, id: TaskId, moment: Moment) {
        if self.now_ns <= self.end_ns {
            self.timeline.note(self.now_ns, id, moment);
        }
    }

    /// Whether a request that began within the window is under way.
    fn is_asked(&self) -> bool {
        self.tasks.iter().any(|task| task.began_ns.is_some_and(|began_ns| began_ns < self.end_ns))
    }

    /// What goes on at the end is counted until then.
    fn close_books(&mut self, ended_ns: u64) {
        for core in 0..self.cores.len() {
            self.account(core);
        }
        for gil in 0..self.gils.len() {
            if let Some(holder) = self.gils[gil].holder {
                let held_ns = self.books.inside_ns(self.tasks[holder].taken_ns, ended_ns);
                self.books.threads[holder].held_ns += held_ns;
                self.books.gils[gil].held_ns += held_ns;
            }
            let Gil { holder, waiters, .. } = self.gils[gil];
            self.books.ends(gil, holder.is_some(), waiters, ended_ns);
            debug_assert!(self.gils[gil].queues_are_whole(self.now_ns));
        }
    }
}
