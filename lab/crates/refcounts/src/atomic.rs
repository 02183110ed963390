//! The count that any thread may change at any time, with one locked instruction for each change.

use crate::buffered::Merger;
use crate::sync::atomic::{AtomicI64, Ordering::*, fence};
use crate::{Count, Deaths};

/// | `count` | the object |
/// |---|---|
/// | above 0 | has this number of references |
/// | 0 | is dead: no thread has a reference to count with |
pub struct Atomic {
    /// Writers and readers: every thread that has a reference. Increments are relaxed, because a
    /// thread with a reference knows that the object is alive. Decrements are releases, and an
    /// acquire fence precedes the object's death, so that all uses of the object happen before its
    /// end.
    count: AtomicI64,
    deaths: Deaths,
}

impl Count for Atomic {
    type Thread<'a> = ();

    fn new(_: usize) -> Self {
        Self { count: AtomicI64::new(1), deaths: Deaths::none() }
    }

    fn team<'a>(threads: usize) -> (Vec<()>, Option<Merger<'a>>) {
        (vec![(); threads], None)
    }

    #[inline(always)]
    fn incref(&self, (): &mut ()) {
        self.count.fetch_add(1, Relaxed);
    }

    #[inline(always)]
    fn decref(&self, (): &mut ()) {
        if self.count.fetch_sub(1, Release) == 1 {
            fence(Acquire);
            self.deaths.note();
        }
    }

    fn references(&self) -> i64 {
        self.count.load(Acquire)
    }

    fn deaths(&self) -> &Deaths {
        &self.deaths
    }
}
