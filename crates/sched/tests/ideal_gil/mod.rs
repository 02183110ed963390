//! One GIL on an ideal machine: wakeups and drops on request take no time, so no thread takes the
//! GIL before the thread that was woken. What remains is the policy, which is checked against its
//! own bounds. `Simulation` is the model with costs, cores and an operating system. After each
//! event, this model checks the invariants that hold under every policy.
#![allow(dead_code)] // Each test file is a separate crate and uses only a part of this module.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};

use headway_sched::{
    NEVER, PolicyName, Scheduler, Thread, ThreadId, Threads, WHOLE_HOLD, is_cpu_bound,
};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// A computation with the GIL, followed by a voluntary absence.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pub compute_ns: u64,
    pub away_ns: u64,
}

/// The behaviour of one thread. The bursts repeat until the end of the run.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub starts_ns: u64,
    pub bursts: Vec<Burst>,
    /// The thread's own slice in each burst, cyclically; 0, or an empty list, for the GIL's switch
    /// interval.
    pub slices_ns: Vec<u64>,
}

impl Script {
    /// Returns the longest slice of any burst.
    pub fn longest_slice_ns(&self, interval_ns: u64) -> u64 {
        let slice_ns = |own_ns: &u64| if *own_ns == 0 { interval_ns } else { *own_ns };
        self.slices_ns.iter().map(slice_ns).max().unwrap_or(interval_ns)
    }
}

/// One wait, from the first check of a held GIL until the take.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub thread: ThreadId,
    pub began_ns: u64,
    /// The time of the take, or of the end of the run if the thread still waited then.
    pub ended_ns: u64,
    /// The thread's class under `priority` when it began to wait.
    pub cpu_bound: bool,
}

impl Wait {
    pub fn ns(&self) -> u64 {
        self.ended_ns - self.began_ns
    }
}

/// One hold. `forced` is true if the thread dropped on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub thread: ThreadId,
    pub from_ns: u64,
    pub to_ns: u64,
    pub forced: bool,
}

/// The threads of a scheduler.
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
    Waiting { woken: bool },
    Holding,
    ForcedWait,
}

/// The kinds of events, in the order of events at the same time: a woken waiter precedes a thread
/// that arrives at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    CheckGil,
    BurstOver,
    DropOnRequest,
    Arrive,
}

/// The time, the kind, the serial number of the event, the thread, and the serial number of the
/// thread's state.
type Event = (u64, Kind, u64, ThreadId, u64);

