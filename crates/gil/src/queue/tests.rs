//! The queue, the futexes that its threads wait on and the forced-switch wait, explored by a model
//! checker.
//!
//! `Gil` is CPython's `take_gil` and `drop_gil`, step by step, with the hooks of `hook::scheduling`
//! and `events` in their places. `Queue`, `wakeup` and `ForcedSwitch` are the real ones, on futexes
//! that shuttle schedules. Each run has other threads, other scripts and another interleaving.
//!
//! Time passes only while a thread holds the GIL and computes, and only this ends a timed wait. So
//! no time limit can make up for a lost wakeup: neither `RECHECK_NS` nor the limit of the
//! forced-switch wait exists here, and a timed wait never ends while the GIL is free. A thread that
//! waits for a missing wakeup waits forever, which shuttle reports as a deadlock.
//!
//! Bugs that were put in, one at a time, and whether the tests found them (400 to 1,000 runs each):
//!
//! | bug | found |
//! |---|---|
//! | `wakeup::wake` without its wake | yes |
//! | `prepare` after the mutex was released | yes |
//! | `wakeup::wait` stores `ASLEEP` whatever the futex was | yes |
//! | `dropped` wakes no thread | yes |
//! | `took` does not wake the next waiter | yes |
//! | `change` does not wake the waiters that it removes | yes |
//! | `step`: a waiter never requests again after another one has | yes: threads that exit |
//! | `step`: no `leave` before `RequestDrop` | yes |
//! | `note_take` without its wake | yes |
//! | `note_take` reads `sleepers` before it counts the take | yes |
//! | `note_drop` does not end a brief hold | yes |
//! | `step`: no `leave` before `Recheck` | no: `Scheduler::take` leaves too |
//! | `step` without `prepare` | the run did not end: the waiter never sleeps again |
//! | `note_take` wakes one of several | the run did not end within a minute; no failure |
//!
//! Not tried yet: the order of reads in `ForcedSwitch::takes`, `set_in_use` without its take, a
//! sleeper that adds itself late, `Scheduler::take` without `leave`, an uninstall that wakes no
//! thread. The uninstall and the hooks themselves are the model's own copies.
//!
//! `HEADWAY_MODEL_RUNS` sets the number of runs for each scheduler and test.

use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::PctScheduler;
use shuttle::sync::atomic::{
    AtomicBool as SharedBool, AtomicU32 as SharedU32, AtomicUsize as SharedUsize,
};
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;
use shuttle::{Config, MaxSteps, Runner};

use headway_sched::{PolicyName, Thread, ThreadId, Threads, WHOLE_HOLD};

use super::{LATER_RECHECK_NS, Queue, RECHECK_NS, Step, Switch, Waiters};
use crate::queue::forced_switch::ForcedSwitch;
use crate::queue::futex::Futex;
use crate::queue::wakeup;

const INTERVAL_NS: u64 = 5_000_000;
const NEVER: u64 = u64::MAX;

/// A futex of the model.
struct ModelFutex {
    value: SharedU32,
    /// Until when its threads sleep; empty if nobody does.
    sleepers: Mutex<Vec<Sleeper>>,
    changed: Condvar,
    clock: Arc<Clock>,
    /// True if sleep on it has a time limit.
    has_time_limit: bool,
}

struct Sleeper {
    until_ns: u64,
    woken: bool,
    time_is_up: bool,
    serial: u64,
}

impl ModelFutex {
    fn new(clock: &Arc<Clock>, has_time_limit: bool) -> Self {
        Self {
            value: SharedU32::new(0),
            sleepers: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            clock: clock.clone(),
            has_time_limit,
        }
    }
}

impl Futex for ModelFutex {
    fn load(&self) -> u32 {
        self.value.load(SeqCst)
    }

    fn store(&self, value: u32) {
        self.value.store(value, SeqCst);
        thread::yield_now();
    }

    fn swap(&self, value: u32) -> u32 {
        self.value.swap(value, SeqCst)
    }

