//! The count of PEP 703, after Choi, Shull and Torrellas (2018): one thread owns the object and
//! counts without locked instructions; the other threads count atomically, in a second word.
//!
//! The sum of the two words is the number of references. One thread may make a reference that
//! another thread drops, so the shared word alone may be negative. Then only the owner can find
//! that the object is dead, and is requested to merge its own word into the shared one.

use crate::buffered::Merger;
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering::*};
use crate::sync::{Arc, Mutex};
use crate::{Count, Deaths, lock};

/// The flags are the lower two bits of `shared`.
const QUEUED: i64 = 0b10;
const MERGED: i64 = 0b11;
const SHIFT: u32 = 2;
/// One reference in `shared`.
const ONE: i64 = 1 << SHIFT;
/// The `local` of an immortal object. This crate makes no immortal `Biased`, but tests for it as
/// CPython does.
const IMMORTAL: u32 = u32::MAX;
const NOBODY: u32 = 0;

/// | `owner` | `shared`'s flags | the object |
/// |---|---|---|
/// | a thread | 0 | counts in both words |
/// | a thread | `QUEUED` | its owner is requested to merge; the queue has one of the references |
/// | `NOBODY` | `MERGED` | counts in `shared` alone, dead at 0; `local` is 0 |
///
/// `owner` changes to `NOBODY` shortly before the flags change to `MERGED`, and never back. A
/// merged object may still be in the queue, which has a reference to it. (PEP 703 has one more
/// flag, for objects with weak references, and counts as if the flag were 0.)
pub struct Biased {
    /// Writers: the owner, or the thread that merges for an owner that has ended. Readers: all
    /// threads, which compare it with their own id. Relaxed: only the owner finds its own id, and a
    /// thread that finds another value counts in `shared`.
    owner: AtomicU32,
    /// Writers and readers: the owner, and once the thread that merges for it. Relaxed: the lock of
    /// the owner's queue orders the two.
    local: AtomicU32,
    /// Writers and readers: all threads. Increments are relaxed, as in `Atomic`; decrements and
    /// merges are AcqRel.
    shared: AtomicI64,
    deaths: Deaths,
}

/// The objects that a thread must merge; `None` once the thread has ended.
type Queue<'a> = Mutex<Option<Vec<&'a Biased>>>;

/// A thread that may own objects.
pub struct Owner<'a> {
    id: u32,
    queues: Arc<Vec<Queue<'a>>>,
}

impl<'a> Owner<'a> {
    /// Merges the queued objects. The owner calls this from time to time; CPython calls it at its
    /// eval breaker.
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
    /// `_Py_MergeZeroLocalRefcount`: merges when the owner has dropped the last reference of its
    /// own.
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

    /// `_Py_DecRefShared`: drops a reference in a thread that is not the owner.
    #[inline(never)]
    fn decref_shared<'a>(&'a self, thread: &Owner<'a>) {
        let mut shared = self.shared.load(Relaxed);
        loop {
            // The first thread that drops more references than are shared leaves its reference to
            // the queue.
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

    /// `_Py_brc_queue_object`: queues the object for its owner, or merges it for an owner that has
    /// ended. An owner that is just merging does not need the queue; the queue's reference is then
    /// dropped like any other.
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

    /// `_Py_ExplicitMergeRefcount`: merges, and drops the reference that the queue had. Callers:
    /// the owner or, once the owner has ended, the thread that queues.
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
