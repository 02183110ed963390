//! The counts, explored by a model checker: threads that make, drop and hand on references, in
//! another order and another interleaving in each run.
//!
//! A thread that has a reference may rely on the object; so whenever it has one, the object has not
//! died, and once all threads have ended and no reference is left, it has died once. Orderings are
//! not explored: to shuttle every access is SeqCst.
//!
//! Bugs that were put in, one at a time, and whether the tests found them:
//!
//! | bug | found |
//! |---|---|
//! | `Atomic`: `incref` as a load and a store; `decref` that looks at the count later | yes |
//! | `Biased`: an increment of the shared word as a load and a store | yes |
//! | the owner's merge keeps `owner`, or does not free | yes |
//! | the merge of a queued object keeps `owner` or `local`, keeps the queue's reference, or does not free | yes |
//! | the first to take more than is shared also subtracts | yes |
//! | an owner ends without merging; nobody merges for one that has ended | yes |
//! | who queues merges by itself where the owner is just merging (as it was) | yes, in one run of hundreds |
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

/// References on their way to a thread, by the objects' places.
type Letters = Vec<Mutex<Vec<usize>>>;

/// A thread and the references that it has, as many as its place occurs in `has`.
struct Actor<'a, C: Count + 'a> {
    objects: &'a [C],
    thread: C::Thread<'a>,
    has: Vec<usize>,
}

impl<'a, C: Count> Actor<'a, C> {
    /// A step that begins with a reference which nobody else drops.
    fn step(&mut self, me: usize, letters: &Letters) {
        let mut chance = thread_rng();
        self.has.append(&mut letters[me].lock().unwrap());
        if self.has.is_empty() {
            return;
        }
        let place = chance.gen_range(0..self.has.len());
        let object = self.has[place];
        assert_eq!(self.objects[object].deaths().count(), 0, "dead, and there is a reference");
        match chance.gen_range(0..4) {
            0 => self.drop_reference(place),
            1 => {
                self.has.swap_remove(place);
                let to = chance.gen_range(0..letters.len());
                letters[to].lock().unwrap().push(object);
            }
            _ => {
                self.objects[object].incref(&mut self.thread);
                self.has.push(object);
            }
        }
    }

    fn drop_reference(&mut self, place: usize) {
        let object = &self.objects[self.has.swap_remove(place)];
        assert_eq!(object.deaths().count(), 0, "dead, and there is a reference");
        object.decref(&mut self.thread);
    }

    fn drop_all(&mut self) {
        while let Some(place) = self.has.len().checked_sub(1) {
            self.drop_reference(place);
        }
    }
}

/// One run. The first thread made all objects. `gil` is held for each step where there is one;
/// `pause` is what a thread does between two.
fn run<C: Count + Send + 'static>(
    make: fn(usize) -> C,
    gil: Option<Mutex<()>>,
    pause: fn(&mut Actor<'_, C>),
) {
    let objects: Vec<C> = (0..OBJECTS).map(|_| make(0)).collect();
    let letters: Letters = (0..THREADS).map(|_| Mutex::new(Vec::new())).collect();
    let take_gil = || -> Option<MutexGuard<()>> { gil.as_ref().map(|gil| gil.lock().unwrap()) };
    // The last is this thread, which drops what nobody fetched.
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
                let (objects, letters, take_gil) = (&objects[..], &letters, &take_gil);
                let has = if me == 0 { (0..OBJECTS).collect() } else { Vec::new() };
                scope.spawn(move || {
                    let mut actor = Actor { objects, thread, has };
                    for _ in 0..STEPS {
                        let _gil = take_gil();
                        actor.step(me, letters);
                        pause(&mut actor);
                    }
                    let _gil = take_gil();
                    actor.drop_all();
                })
            })
            .collect();
        actors.into_iter().for_each(|actor| actor.join().unwrap());
        let has = letters.iter().flat_map(|each| std::mem::take(&mut *each.lock().unwrap()));
        Actor { objects: &objects, thread: last, has: has.collect() }.drop_all();
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

/// In the model, without other threads.
fn alone(run: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(run, 1);
}

fn go_on<C: Count>(_: &mut Actor<'_, C>) {}

#[test]
fn atomic_counts_free_once_and_never_early() {
    explore(|| run(Atomic::new, None, go_on));
}

#[test]
fn biased_counts_free_once_and_never_early() {
    explore(|| run(Biased::new, None, |actor| actor.thread.merge_queued()));
}

/// The owner may be long in merging, or have ended.
#[test]
fn biased_counts_of_an_owner_that_does_not_merge_until_it_ends() {
    explore(|| run(Biased::new, None, go_on));
}

#[test]
fn buffered_counts_free_once_and_never_early() {
    explore(|| run(Buffered::new, None, go_on));
}

#[test]
fn plain_counts_under_a_gil_free_once_and_never_early() {
    explore(|| run(Plain::new, Some(Mutex::new(())), go_on));
}

#[test]
fn counts_of_mortal_objects_under_a_gil_free_once_and_never_early() {
    explore(|| run(|_| Immortal::mortal(), Some(Mutex::new(())), go_on));
}

/// What the checks above are worth.
#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn plain_counts_without_a_gil_go_wrong() {
    explore(|| run(Plain::new, None, go_on));
}

#[test]
fn an_immortal_object_outlives_all_who_drop_it() {
    alone(|| {
        let object = Immortal::new(0);
        for _ in 0..3 {
            object.decref(&mut ());
        }
        object.incref(&mut ());
        assert_eq!((object.references(), object.deaths().count()), (u32::MAX.into(), 0));
    });
}

/// The owner drops its last while another thread, which has just found that it took more than was
/// shared, is on its way to the owner's queue: both then merge, and one of them frees.
#[test]
fn an_object_is_freed_by_its_owner_or_by_the_thread_that_queues_it() {
    explore_for(5_000, || {
        let object = Biased::new(0);
        let (mut team, _) = Biased::team(3);
        let mut third = team.pop().unwrap();
        let mut second = team.pop().unwrap();
        let mut owner = team.pop().unwrap();
        // One for each of the three.
        object.incref(&mut owner);
        object.incref(&mut owner);
        let object = &object;
        thread::scope(|scope| {
            scope.spawn(move || object.decref(&mut second));
            scope.spawn(move || {
                // The second reference of the third thread is made here, and both go to the owner.
                object.incref(&mut third);
                (0..3).for_each(|_| object.decref(&mut owner));
            });
        });
        assert_eq!(object.deaths().count(), 1);
        assert_eq!(object.references(), 0);
    });
}

/// Thread 1 gives away its only reference; its new holder drops it, and only the owner can tell.
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
fn measured_counts_come_out_right() {
    for kind in Kind::ALL {
        explore(move || {
            let threads = if kind == Kind::Plain { 1 } else { 2 };
            let Found { wrong_by, .. } = kind.measure(threads, 3, true);
            assert_eq!(wrong_by, 0, "{}", kind.name());
            assert_eq!(kind.measure(2, 2, false).wrong_by, 0, "{}", kind.name());
        });
    }
}

/// Two threads on one plain count.
#[test]
fn measured_counts_may_come_out_wrong() {
    let seen = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let here = Arc::clone(&seen);
    explore(move || {
        if Kind::Plain.measure(2, 3, true).wrong_by > 0 {
            here.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(seen.load(std::sync::atomic::Ordering::Relaxed));
}
