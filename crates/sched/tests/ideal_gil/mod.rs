//! One GIL on a machine where nothing costs anything: wake-ups and answers take no time, so that nobody takes it
//! before who was called, and what is left is the policy, held against its own bounds. With costs, cores and an
//! operating system it is `Simulation`. Each event is followed by a check of what must hold whatever the policy.
#![allow(dead_code)] // Each test file is a crate of its own and uses a part.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};

use headway_sched::{NEVER, PolicyName, Scheduler, Thread, ThreadId, Threads, is_cpu_bound};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// Compute with the GIL for so long, then be without it, of one's own accord, for so long.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pub compute_ns: u64,
    pub away_ns: u64,
}

/// What one thread does, from when on. The bursts are repeated until the end.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub starts_ns: u64,
    pub bursts: Vec<Burst>,
    /// Its own slice, in each of its bursts in turn; 0, or nothing, for the GIL's switch interval.
    pub slices_ns: Vec<u64>,
}

impl Script {
    /// The longest slice that it ever has.
    pub fn longest_slice_ns(&self, interval_ns: u64) -> u64 {
        let slice_ns = |own_ns: &u64| if *own_ns == 0 { interval_ns } else { *own_ns };
        self.slices_ns.iter().map(slice_ns).max().unwrap_or(interval_ns)
    }
}

/// From the first look at a held GIL until the take.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub thread: ThreadId,
    pub began_ns: u64,
    /// Or the end of the run, if it went on then.
    pub ended_ns: u64,
    /// How `priority` saw the thread when it began to wait.
    pub cpu_bound: bool,
}

impl Wait {
    pub fn ns(&self) -> u64 {
        self.ended_ns - self.began_ns
    }
}

/// One hold: who, from when to when, and whether it was asked to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub thread: ThreadId,
    pub from_ns: u64,
    pub to_ns: u64,
    pub forced: bool,
}

/// A scheduler's threads, in a vector.
pub struct Table(pub Vec<Thread>);

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Waiting { called: bool },
    Holding,
    ForcedWait,
}

/// In this order when at the same time: so a called waiter is there before who comes back just then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Look,
    BurstOver,
    Answer,
    Back,
}

/// When, what, which one of those that were pushed, to whom, and in which of its states.
type Event = (u64, Kind, u64, ThreadId, u64);

struct Actor {
    script: Script,
    burst: usize,
    compute_left_ns: u64,
    state: State,
    /// Events of an earlier state are void.
    state_number: u64,
    wait: Option<Wait>,
}

pub struct IdealGil {
    interval_ns: u64,
    scheduler: Scheduler,
    threads: Table,
    actors: Vec<Actor>,
    events: BinaryHeap<Reverse<Event>>,
    pushed: u64,
    now_ns: u64,
    holder: Option<ThreadId>,
    requested: bool,
    pub waits: Vec<Wait>,
    pub holds: Vec<Hold>,
}

impl IdealGil {
    pub fn new(policy: PolicyName, interval_ns: u64, scripts: &[Script]) -> Self {
        let mut gil = Self {
            interval_ns,
            scheduler: Scheduler::new(policy, 1),
            threads: Table(vec![Thread::new(); scripts.len() + 1]),
            actors: Vec::new(),
            events: BinaryHeap::new(),
            pushed: 0,
            now_ns: 1,
            holder: None,
            requested: false,
            waits: Vec::new(),
            holds: Vec::new(),
        };
        // A scheduler learns the switch interval from waiters; until then it goes by CPython's default.
        let first_to_wait = scripts.len() as ThreadId;
        gil.scheduler.wait(&mut gil.threads, first_to_wait, interval_ns, 0);
        gil.scheduler.leave(&mut gil.threads, first_to_wait);
        for (id, script) in scripts.iter().enumerate() {
            gil.actors.push(Actor {
                script: script.clone(),
                burst: 0,
                compute_left_ns: script.bursts[0].compute_ns,
                state: State::Away,
                state_number: 0,
                wait: None,
            });
            gil.at(1 + script.starts_ns, Kind::Back, id as ThreadId);
        }
        gil
    }

