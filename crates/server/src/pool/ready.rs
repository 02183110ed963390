//! The queue of connections that are ready and wait for a thread, the longest waiting first.
//!
//! It owns them: their words are BUSY. Threads take from the front; locked for a few instructions.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// A connection's slot, and since when it waits for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub index: u32,
    pub since_ns: u64,
}

#[derive(Default)]
pub struct ReadyQueue(Mutex<VecDeque<Ready>>);

impl ReadyQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        self.0.lock().expect("no panic under this lock")
    }

    pub fn push(&self, index: u32, now_ns: u64) {
        self.lock().push_back(Ready { index, since_ns: now_ns });
    }

    pub fn extend(&self, indices: &[u32], now_ns: u64) {
        self.lock().extend(indices.iter().map(|&index| Ready { index, since_ns: now_ns }));
    }

    /// The first, and how many wait behind it.
    pub fn pop(&self) -> Option<(Ready, usize)> {
        let mut queue = self.lock();
        Some((queue.pop_front()?, queue.len()))
    }

    /// The first, if it has waited for longer than `limit_ns`.
    pub fn pop_late(&self, limit_ns: u64, now_ns: u64) -> Option<Ready> {
        let mut queue = self.lock();
        let first = *queue.front()?;
        if now_ns.saturating_sub(first.since_ns) <= limit_ns {
            return None;
        }
        queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_waits_too_long_is_late() {
        let queue = ReadyQueue::default();
        queue.extend(&[7, 8], 100);
        queue.push(9, 150);
        assert_eq!(queue.pop_late(50, 150), None);
        assert_eq!(queue.pop_late(50, 151), Some(Ready { index: 7, since_ns: 100 }));
        assert_eq!(queue.pop(), Some((Ready { index: 8, since_ns: 100 }, 1)));
        assert_eq!(queue.pop_late(50, 151), None);
        assert!(!queue.is_empty());
    }
}
