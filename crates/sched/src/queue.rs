//! A queue of waiting threads: a list through the threads themselves, so that it needs no memory.

use crate::thread::{NOBODY, ThreadId, Threads};

/// Threads in the order in which they are to have the GIL.
#[derive(Debug)]
pub struct Queue {
    /// Tells a scheduler's queues apart; not 0.
    name: u32,
    first: ThreadId,
    last: ThreadId,
}

impl Queue {
    pub const fn new(name: u32) -> Self {
        Self { name, first: NOBODY, last: NOBODY }
    }

    pub fn first(&self) -> Option<ThreadId> {
        (self.first != NOBODY).then_some(self.first)
    }

    pub fn has(&self, threads: &impl Threads, thread: ThreadId) -> bool {
        threads[thread].queue == self.name
    }

    /// Puts `thread` behind all that go before it: those whose key is no greater than its own. It
    /// looks from the end, where most belong.
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
        threads[thread].queue = self.name;
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

    /// Takes `thread` out; no effect if it is not in this queue.
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