    /// Runs until then, and ends the waits that go on.
    pub fn run(mut self, until_ns: u64) -> Self {
        while let Some(&Reverse((at_ns, kind, _, id, state_number))) = self.events.peek() {
            if at_ns > until_ns {
                break;
            }
            self.events.pop();
            if self.actors[id as usize].state_number == state_number {
                self.now_ns = at_ns;
                self.happen(kind, id);
                self.check();
            }
        }
        self.now_ns = until_ns;
        let unfinished: Vec<Wait> = self.actors.iter().filter_map(|actor| actor.wait).collect();
        self.waits.extend(unfinished.iter().map(|wait| Wait { ended_ns: until_ns, ..*wait }));
        self.drain();
        self
    }

    pub fn longest_wait_ns(&self, of: impl Fn(&Wait) -> bool) -> u64 {
        self.waits.iter().filter(|wait| of(wait)).map(Wait::ns).max().unwrap_or(0)
    }

    pub fn held_ns(&self, thread: ThreadId) -> u64 {
        let mine = self.holds.iter().filter(|hold| hold.thread == thread);
        mine.map(|hold| hold.to_ns - hold.from_ns).sum()
    }

    fn at(&mut self, at_ns: u64, kind: Kind, id: ThreadId) {
        self.pushed += 1;
        let state_number = self.actors[id as usize].state_number;
        self.events.push(Reverse((at_ns, kind, self.pushed, id, state_number)));
    }

    fn enter(&mut self, id: ThreadId, state: State) {
        let actor = &mut self.actors[id as usize];
        actor.state = state;
        actor.state_number += 1;
    }

    fn happen(&mut self, kind: Kind, id: ThreadId) {
        match kind {
            Kind::Back => self.come(id),
            Kind::Look => self.look(id),
            Kind::BurstOver => self.drop(id),
            Kind::Answer => {
                assert!(self.requested);
                self.drop(id);
            }
        }
    }

    /// `take_gil`.
    fn come(&mut self, id: ThreadId) {
        if self.holder.is_none() {
            return self.take(id);
        }
        self.set_slice(id);
        self.scheduler.wait(&mut self.threads, id, self.interval_ns, self.now_ns);
        let cpu_bound = is_cpu_bound(&self.threads, id);
        let (began_ns, ended_ns) = (self.now_ns, 0);
        self.actors[id as usize].wait.get_or_insert(Wait {
            thread: id,
            began_ns,
            ended_ns,
            cpu_bound,
        });
        self.park_or_ask(id);
    }

    /// A waiter was called, or the time has come at which it asks.
    fn look(&mut self, id: ThreadId) {
        if self.holder.is_none() {
            self.scheduler.leave(&mut self.threads, id);
            return self.take(id);
        }
        self.park_or_ask(id);
    }

    fn park_or_ask(&mut self, id: ThreadId) {
        let Some(holder) = self.holder else { unreachable!() };
        let mut ask_ns = match self.requested {
            true => NEVER,
            false => self.scheduler.ask_ns(&self.threads, id, holder, self.now_ns),
        };
        if ask_ns <= self.now_ns {
            // It leaves, asks and comes back with its place.
            self.scheduler.leave(&mut self.threads, id);
            self.requested = true;
            self.at(self.now_ns, Kind::Answer, holder);
            self.scheduler.wait(&mut self.threads, id, self.interval_ns, self.now_ns);
            ask_ns = NEVER;
        }
        self.threads[id].looks_at_ns = ask_ns;
        self.enter(id, State::Waiting { called: false });
        if ask_ns != NEVER {
            self.at(ask_ns, Kind::Look, id);
        }
    }

    fn take(&mut self, id: ThreadId) {
        assert!(self.holder.is_none(), "two threads hold");
        self.set_slice(id);
        self.scheduler.take(&mut self.threads, id, self.now_ns);
        self.holder = Some(id);
        self.requested = false;
        self.enter(id, State::Holding);
        if let Some(wait) = self.actors[id as usize].wait.take() {
            self.waits.push(Wait { ended_ns: self.now_ns, ..wait });
        }
        self.at(self.now_ns + self.actors[id as usize].compute_left_ns, Kind::BurstOver, id);
        self.end_forced_waits();
        if let Some(next) = self.scheduler.next(&self.threads, self.now_ns) {
            let ask_ns = self.scheduler.ask_ns(&self.threads, next, id, self.now_ns);
            if ask_ns < self.threads[next].looks_at_ns {
                self.threads[next].looks_at_ns = ask_ns;
                self.call(next);
            }
        }
    }

