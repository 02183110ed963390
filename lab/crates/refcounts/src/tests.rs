//! Explores the counts with a model checker: threads make, drop and pass on references, in a
//! different order and interleaving in each run.
//!
//! A thread that has a reference may use the object. So while a thread has a reference, the object
//! has not died, and once all threads have ended and no reference is left, the object has died
//! once. The tests do not explore memory orderings: shuttle treats every access as SeqCst.
//!
//! Bugs that were inserted, one at a time, and whether the tests found them:
//!
//! | bug | found |
//! |---|---|
//! | `Atomic`: `incref` as a load and a store; `decref` that reads the count later | yes |
//! | `Biased`: an increment of the shared word as a load and a store | yes |
//! | the owner's merge keeps `owner`, or does not free | yes |
//! | the merge of a queued object keeps `owner` or `local`, or does not free | yes |
//! | the merge of a queued object keeps the queue's reference | yes |
//! | the first thread that drops more than is shared also subtracts | yes |
//! | an owner ends without merging; no thread merges for an ended owner | yes |
//! | a thread that queues merges itself while the owner is merging (a former bug) | in 1 of 100s |
//! | `Buffered`: decrements counted at once, or after one other thread has handed over | yes |
//! | a thread's last log is not handed over; ended threads are waited for | yes |
//!
//! `HEADWAY_MODEL_RUNS` sets the number of runs for each scheduler and test.

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex, MutexGuard};
use shuttle::thread;

use crate::{Atomic, Biased, Buffered, Count, Found, Immortal, Kind, Plain};

const THREADS: usize = 3;
const OBJECTS: usize = 2;
const STEPS: usize = 12;

/// References on their way to a thread, as indices of their objects.
type Mailboxes = Vec<Mutex<Vec<usize>>>;

/// A thread and its references: each index of an object occurs in `held` once per reference.
struct Actor<'a, C: Count + 'a> {
    objects: &'a [C],
    thread: C::Thread<'a>,
    held: Vec<usize>,
}

impl<'a, C: Count> Actor<'a, C> {
    /// Runs one step, which begins with a reference that no other thread drops.
    fn step(&mut self, me: usize, mailboxes: &Mailboxes) {
        let mut chance = thread_rng();
        self.held.append(&mut mailboxes[me].lock().unwrap());
        if self.held.is_empty() {
            return;
        }
        let place = chance.gen_range(0..self.held.len());
        let object = self.held[place];
        assert_eq!(self.objects[object].deaths().count(), 0, "dead with a reference left");
        match chance.gen_range(0..4) {
            0 => self.drop_reference(place),
            1 => {
                self.held.swap_remove(place);
                let to = chance.gen_range(0..mailboxes.len());
                mailboxes[to].lock().unwrap().push(object);
            }
            _ => {
                self.objects[object].incref(&mut self.thread);
                self.held.push(object);
            }
        }
    }

    fn drop_reference(&mut self, place: usize) {
        let object = &self.objects[self.held.swap_remove(place)];
        assert_eq!(object.deaths().count(), 0, "dead with a reference left");
        object.decref(&mut self.thread);
    }

    fn drop_all(&mut self) {
        while let Some(place) = self.held.len().checked_sub(1) {
            self.drop_reference(place);
        }
    }
}

/// Runs a scenario once. The first thread has made all objects. Each step holds `gil` if there is
/// one. A thread calls `pause` between two steps.
fn run<C: Count + Send + 'static>(
    make: fn(usize) -> C,
    gil: Option<Mutex<()>>,
    pause: fn(&mut Actor<'_, C>),
) {
    let objects: Vec<C> = (0..OBJECTS).map(|_| make(0)).collect();
    let mailboxes: Mailboxes = (0..THREADS).map(|_| Mutex::new(Vec::new())).collect();
    let take_gil = || -> Option<MutexGuard<()>> { gil.as_ref().map(|gil| gil.lock().unwrap()) };
    // The last member of the team is this thread, which drops the references that no thread
    // fetched.
    let (mut team, merger) = C::team(THREADS + 1);
    let last = team.pop().unwrap();
    thread::scope(|scope| {
        if let Some(merger) = merger {
            scope.spawn(|| merger.run());
        }
        let actors: Vec<_> = team
            .into_iter()
            .enumerate()
            .map(|(me, thread)| {
                let (objects, mailboxes, take_gil) = (&objects[..], &mailboxes, &take_gil);
                let held = if me == 0 { (0..OBJECTS).collect() } else { Vec::new() };
                scope.spawn(move || {
                    let mut actor = Actor { objects, thread, held };
                    for _ in 0..STEPS {
                        let _gil = take_gil();
                        actor.step(me, mailboxes);
                        pause(&mut actor);
                    }
                    let _gil = take_gil();
                    actor.drop_all();
                })
            })
            .collect();
        actors.into_iter().for_each(|actor| actor.join().unwrap());
        let held = mailboxes.iter().flat_map(|each| std::mem::take(&mut *each.lock().unwrap()));
        Actor { objects: &objects, thread: last, held: held.collect() }.drop_all();
    });
    for object in &objects {
        assert_eq!(object.deaths().count(), 1, "deaths");
        assert_eq!(object.references(), 0, "references");
    }
}