    fn compare_exchange(&self, from: u32, to: u32) -> bool {
        self.value.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn wait(&self, value: u32, until_ns: u64) -> bool {
        let mut sleepers = self.sleepers.lock().unwrap();
        if self.value.load(SeqCst) != value {
            return true;
        }
        let until_ns = if self.has_time_limit { until_ns } else { NEVER };
        let serial = self.clock.serial.fetch_add(1, SeqCst);
        sleepers.push(Sleeper { until_ns, woken: false, time_is_up: false, serial });
        self.clock.somebody_sleeps();
        loop {
            let mine = sleepers.iter().position(|sleeper| sleeper.serial == serial).unwrap();
            if sleepers[mine].woken || sleepers[mine].time_is_up {
                return sleepers.swap_remove(mine).woken;
            }
            sleepers = self.changed.wait(sleepers).unwrap();
        }
    }

    fn wake(&self, threads: i32) {
        let mut sleepers = self.sleepers.lock().unwrap();
        sleepers.iter_mut().take(threads as usize).for_each(|sleeper| sleeper.woken = true);
        self.changed.notify_all();
    }

    fn spin(&self, _spin_ns: u64, done: impl Fn() -> bool) -> bool {
        (0..2).any(|_| {
            thread::yield_now();
            done()
        })
    }
}

/// The time, which stands still but for the holder's work.
struct Clock {
    now_ns: AtomicU64,
    serial: AtomicU64,
    /// Counts the reasons for a holder that computes to look up.
    reasons: Mutex<u64>,
    looks_up: Condvar,
}

impl Clock {
    fn somebody_sleeps(&self) {
        *self.reasons.lock().unwrap() += 1;
        self.looks_up.notify_all();
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(100, SeqCst)
    }
}

/// The slice of a thread: none, a short one, a long one.
fn own_slice_ns(this_thread: ThreadId) -> u64 {
    [0, INTERVAL_NS / 4, 3 * INTERVAL_NS][this_thread as usize % 3]
}

struct Table {
    threads: Vec<Thread>,
    futexes: Vec<Arc<ModelFutex>>,
}

impl Index<ThreadId> for Table {
    type Output = Thread;
    fn index(&self, id: ThreadId) -> &Thread {
        &self.threads[id as usize]
    }
}

impl IndexMut<ThreadId> for Table {
    fn index_mut(&mut self, id: ThreadId) -> &mut Thread {
        &mut self.threads[id as usize]
    }
}

impl Threads for Table {}

impl Waiters for Table {
    type Futex = ModelFutex;
    fn futex(&self, thread: ThreadId) -> &ModelFutex {
        &self.futexes[thread as usize]
    }
    fn note_core(&mut self, _this_thread: ThreadId) {}
    fn share_a_core(&self, _one: ThreadId, _other: ThreadId) -> bool {
        false
    }
    fn note_cpu_time(&mut self, _this_thread: ThreadId, _now_ns: u64) {}
    fn ran_ns(&mut self, _this_thread: ThreadId, _hold_ns: u64, _now_ns: u64) -> u64 {
        WHOLE_HOLD
    }
}

/// The state that the GIL's mutex guards: first CPython's, then the meter's.
struct Locked {
    locked: bool,
    switch_number: u64,
    /// Threads in CPython's own timed wait: who, until when, and whether it is over.
    own_waits: Vec<(ThreadId, u64, bool)>,

    policy: PolicyName,
    queue: Queue,
    table: Table,
    held: bool,
    last_holder: ThreadId,
    drop_requested: bool,
    requested_last_ns: u64,
    counted_switch_number: u64,
}

struct Gil {
    mutex: Mutex<Locked>,
    cond: Condvar,
    switch_mutex: Mutex<()>,
    switch_cond: Condvar,
    drop_request: SharedBool,
    last_holder: SharedUsize,