    fn set_slice(&mut self, id: ThreadId) {
        let Actor { script, burst, .. } = &self.actors[id as usize];
        let slices_ns = &script.slices_ns;
        if !slices_ns.is_empty() {
            self.threads[id].set_slice(slices_ns[burst % slices_ns.len()]);
        }
    }

    fn end_forced_waits(&mut self) {
        for id in 0..self.actors.len() as ThreadId {
            if self.actors[id as usize].state == State::ForcedWait {
                self.threads[id].forced_wait_ended(self.now_ns);
                self.go_on(id);
            }
        }
    }

    /// `drop_gil`.
    fn drop(&mut self, id: ThreadId) {
        let forced = self.requested;
        let from_ns = self.threads[id].taken_ns;
        let actor = &mut self.actors[id as usize];
        actor.compute_left_ns = actor.compute_left_ns.saturating_sub(self.now_ns - from_ns);
        self.holds.push(Hold { thread: id, from_ns, to_ns: self.now_ns, forced });
        self.scheduler.drop(&mut self.threads, id, forced, self.now_ns);
        self.holder = None;
        let called = self.scheduler.next(&self.threads, self.now_ns);
        if let Some(next) = called {
            self.call(next);
        }
        if forced && called.is_some() {
            self.enter(id, State::ForcedWait);
        } else {
            self.go_on(id);
        }
    }

    /// Away, if the burst is over, or back for its rest.
    fn go_on(&mut self, id: ThreadId) {
        let actor = &mut self.actors[id as usize];
        let mut away_ns = 0;
        if actor.compute_left_ns == 0 {
            away_ns = actor.script.bursts[actor.burst].away_ns;
            actor.burst = (actor.burst + 1) % actor.script.bursts.len();
            actor.compute_left_ns = actor.script.bursts[actor.burst].compute_ns;
        }
        self.enter(id, State::Away);
        self.at(self.now_ns + away_ns, Kind::Back, id);
    }

    fn call(&mut self, id: ThreadId) {
        let State::Waiting { called } = self.actors[id as usize].state else {
            panic!("{id} was called and does not wait");
        };
        if !called {
            self.enter(id, State::Waiting { called: true });
            self.at(self.now_ns, Kind::Look, id);
        }
    }

    /// What holds between any two events.
    fn check(&self) {
        let state = |id: usize| self.actors[id].state;
        let holders: Vec<usize> =
            (0..self.actors.len()).filter(|&id| state(id) == State::Holding).collect();
        assert_eq!(holders.first().map(|&id| id as ThreadId), self.holder);
        assert!(holders.len() <= 1, "two threads hold");
        let mut waiters = 0;
        let mut called = false;
        let mut looks = false;
        for (id, actor) in self.actors.iter().enumerate() {
            let queued = self.threads.0[id].is_queued();
            let waits = matches!(actor.state, State::Waiting { .. });
            assert_eq!(queued, waits, "thread {id} is {:?}", actor.state);
            if let State::Waiting { called: is_called } = actor.state {
                waiters += 1;
                called |= is_called;
                looks |= self.threads.0[id].looks_at_ns != NEVER;
            }
        }
        let next = self.scheduler.next(&self.threads, self.now_ns);
        assert_eq!(next.is_some(), waiters > 0, "the policy's queues hold the waiters, no others");
        if let Some(next) = next {
            assert!(matches!(state(next as usize), State::Waiting { .. }), "{next} does not wait");
            let asked = self.holder.is_some() && (self.requested || looks);
            assert!(called || asked, "{waiters} wait, and nobody will wake them");
        }
    }

    /// The queues give back each waiter once.
    fn drain(&mut self) {
        let waiters =
            self.actors.iter().filter(|actor| matches!(actor.state, State::Waiting { .. })).count();
        for _ in 0..waiters {
            let next =
                self.scheduler.next(&self.threads, self.now_ns).expect("a waiter is in a queue");
            self.scheduler.leave(&mut self.threads, next);
            assert!(!self.threads[next].is_queued(), "{next} is in a second queue");
        }
        assert_eq!(self.scheduler.next(&self.threads, self.now_ns), None);
    }
}
