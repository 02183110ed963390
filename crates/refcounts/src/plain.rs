//! The count that the GIL protects: `ob_refcnt++` and `if (--ob_refcnt == 0) _Py_Dealloc(op)`.

use crate::buffered::Merger;
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};
use crate::{Count, Deaths};

/// A load and a store, which compile to C's plain addition; two threads that count at once lose
/// updates. That is the point, and no undefined behaviour, hence the atomic type.
///
/// | `count` | the object |
/// |---|---|
/// | above 0 | has so many references |
/// | 0 | is dead |
/// | below 0 | does not occur, unless updates were lost |
pub struct Plain {
    /// Written and read by whoever holds the GIL; the GIL orders it.
    count: AtomicI64,
    deaths: Deaths,
}

impl Count for Plain {
    type Thread<'a> = ();

    fn new(_: usize) -> Self {
        Self { count: AtomicI64::new(1), deaths: Deaths::none() }
    }

    fn team<'a>(threads: usize) -> (Vec<()>, Option<Merger<'a>>) {
        (vec![(); threads], None)
    }

    #[inline(always)]
    fn incref(&self, (): &mut ()) {
        self.count.store(self.count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    #[inline(always)]
    fn decref(&self, (): &mut ()) {
        let left = self.count.load(Relaxed).wrapping_sub(1);
        self.count.store(left, Relaxed);
        if left == 0 {
            self.deaths.note();
        }
    }

    fn references(&self) -> i64 {
        self.count.load(Relaxed)
    }

    fn deaths(&self) -> &Deaths {
        &self.deaths
    }
}