    installed: SharedBool,
    /// Held by an event, which an uninstall waits for: `Gil::settle`.
    event: Mutex<()>,
    wanted: Mutex<PolicyName>,
    switch: ForcedSwitch<ModelFutex>,
    futexes: Vec<Arc<ModelFutex>>,
    clock: Arc<Clock>,

    /// Threads that will want the GIL again.
    running: AtomicUsize,
    inside: AtomicBool,
}

type Guard<'a> = MutexGuard<'a, Locked>;

impl Gil {
    fn new(threads: usize, policy: PolicyName) -> Self {
        let clock = Arc::new(Clock {
            now_ns: AtomicU64::new(1_000_000),
            serial: AtomicU64::new(0),
            reasons: Mutex::new(0),
            looks_up: Condvar::new(),
        });
        let futexes: Vec<_> =
            (0..threads).map(|_| Arc::new(ModelFutex::new(&clock, true))).collect();
        let table = Table { threads: vec![Thread::new(); threads], futexes: futexes.clone() };
        Self {
            mutex: Mutex::new(Locked {
                locked: false,
                switch_number: 0,
                own_waits: Vec::new(),
                policy: PolicyName::Interval,
                queue: Queue::new(),
                table,
                held: false,
                last_holder: ThreadId::MAX,
                drop_requested: false,
                requested_last_ns: 0,
                counted_switch_number: 0,
            }),
            cond: Condvar::new(),
            switch_mutex: Mutex::new(()),
            switch_cond: Condvar::new(),
            drop_request: SharedBool::new(false),
            last_holder: SharedUsize::new(usize::MAX),
            installed: SharedBool::new(true),
            event: Mutex::new(()),
            wanted: Mutex::new(policy),
            switch: ForcedSwitch::on(ModelFutex::new(&clock, false)),
            futexes,
            clock,
            running: AtomicUsize::new(threads),
            inside: AtomicBool::new(false),
        }
    }

    // CPython's side.

    /// `take_gil`. Whether the GIL was taken: a thread that `exits` leaves instead of asking, if it
    /// has not got the GIL before, and takes back a request that it made earlier.
    fn take(&self, me: ThreadId, exits: &SharedBool) -> bool {
        let mut locked = self.mutex.lock().unwrap();
        let mut requested = false;
        while locked.locked {
            let switch_number = locked.switch_number;
            let timed_out;
            (locked, timed_out) = self.timed_wait(locked, me);
            if timed_out && locked.locked && locked.switch_number == switch_number {
                if exits.load(SeqCst) {
                    if requested {
                        // CPython does this after it has let go of the mutex; then a holder that
                        // drops just between waits for a switch, with or without us.
                        self.drop_request.store(false, SeqCst);
                    }
                    return false;
                }
                self.drop_request.store(true, SeqCst);
                self.clock.somebody_sleeps();
                requested = true;
            }
        }
        let switch_lock = self.switch_mutex.lock().unwrap();
        locked.locked = true;
        if self.last_holder.swap(me as usize, SeqCst) != me as usize {
            locked.switch_number += 1;
        }
        self.take_event(&mut locked, me);
        self.switch_cond.notify_one();
        drop(switch_lock);
        self.drop_request.store(false, SeqCst);
        assert!(!self.inside.swap(true, SeqCst), "two threads hold");
        true
    }

    /// `drop_gil`.
    fn drop(&self, me: ThreadId) {
        assert!(self.inside.swap(false, SeqCst), "nobody holds");
        let mut locked = self.mutex.lock().unwrap();
        locked.locked = false;
        self.drop_event(&mut locked, me);
        self.cond.notify_one();
        drop(locked);
        if self.drop_request.load(SeqCst) {
            let switch_lock = self.switch_mutex.lock().unwrap();
            if self.last_holder.load(SeqCst) == me as usize {
                self.drop_request.store(false, SeqCst);
                self.forced_wait(switch_lock);
            }
        }
    }

    // The hooks, as in `hook::scheduling` and `events`.

