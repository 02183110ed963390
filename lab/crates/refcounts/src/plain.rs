//! The count that the GIL protects: `ob_refcnt++` and `if (--ob_refcnt == 0) _Py_Dealloc(op)`.

use crate::buffered::Merger;
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};
use crate::{Count, Deaths};

/// The operations are a load and a store, which compile to C's plain addition. Two threads that
/// count at the same time lose updates. This is intended, and no undefined behaviour because the
/// type is atomic.
///
/// | `count` | the object |
/// |---|---|
/// | above 0 | has this number of references |
/// | 0 | is dead |
/// | below 0 | does not occur, unless updates were lost |
pub struct Plain {
    /// Writer and reader: the holder of the GIL, which orders the accesses. Relaxed.
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
