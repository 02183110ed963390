//! Measures threads that increment and decrement counts.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::Instant;

use crate::sync::{Barrier, thread};
use crate::{Count, buffered::Merger};

pub const MAX_THREADS: usize = u64::BITS as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The time from the first thread's first increment until all threads have ended and everything
    /// is counted.
    pub ns: u64,
    /// The sum of the differences between the counts at the end and at the beginning; a death adds
    /// one.
    pub wrong_by: u64,
}

/// An object on cache lines of its own. It also occupies the neighbouring line, because some
/// processors fetch lines in pairs.
#[repr(align(128))]
struct Object<C>(C);

/// Measures `threads` threads (1 to [`MAX_THREADS`]), each of which increments and decrements
/// `pairs` times: all on one object if `shared`, else each on an object of its own.
pub fn measure<C: Count>(threads: usize, pairs: u64, shared: bool) -> Found {
    let objects: Vec<_> =
        (0..if shared { 1 } else { threads }).map(|owner| Object(C::new(owner))).collect();
    let counted = |objects: &[Object<C>]| -> Vec<_> {
        objects.iter().map(|object| object.0.references()).collect()
    };
    let before = counted(&objects);
    let (team, merger) = C::team(threads);
    let start = Barrier::new(threads);
    let began = thread::scope(|scope| {
        let merging = merger.map(|merger| scope.spawn(|| Merger::run(merger)));
        let counting: Vec<_> = team
            .into_iter()
            .enumerate()
            .map(|(index, mut thread)| {
                let object = &objects[if shared { 0 } else { index }].0;
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let began = Instant::now();
                    count_pairs(object, &mut thread, pairs);
                    began
                })
            })
            .collect();
        let began =
            counting.into_iter().map(|each| each.join().expect("threads do not panic")).min();
        if let Some(merging) = merging {
            merging.join().expect("the merger does not panic");
        }
        began.expect("there is at least one thread")
    });
    let ns = began.elapsed().as_nanos() as u64;
    let deaths: u32 = objects.iter().map(|object| object.0.deaths().count()).sum();
    let difference: u64 =
        before.iter().zip(counted(&objects)).map(|(before, after)| before.abs_diff(after)).sum();
    Found { ns, wrong_by: difference + u64::from(deaths) }
}

/// The fences keep the compiler from merging two counts; they compile to no instructions.
#[inline(never)]
fn count_pairs<'a, C: Count>(object: &'a C, thread: &mut C::Thread<'a>, pairs: u64) {
    for _ in 0..pairs {
        object.incref(thread);
        compiler_fence(SeqCst);
        object.decref(thread);
        compiler_fence(SeqCst);
    }
}
