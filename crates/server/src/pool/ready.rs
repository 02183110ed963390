//! The queue of connections that are ready and wait for a thread, the longest waiting first.
//!
//! It owns them. Locked for a few instructions.

use crate::connection::table::Queued;
use headway_threads::lock::Lock;
use std::collections::VecDeque;

/// A connection, and since when it waits for a thread.
#[derive(Debug, PartialEq, Eq)]
pub struct Ready {
    pub connection: Queued,
    pub since_ns: u64,
}

#[derive(Default)]
pub struct ReadyQueue(Lock<VecDeque<Ready>>);

impl ReadyQueue {
    pub fn push(&self, connection: Queued, now_ns: u64) {
        self.0.lock().push_back(Ready { connection, since_ns: now_ns });
    }

    pub fn extend(&self, connections: impl Iterator<Item = Queued>, now_ns: u64) {
        let ready = |connection| Ready { connection, since_ns: now_ns };
        self.0.lock().extend(connections.map(ready));
    }

    /// The first connection, and how many wait behind it.
    pub fn pop(&self) -> Option<(Ready, usize)> {
        let mut queue = self.0.lock();
        Some((queue.pop_front()?, queue.len()))
    }

    /// The first connection, if it has waited for longer than `limit_ns`.
    pub fn pop_late(&self, limit_ns: u64, now_ns: u64) -> Option<Ready> {
        let mut queue = self.0.lock();
        if now_ns.saturating_sub(queue.front()?.since_ns) <= limit_ns {
            return None;
        }
        queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::table::Owned;
    use crate::connection::table::tests::{connect, table};

    #[test]
    fn only_a_connection_that_waits_too_long_is_late() {
        let queue = ReadyQueue::default();
        let table = table();
        let [mut first, mut second, third] = [(); 3].map(|()| connect(&table).0);
        (first.listener, second.listener) = (1, 2);
        queue.extend([first, second].map(Owned::queue).into_iter(), 100);
        queue.push(third.queue(), 150);
        assert_eq!(queue.pop_late(50, 150), None);
        let late = queue.pop_late(50, 151).unwrap();
        assert_eq!((late.since_ns, table.take(late.connection).listener), (100, 1));
        let (next, waiting) = queue.pop().unwrap();
        assert_eq!((table.take(next.connection).listener, waiting), (2, 1));
        assert_eq!(queue.pop_late(50, 151), None);
        assert!(!queue.is_empty());
    }
}
