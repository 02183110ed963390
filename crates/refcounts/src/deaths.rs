//! How often an object was deallocated, which is to be once: after its last reference is gone.

use crate::sync::atomic::{AtomicU32, Ordering::*};

/// Written by whoever finds the count at zero, read by whoever checks that. Release and Acquire,
/// since a thread that reads of a death may read the count next.
#[derive(Debug)]
pub struct Deaths(AtomicU32);

impl Deaths {
    pub fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// In the place of `_Py_Dealloc`: out of line, and off the path that is measured.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Release);
    }

    pub fn count(&self) -> u32 {
        self.0.load(Acquire)
    }
}