    fn event<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let _event = self.event.lock().unwrap();
        self.installed.load(SeqCst).then(change)
    }

    fn follow_policy(&self, locked: &mut Locked) {
        let wanted = *self.wanted.lock().unwrap();
        if locked.policy != wanted {
            locked.policy = wanted;
            let holder = locked.held.then_some(locked.last_holder);
            locked.queue.change(wanted, &mut locked.table, holder, self.clock.now_ns());
            self.switch.set_in_use(locked.queue.schedules());
        }
    }

    fn timed_wait<'a>(&'a self, mut locked: Guard<'a>, me: ThreadId) -> (Guard<'a>, bool) {
        let began = self.event(|| {
            self.follow_policy(&mut locked);
            let begins = locked.queue.schedules() && locked.held;
            begins.then(|| {
                let locked = &mut *locked;
                locked.queue.begin_wait(
                    &mut locked.table,
                    me,
                    INTERVAL_NS,
                    own_slice_ns(me),
                    self.clock.now_ns(),
                );
                self.switch.end_brief_hold();
                locked.counted_switch_number
            })
        });
        let Some(Some(switch_number)) = began else { return self.own_timed_wait(locked, me) };
        loop {
            match self.event(|| self.step(&mut locked, me, switch_number)) {
                Some((Step::Wait { until_ns, spin }, now_ns)) => {
                    drop(locked);
                    let is_limit = [RECHECK_NS, LATER_RECHECK_NS].contains(&(until_ns - now_ns));
                    let until_ns = if is_limit { NEVER } else { until_ns };
                    wakeup::wait(&*self.futexes[me as usize], spin as u64, until_ns);
                    locked = self.mutex.lock().unwrap();
                }
                Some((Step::RequestDrop { .. }, _)) => return (locked, true),
                Some((Step::Recheck, _)) | None => return (locked, false),
            }
        }
    }

    fn step(&self, locked: &mut Locked, me: ThreadId, switch_number: u64) -> (Step, u64) {
        self.follow_policy(locked);
        let now_ns = self.clock.now_ns();
        let holder = locked.held.then_some(locked.last_holder);
        let requested_ns = locked.drop_requested.then_some(locked.requested_last_ns);
        let step = locked.queue.step(&mut locked.table, me, holder, requested_ns, now_ns);
        if matches!(step, Step::RequestDrop { .. })
            && locked.held
            && locked.counted_switch_number == switch_number
        {
            locked.drop_requested = true;
            locked.requested_last_ns = now_ns;
        }
        (step, now_ns)
    }

    /// `pthread_cond_timedwait` itself, which may end early.
    fn own_timed_wait<'a>(&'a self, mut locked: Guard<'a>, me: ThreadId) -> (Guard<'a>, bool) {
        let until_ns = self.clock.now_ns() + INTERVAL_NS;
        locked.own_waits.push((me, until_ns, false));
        self.clock.somebody_sleeps();
        locked = self.cond.wait(locked).unwrap();
        let mine = locked.own_waits.iter().position(|wait| wait.0 == me).unwrap();
        let timed_out = locked.own_waits.swap_remove(mine).2;
        (locked, timed_out)
    }

    fn take_event(&self, locked: &mut Locked, me: ThreadId) {
        self.event(|| {
            locked.held = true;
            locked.drop_requested = false;
            if locked.last_holder != me {
                locked.last_holder = me;
                locked.counted_switch_number += 1;
            }
            if locked.queue.schedules() {
                let now_ns = self.clock.now_ns();
                let switch = locked.queue.took(&mut locked.table, me, own_slice_ns(me), now_ns);
                self.switch.note_take(switch);
            }
        });
    }

    fn drop_event(&self, locked: &mut Locked, me: ThreadId) {
        self.event(|| {
            locked.held = false;
            if locked.queue.schedules() {
                let (forced, now_ns) = (locked.drop_requested, self.clock.now_ns());
                let woken = locked.queue.dropped(&mut locked.table, me, forced, true, now_ns);
                self.switch.note_drop(woken);
            }
        });
    }

    fn forced_wait(&self, switch_lock: MutexGuard<'_, ()>) {
        let seen = if self.installed.load(SeqCst) { self.switch.takes() } else { None };
        if let Some(seen) = seen {
            drop(switch_lock);
            self.switch.wait(seen, thread_rng().gen_range(0..2));
            self.switch.stand_back();
        } else {
            drop(self.switch_cond.wait(switch_lock).unwrap());
        }
    }

    /// As `install::uninstall`: the counters close, a running event ends, and all waiters are
    /// woken.
    fn uninstall(&self) {
        self.installed.store(false, SeqCst);
        drop(self.event.lock().unwrap());
        for futex in &self.futexes {
            wakeup::wake(&**futex);
        }
        self.switch.set_in_use(false);
    }

    // Threads that use the GIL.

    /// Computes until it is asked to drop, or nobody is left who could ask. The time passes to the
    /// next moment at which a timed wait ends, again and again.
    fn compute_until_asked(&self) {
        let mut seen = 0;
        while !self.drop_request.load(SeqCst) && self.running.load(SeqCst) > 1 {
            let mut reasons = self.clock.reasons.lock().unwrap();
            if *reasons == seen {
                reasons = self.clock.looks_up.wait(reasons).unwrap();
            }
            seen = *reasons;
            drop(reasons);
            while !self.drop_request.load(SeqCst) && self.pass_time() {}
        }
    }

    /// To the next moment at which a timed wait ends. Whether there is one.
    fn pass_time(&self) -> bool {
        let mut locked = self.mutex.lock().unwrap();
        let mut next_ns = NEVER;
        for wait in locked.own_waits.iter().filter(|wait| !wait.2) {
            next_ns = next_ns.min(wait.1);
        }
        for futex in &self.futexes {
            for sleeper in futex.sleepers.lock().unwrap().iter() {
                if !sleeper.time_is_up {
                    next_ns = next_ns.min(sleeper.until_ns);
                }
            }
        }
        if next_ns == NEVER {
            return false;
        }
        self.clock.now_ns.fetch_max(next_ns, SeqCst);
        for wait in &mut locked.own_waits {
            wait.2 |= wait.1 <= next_ns;
        }
        self.cond.notify_all();
        drop(locked);
        for futex in &self.futexes {
            for sleeper in futex.sleepers.lock().unwrap().iter_mut() {
                sleeper.time_is_up |= sleeper.until_ns <= next_ns;
            }
            futex.changed.notify_all();
        }
        true
    }

    fn live(&self, me: ThreadId, exits: &SharedBool, rounds: usize, what: &What) {
        let mut alive = self.take(me, exits);
        for _ in 0..rounds {
            if !alive {
                break;
            }
            match thread_rng().gen_range(0..8) {
                0..3 => self.compute_until_asked(),
                3 if what.policies => {
                    let policy = PolicyName::ALL[thread_rng().gen_range(0..PolicyName::ALL.len())];
                    *self.wanted.lock().unwrap() = policy;
                }
                4 if what.uninstalls && self.installed.load(SeqCst) => self.uninstall(),
                5 if what.exits => exits.store(true, SeqCst),
                _ => {
                    self.clock.now_ns.fetch_add(thread_rng().gen_range(0..2_000_000), SeqCst);
                }
            }
            self.drop(me);
            if thread_rng().gen_bool(0.3) {
                // Away for a while.
                self.clock.now_ns.fetch_add(thread_rng().gen_range(0..30_000_000), SeqCst);
                thread::yield_now();
            }
            alive = self.take(me, exits);
        }
        if alive {
            // Not forced by who waits: it will not come back.
            self.drop(me);
        }
        self.running.fetch_sub(1, SeqCst);
        self.clock.somebody_sleeps();
    }
}

