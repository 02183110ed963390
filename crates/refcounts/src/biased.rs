//! The count of PEP 703, after Choi, Shull and Torrellas (2018): one thread owns the object and counts
//! for itself, without locked instructions; the others count atomically, in a word of theirs.
//!
//! The two words together are the number of references. A reference may be made by one thread and
//! dropped by another, so the shared word alone may be negative; then nobody but the owner can find
//! that the object is dead, and is asked to merge its own word into the shared one.

use crate::buffered::Merger;
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering::*};
use crate::sync::{Arc, Mutex};
use crate::{Count, Deaths, lock};

/// In the lower two bits of `shared`.
const QUEUED: i64 = 0b10;
const MERGED: i64 = 0b11;
const SHIFT: u32 = 2;
/// One reference in `shared`.
const ONE: i64 = 1 << SHIFT;
/// In `local`: an immortal object, of which this crate makes none of this kind, but tests as CPython does.
const IMMORTAL: u32 = u32::MAX;
const NOBODY: u32 = 0;

/// | `owner` | `shared`'s flags | the object |
/// |---|---|---|
/// | a thread | 0 | counts in both words |
/// | a thread | `QUEUED` | its owner was asked to merge; the queue has one of the references |
/// | `NOBODY` | `MERGED` | counts in `shared` alone, dead at 0; `local` is 0 |
///
/// `owner` turns to `NOBODY` shortly before the flags turn to `MERGED`, and never back. A merged object
/// may still lie in the queue with a reference of its own. (PEP 703 has one more flag, for objects with
/// weak references, and counts as if it were 0.)
pub struct Biased {
    /// Written by the owner, or by whoever merges for one that has ended; read by all, who compare it
    /// with themselves. Relaxed: only the owner finds itself there, and who finds nobody counts in
    /// `shared`.
    owner: AtomicU32,
    /// Written and read by the owner, and once by whoever merges for it. Relaxed; the owner's queue is
    /// between the two.
    local: AtomicU32,
    /// Written and read by all. Relaxed upwards, as `Atomic`'s count; AcqRel downwards and to merge.
    shared: AtomicI64,
    deaths: Deaths,
}

/// The objects that a thread is to merge; `None` once it has ended.
type Queue<'a> = Mutex<Option<Vec<&'a Biased>>>;

/// A thread that may own objects.
pub struct Owner<'a> {
    id: u32,
    queues: Arc<Vec<Queue<'a>>>,
}

impl<'a> Owner<'a> {
    /// What the owner is to do every now and then, at what CPython calls its eval breaker.
    pub fn merge_queued(&mut self) {
        let mut queue = lock(&self.queues[self.id as usize - 1]);
        let queued = queue.as_mut().map(std::mem::take).unwrap_or_default();
        drop(queue);
        queued.into_iter().for_each(Biased::merge_queued);
    }
}

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        let queued = lock(&self.queues[self.id as usize - 1]).take();
        queued.into_iter().flatten().for_each(Biased::merge_queued);
    }
}

impl Biased {
    /// `_Py_MergeZeroLocalRefcount`: the owner has none left of its own.
    #[cold]
    #[inline(never)]
    fn merge_zero_local(&self) {
        let mut shared = self.shared.load(Acquire);
        if shared == 0 {
            self.deaths.note();
            return;
        }
        self.owner.store(NOBODY, Relaxed);
        loop {
            let merged = shared | MERGED;
            match self.shared.compare_exchange_weak(shared, merged, AcqRel, Acquire) {
                Ok(_) if merged == MERGED => return self.deaths.note(),
                Ok(_) => return,
                Err(now) => shared = now,
            }
        }
    }

    /// `_Py_DecRefShared`: a thread that is not the owner has a reference less.
    #[inline(never)]
    fn decref_shared<'a>(&'a self, thread: &Owner<'a>) {
        let mut shared = self.shared.load(Relaxed);
        loop {
            // The first to take more than was shared leaves its reference to the queue.
            let is_first = shared == 0;
            let less = if is_first { QUEUED } else { shared - ONE };
            match self.shared.compare_exchange_weak(shared, less, AcqRel, Relaxed) {
                Ok(_) if is_first => return self.queue(thread),
                Ok(_) if less == MERGED => return self.deaths.note(),
                Ok(_) => return,
                Err(now) => shared = now,
            }
        }
    }

    /// `_Py_brc_queue_object`: to the owner; or merged for one that has ended. An owner that is just
    /// merging has no use for the queue, whose reference is then dropped like any other.
    #[cold]
    fn queue<'a>(&'a self, thread: &Owner<'a>) {
        let owner = self.owner.load(Relaxed);
        if owner == NOBODY {
            return self.decref_shared(thread);
        }
        let mut queue = lock(&thread.queues[owner as usize - 1]);
        match queue.as_mut() {
            Some(queue) => queue.push(self),
            None => self.merge_queued(),
        }
    }

    /// `_Py_ExplicitMergeRefcount`, without the reference that the queue had. Called by the owner, or
    /// once it has ended.
    fn merge_queued(&self) {
        self.owner.store(NOBODY, Relaxed);
        let local = i64::from(self.local.swap(0, Relaxed));
        let mut shared = self.shared.load(Relaxed);
        loop {
            let references = (shared >> SHIFT) + local - 1;
            let merged = (references << SHIFT) | MERGED;
            match self.shared.compare_exchange_weak(shared, merged, AcqRel, Relaxed) {
                Ok(_) if references == 0 => return self.deaths.note(),
                Ok(_) => return,
                Err(now) => shared = now,
            }
        }
    }
}

impl Count for Biased {
    type Thread<'a> = Owner<'a>;

    fn new(owner: usize) -> Self {
        Self {
            owner: AtomicU32::new(owner as u32 + 1),
            local: AtomicU32::new(1),
            shared: AtomicI64::new(0),
            deaths: Deaths::none(),
        }
    }

    fn team<'a>(threads: usize) -> (Vec<Owner<'a>>, Option<Merger<'a>>) {
        let queues = Arc::new((0..threads).map(|_| Mutex::new(Some(Vec::new()))).collect());
        let owner = |id| Owner { id, queues: Arc::clone(&queues) };
        ((1..=threads as u32).map(owner).collect(), None)
    }

    #[inline(always)]
    fn incref<'a>(&'a self, thread: &mut Owner<'a>) {
        let local = self.local.load(Relaxed);
        if local == IMMORTAL {
            return;
        }
        if self.owner.load(Relaxed) == thread.id {
            self.local.store(local + 1, Relaxed);
        } else {
            self.shared.fetch_add(ONE, Relaxed);
        }
    }

    #[inline(always)]
    fn decref<'a>(&'a self, thread: &mut Owner<'a>) {
        let local = self.local.load(Relaxed);
        if local == IMMORTAL {
            return;
        }
        if self.owner.load(Relaxed) == thread.id {
            let left = local.wrapping_sub(1);
            self.local.store(left, Relaxed);
            if left == 0 {
                self.merge_zero_local();
            }
        } else {
            self.decref_shared(thread);
        }
    }

    fn references(&self) -> i64 {
        i64::from(self.local.load(Relaxed)) + (self.shared.load(Acquire) >> SHIFT)
    }

    fn deaths(&self) -> &Deaths {
        &self.deaths
    }
}
