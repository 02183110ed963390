//! Threads that count up and down, and how long they take.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::Instant;

use crate::sync::{Barrier, thread};
use crate::{Count, buffered::Merger};

pub const MAX_THREADS: usize = u64::BITS as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// From the first thread's first increment until all threads are done, and all is counted.
    pub ns: u64,
    /// By how much the counts differ in the end from what they were in the beginning; a death counts
    /// as one more.
    pub wrong_by: u64,
}

/// An object on cache lines of its own, with its neighbour's, which some processors fetch in pairs.
#[repr(align(128))]
struct Object<C>(C);

/// `threads` (1 to [`MAX_THREADS`]) count up and down so many times each, all on one object, or each on
/// an object of its own.
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
        let began = counting.into_iter().map(|each| each.join().expect("it does not panic")).min();
        if let Some(merging) = merging {
            merging.join().expect("it does not panic");
        }
        began.expect("there is a thread")
    });
    let ns = began.elapsed().as_nanos() as u64;
    let deaths: u32 = objects.iter().map(|object| object.0.deaths().count()).sum();
    let difference: u64 =
        before.iter().zip(counted(&objects)).map(|(before, after)| before.abs_diff(after)).sum();
    Found { ns, wrong_by: difference + u64::from(deaths) }
}

/// The compiler may not join two counts to one; the fences are no instructions.
#[inline(never)]
fn count_pairs<'a, C: Count>(object: &'a C, thread: &mut C::Thread<'a>, pairs: u64) {
    for _ in 0..pairs {
        object.incref(thread);
        compiler_fence(SeqCst);
        object.decref(thread);
        compiler_fence(SeqCst);
    }
}
