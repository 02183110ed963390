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
    length: u32,
}

impl Queue {
    pub const fn new(id: u32) -> Self {
        Self { id, first: NOBODY, last: NOBODY, length: 0 }
    }

    pub fn first(&self) -> Option<ThreadId> {
        (self.first != NOBODY).then_some(self.first)
    }

    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns when a waiter of this queue that is not its first looks again, while a holder has
    /// the rest of a slice that ends at `slice_end_ns`: after as many turns as others wait, since
    /// it may have become the first by then. So all waiters together look once in a turn, however
    /// many they are.
    pub fn looks_again_ns(&self, slice_end_ns: u64, turn_ns: u64) -> u64 {
        slice_end_ns + turn_ns * u64::from(self.length.saturating_sub(1).max(1))
    }

    pub fn has(&self, threads: &impl Threads, thread: ThreadId) -> bool {
        threads[thread].queue == self.id
    }

    /// Inserts `thread` behind all threads whose key is no greater than its own. The search goes on
    /// from both ends at once: a new thread belongs to the end, and one that was interrupted to the
    /// beginning, so that neither passes the many that wait between them.
    pub fn insert<T: Threads, K: PartialOrd>(
        &mut self,
        threads: &mut T,
        thread: ThreadId,
        key: impl Fn(&T, ThreadId) -> K,
    ) {
        let mine = key(threads, thread);
        let (mut from_first, mut from_last) = (self.first, self.last);
        let (before, behind) = loop {
            if from_last == NOBODY || key(threads, from_last) <= mine {
                let behind = match from_last {
                    NOBODY => self.first,
                    _ => threads[from_last].behind,
                };
                break (from_last, behind);
            }
            if key(threads, from_first) > mine {
                break (threads[from_first].before, from_first);
            }
            from_last = threads[from_last].before;
            from_first = threads[from_first].behind;
        };
        self.length += 1;
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
        self.length -= 1;
        threads[thread].queue = 0;
        threads[thread].before = NOBODY;
        threads[thread].behind = NOBODY;
    }
}
