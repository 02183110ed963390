//! The count of PEP 683: the GIL protects it, and the count of an immortal object is read but never
//! written.

use crate::buffered::Merger;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::{Count, Deaths};

/// As in CPython 3.12 on 64-bit machines: the lower half of `ob_refcnt` decides.
///
/// | `count` | the object |
/// |---|---|
/// | 0 | is dead |
/// | 1 to 2^31 - 1 | has this number of references |
/// | 2^31 and above | is immortal; made with all bits set |
pub struct Immortal {
    /// As in `Plain`, but the count of an immortal object has no writer, so any thread may read it.
    count: AtomicU32,
    deaths: Deaths,
}

impl Immortal {
    /// Creates an object of the same interpreter that is not immortal.
    pub fn mortal() -> Self {
        Self { count: AtomicU32::new(1), deaths: Deaths::none() }
    }
}

impl Count for Immortal {
    type Thread<'a> = ();

    fn new(_: usize) -> Self {
        Self { count: AtomicU32::new(u32::MAX), deaths: Deaths::none() }
    }

    fn team<'a>(threads: usize) -> (Vec<()>, Option<Merger<'a>>) {
        (vec![(); threads], None)
    }

    #[inline(always)]
    fn incref(&self, (): &mut ()) {
        let more = self.count.load(Relaxed).wrapping_add(1);
        if more != 0 {
            self.count.store(more, Relaxed);
        }
    }

    #[inline(always)]
    fn decref(&self, (): &mut ()) {
        let count = self.count.load(Relaxed);
        if (count as i32) < 0 {
            return;
        }
        self.count.store(count.wrapping_sub(1), Relaxed);
        if count == 1 {
            self.deaths.note();
        }
    }

    fn references(&self) -> i64 {
        self.count.load(Relaxed).into()
    }

    fn deaths(&self) -> &Deaths {
        &self.deaths
    }
}