fn explore(run: impl Fn() + Send + Sync + 'static) {
    explore_for(400, run);
}

fn explore_for(runs: usize, run: impl Fn() + Send + Sync + 'static) {
    let wanted = std::env::var("HEADWAY_MODEL_RUNS").ok().and_then(|text| text.parse().ok());
    let (runs, run) = (wanted.unwrap_or(runs), std::sync::Arc::new(run));
    let again = std::sync::Arc::clone(&run);
    shuttle::check_random(move || again(), runs);
    shuttle::check_pct(move || run(), runs, 3);
}

/// Runs a test in the model without other threads.
fn alone(run: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(run, 1);
}

fn no_pause<C: Count>(_: &mut Actor<'_, C>) {}

#[test]
fn atomic_counts_free_once_and_never_early() {
    explore(|| run(Atomic::new, None, no_pause));
}

#[test]
fn biased_counts_free_once_and_never_early() {
    explore(|| run(Biased::new, None, |actor| actor.thread.merge_queued()));
}

/// The owner may delay its merges, or may have ended.
#[test]
fn biased_counts_free_once_and_never_early_if_the_owner_merges_only_at_its_end() {
    explore(|| run(Biased::new, None, no_pause));
}

#[test]
fn buffered_counts_free_once_and_never_early() {
    explore(|| run(Buffered::new, None, no_pause));
}

#[test]
fn plain_counts_under_a_gil_free_once_and_never_early() {
    explore(|| run(Plain::new, Some(Mutex::new(())), no_pause));
}

#[test]
fn counts_of_mortal_objects_under_a_gil_free_once_and_never_early() {
    explore(|| run(|_| Immortal::mortal(), Some(Mutex::new(())), no_pause));
}

/// This checks that the model finds errors.
#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn plain_counts_without_a_gil_are_wrong() {
    explore(|| run(Plain::new, None, no_pause));
}

#[test]
fn an_immortal_object_does_not_die() {
    alone(|| {
        let object = Immortal::new(0);
        for _ in 0..3 {
            object.decref(&mut ());
        }
        object.incref(&mut ());
        assert_eq!((object.references(), object.deaths().count()), (u32::MAX.into(), 0));
    });
}

/// The owner drops its last reference while another thread, which has just dropped more than was
/// shared, is about to enter the owner's queue. Both then merge, and one of them frees the object.
#[test]
fn an_object_is_freed_by_its_owner_or_by_the_thread_that_queues_it() {
    explore_for(5_000, || {
        let object = Biased::new(0);
        let (mut team, _) = Biased::team(3);
        let mut third = team.pop().unwrap();
        let mut second = team.pop().unwrap();
        let mut owner = team.pop().unwrap();
        // One reference for each of the three threads.
        object.incref(&mut owner);
        object.incref(&mut owner);
        let object = &object;
        thread::scope(|scope| {
            scope.spawn(move || object.decref(&mut second));
            scope.spawn(move || {
                // The third thread makes its second reference here, and both go to the owner.
                object.incref(&mut third);
                (0..3).for_each(|_| object.decref(&mut owner));
            });
        });
        assert_eq!(object.deaths().count(), 1);
        assert_eq!(object.references(), 0);
    });
}

/// Thread 1 drops a reference that the owner made, so only the owner can find that the object is
/// dead.
#[test]
fn a_biased_object_given_away_dies_when_its_owner_merges() {
    alone(|| {
        let object = Biased::new(0);
        let (mut team, _) = Biased::team(2);
        object.decref(&mut team[1]);
        assert_eq!(object.deaths().count(), 0);
        team[0].merge_queued();
        assert_eq!(object.deaths().count(), 1);
        drop(team);
        assert_eq!(object.deaths().count(), 1);
    });
}

#[test]
fn a_log_is_counted_when_its_thread_has_ended() {
    alone(|| {
        let object = Buffered::new(0);
        let (mut team, merger) = Buffered::team(2);
        object.incref(&mut team[1]);
        object.decref(&mut team[0]);
        object.decref(&mut team[1]);
        assert_eq!(object.references(), 1);
        drop(team);
        merger.unwrap().run();
        assert_eq!((object.references(), object.deaths().count()), (0, 1));
    });
}

#[test]
fn measured_counts_are_exact() {
    for kind in Kind::ALL {
        explore(move || {
            let threads = if kind == Kind::Plain { 1 } else { 2 };
            let Found { wrong_by, .. } = kind.measure(threads, 3, true);
            assert_eq!(wrong_by, 0, "{}", kind.name());
            assert_eq!(kind.measure(2, 2, false).wrong_by, 0, "{}", kind.name());
        });
    }
}

/// Two threads change one plain count.
#[test]
fn measured_counts_can_be_wrong() {
    let seen = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let here = Arc::clone(&seen);
    explore(move || {
        if Kind::Plain.measure(2, 3, true).wrong_by > 0 {
            here.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(seen.load(std::sync::atomic::Ordering::Relaxed));
}
