//! The number of deallocations of an object, which must be one, after the last reference has been
//! dropped.

use crate::sync::atomic::{AtomicU32, Ordering::*};

/// Writers: the threads that find the count at zero. Readers: the threads that check for that.
/// Release and acquire, because a thread that reads of a death may read the count next.
#[derive(Debug)]
pub struct Deaths(AtomicU32);

impl Deaths {
    pub fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Stands for `_Py_Dealloc`. Out of line, so that the measured path does not contain it.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Release);
    }

    pub fn count(&self) -> u32 {
        self.0.load(Acquire)
    }
}