struct Actor {
    script: Script,
    burst: usize,
    compute_left_ns: u64,
    state: State,
    /// The serial number of the state. Events of an earlier state are void.
    state_serial: u64,
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
        // A scheduler learns the switch interval from waiters, and uses CPython's default before.
        let first_to_wait = scripts.len() as ThreadId;
        gil.scheduler.wait(&mut gil.threads, first_to_wait, interval_ns, 0);
        gil.scheduler.leave(&mut gil.threads, first_to_wait);
        for (id, script) in scripts.iter().enumerate() {
            gil.actors.push(Actor {
                script: script.clone(),
                burst: 0,
                compute_left_ns: script.bursts[0].compute_ns,
                state: State::Away,
                state_serial: 0,
                wait: None,
            });
            gil.push(1 + script.starts_ns, Kind::Arrive, id as ThreadId);
        }
        gil
    }

    /// Runs until `until_ns`, and ends the waits that are still in progress.
    pub fn run(mut self, until_ns: u64) -> Self {
        while let Some(&Reverse((at_ns, kind, _, id, state_serial))) = self.events.peek() {
            if at_ns > until_ns {
                break;
            }
            self.events.pop();
            if self.actors[id as usize].state_serial == state_serial {
                self.now_ns = at_ns;
                self.handle(kind, id);
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

    fn push(&mut self, at_ns: u64, kind: Kind, id: ThreadId) {
        self.pushed += 1;
        let state_serial = self.actors[id as usize].state_serial;
        self.events.push(Reverse((at_ns, kind, self.pushed, id, state_serial)));
    }

    fn enter(&mut self, id: ThreadId, state: State) {
        let actor = &mut self.actors[id as usize];
        actor.state = state;
        actor.state_serial += 1;
    }

    fn handle(&mut self, kind: Kind, id: ThreadId) {
        match kind {
            Kind::Arrive => self.arrive(id),
            Kind::CheckGil => self.check_gil(id),
            Kind::BurstOver => self.drop(id),
            Kind::DropOnRequest => {
                assert!(self.requested);
                self.drop(id);
            }
        }
    }

    /// Models `take_gil`.
    fn arrive(&mut self, id: ThreadId) {
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

    /// Handles a waiter that was woken, or whose time to request a drop has come.
    fn check_gil(&mut self, id: ThreadId) {
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
            // The waiter leaves, requests a drop and returns with its position.
            self.scheduler.leave(&mut self.threads, id);
            self.requested = true;
            self.push(self.now_ns, Kind::DropOnRequest, holder);
            self.scheduler.wait(&mut self.threads, id, self.interval_ns, self.now_ns);
            ask_ns = NEVER;
        }
        self.threads[id].looks_at_ns = ask_ns;
        self.enter(id, State::Waiting { woken: false });
        if ask_ns != NEVER {
            self.push(ask_ns, Kind::CheckGil, id);
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
        self.push(self.now_ns + self.actors[id as usize].compute_left_ns, Kind::BurstOver, id);
        self.end_forced_waits();
        if let Some(next) = self.scheduler.next(&self.threads, self.now_ns) {
            let ask_ns = self.scheduler.ask_ns(&self.threads, next, id, self.now_ns);
            if ask_ns < self.threads[next].looks_at_ns {
                self.threads[next].looks_at_ns = ask_ns;
                self.wake(next);
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
                self.continue_script(id);
            }
        }
    }

    /// Models `drop_gil`.
    fn drop(&mut self, id: ThreadId) {
        let forced = self.requested;
        let from_ns = self.threads[id].taken_ns;
        let actor = &mut self.actors[id as usize];
        actor.compute_left_ns = actor.compute_left_ns.saturating_sub(self.now_ns - from_ns);
        self.holds.push(Hold { thread: id, from_ns, to_ns: self.now_ns, forced });
        self.scheduler.drop(&mut self.threads, id, forced, WHOLE_HOLD, self.now_ns);
        self.holder = None;
        let woken = self.scheduler.next(&self.threads, self.now_ns);
        if let Some(next) = woken {
            self.wake(next);
        }
        if forced && woken.is_some() {
            self.enter(id, State::ForcedWait);
        } else {
            self.continue_script(id);
        }
    }

    /// Lets the thread be away if its burst is over, or return for the rest of the burst.
    fn continue_script(&mut self, id: ThreadId) {
        let actor = &mut self.actors[id as usize];
        let mut away_ns = 0;
        if actor.compute_left_ns == 0 {
            away_ns = actor.script.bursts[actor.burst].away_ns;
            actor.burst = (actor.burst + 1) % actor.script.bursts.len();
            actor.compute_left_ns = actor.script.bursts[actor.burst].compute_ns;
        }
        self.enter(id, State::Away);
        self.push(self.now_ns + away_ns, Kind::Arrive, id);
    }

    fn wake(&mut self, id: ThreadId) {
        let State::Waiting { woken } = self.actors[id as usize].state else {
            panic!("{id} was woken and does not wait");
        };
        if !woken {
            self.enter(id, State::Waiting { woken: true });
            self.push(self.now_ns, Kind::CheckGil, id);
        }
    }

    /// Checks the invariants between two events.
    fn check(&self) {
        let state = |id: usize| self.actors[id].state;
        let holders: Vec<usize> =
            (0..self.actors.len()).filter(|&id| state(id) == State::Holding).collect();
        assert_eq!(holders.first().map(|&id| id as ThreadId), self.holder);
        assert!(holders.len() <= 1, "two threads hold");
        let mut waiters = 0;
        let mut woken = false;
        let mut looks = false;
        for (id, actor) in self.actors.iter().enumerate() {
            let queued = self.threads.0[id].is_queued();
            let waits = matches!(actor.state, State::Waiting { .. });
            assert_eq!(queued, waits, "thread {id} is {:?}", actor.state);
            if let State::Waiting { woken: is_woken } = actor.state {
                waiters += 1;
                woken |= is_woken;
                looks |= self.threads.0[id].looks_at_ns != NEVER;
            }
        }
        let next = self.scheduler.next(&self.threads, self.now_ns);
        assert_eq!(next.is_some(), waiters > 0, "the queues hold exactly the waiters");
        if let Some(next) = next {
            assert!(matches!(state(next as usize), State::Waiting { .. }), "{next} does not wait");
            let asked = self.holder.is_some() && (self.requested || looks);
            assert!(woken || asked, "{waiters} threads wait, and no thread will wake them");
        }
    }

    /// Empties the queues, and checks that each waiter is in one queue once.
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