/// Events other than takes and drops.
#[derive(Clone, Copy, Default)]
struct What {
    policies: bool,
    uninstalls: bool,
    exits: bool,
}

fn run(what: What) {
    let threads = thread_rng().gen_range(2..=3);
    let policy = PolicyName::ALL[thread_rng().gen_range(1..PolicyName::ALL.len())];
    let gil = Arc::new(Gil::new(threads, policy));
    // As when a daemon thread finds the interpreter gone: one thread never does.
    let lasting = Arc::new(SharedBool::new(false));
    let exiting = Arc::new(SharedBool::new(false));
    let handles: Vec<_> = (0..threads as ThreadId)
        .map(|me| {
            let gil = gil.clone();
            let rounds = thread_rng().gen_range(1..=4);
            let exits = if me == 0 { lasting.clone() } else { exiting.clone() };
            let what = What { exits: what.exits && me == 0, ..what };
            let other = exiting.clone();
            thread::spawn(move || {
                if what.exits && thread_rng().gen_bool(0.5) {
                    other.store(true, SeqCst);
                }
                gil.live(me, &exits, rounds, &what);
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    let locked = gil.mutex.lock().unwrap();
    assert!(!locked.locked);
    let queued = locked.table.threads.iter().filter(|thread| thread.is_queued()).count();
    // An uninstall removes the waiters as they are; the rows that they get afterwards are new.
    assert!(queued == 0 || !gil.installed.load(SeqCst), "{queued} do not wait and are in a queue");
    assert!(!gil.switch.is_hold_brief(), "the hold ended");
}

fn explore(what: What) {
    let runs = std::env::var("HEADWAY_MODEL_RUNS").ok().and_then(|text| text.parse().ok());
    let runs = runs.unwrap_or(2_000);
    shuttle::check_random(move || run(what), runs);
    // This one may keep a thread from running for good while others pass the time; that is no
    // deadlock.
    let mut config = Config::new();
    config.max_steps = MaxSteps::ContinueAfter(100_000);
    Runner::new(PctScheduler::new(3, runs), config).run(move || run(what));
}

#[test]
fn a_thread_stands_back_only_for_an_io_bound_thread_that_nobody_waits_for() {
    let run = || {
        let gil = Gil::new(3, PolicyName::Priority);
        let mut locked = gil.mutex.lock().unwrap();
        gil.follow_policy(&mut locked);
        let Locked { queue, table, .. } = &mut *locked;
        let ms = |ms: u64| 1_000_000 * ms;
        assert_eq!(queue.took(table, 0, 0, ms(1)), Switch::Brief);
        queue.begin_wait(table, 1, INTERVAL_NS, 0, ms(1));
        assert_eq!(queue.dropped(table, 0, false, true, ms(1)), Some(1));
        assert_eq!(queue.took(table, 2, 0, ms(1)), Switch::Pending, "1 still waits");
        queue.begin_wait(table, 0, INTERVAL_NS, 0, ms(1));
        assert_eq!(queue.dropped(table, 2, false, true, ms(1)), Some(1));
        assert_eq!(queue.took(table, 1, 0, ms(1)), Switch::Made, "0 waits");
        assert_eq!(queue.dropped(table, 1, false, true, ms(1)), Some(0));
        assert_eq!(queue.took(table, 0, 0, ms(1)), Switch::Brief);
        assert_eq!(queue.dropped(table, 0, false, true, ms(9)), None);
        assert_eq!(queue.took(table, 0, 0, ms(9)), Switch::Made, "0 computed for 8 ms");
    };
    shuttle::check_random(run, 1);
}

#[test]
fn nobody_waits_forever() {
    explore(What::default());
}

#[test]
fn nobody_waits_forever_while_policies_change() {
    explore(What { policies: true, ..What::default() });
}

#[test]
fn nobody_waits_forever_when_the_meter_is_removed() {
    explore(What { policies: true, uninstalls: true, ..What::default() });
}

#[test]
fn nobody_waits_forever_when_threads_exit_in_take_gil() {
    explore(What { exits: true, ..What::default() });
}
