//! A queue of waiting threads: a linked list through the threads themselves, so that it allocates
//! no memory.

use crate::thread::{NOBODY, ThreadId, Threads};

/// Threads in the order in which they take the GIL.
#[derive(Debug)]
pub struct Queue {
    /// The number of this queue among those of its scheduler, not 0.
    id: u32,
    first: ThreadId,
    last: ThreadId,
}

impl Queue {
    pub const fn new(id: u32) -> Self {
        Self { id, first: NOBODY, last: NOBODY }
    }

    pub fn first(&self) -> Option<ThreadId> {
        (self.first != NOBODY).then_some(self.first)
    }

    pub fn has(&self, threads: &impl Threads, thread: ThreadId) -> bool {
        threads[thread].queue == self.id
    }

    /// Inserts `thread` behind all threads whose key is no greater than its own. The search starts
    /// at the end, where most threads belong.
    pub fn insert<T: Threads, K: PartialOrd>(
        &mut self,
        threads: &mut T,
        thread: ThreadId,
        key: impl Fn(&T, ThreadId) -> K,
    ) {
        let mine = key(threads, thread);
        let mut before = self.last;
        while before != NOBODY && key(threads, before) > mine {
            before = threads[before].before;
        }
        let behind = if before == NOBODY { self.first } else { threads[before].behind };
        threads[thread].queue = self.id;
        threads[thread].before = before;
        threads[thread].behind = behind;
        match before {
            NOBODY => self.first = thread,
            _ => threads[before].behind = thread,
        }
        match behind {
            NOBODY => self.last = thread,
            _ => threads[behind].before = thread,
        }
    }

    /// Removes `thread`. Has no effect if the thread is not in this queue.
    pub fn remove(&mut self, threads: &mut impl Threads, thread: ThreadId) {
        if !self.has(threads, thread) {
            return;
        }
        let (before, behind) = (threads[thread].before, threads[thread].behind);
        match before {
            NOBODY => self.first = behind,
            _ => threads[before].behind = behind,
        }
        match behind {
            NOBODY => self.last = before,
            _ => threads[behind].before = before,
        }
        threads[thread].queue = 0;
        threads[thread].before = NOBODY;
        threads[thread].behind = NOBODY;
    }
}
