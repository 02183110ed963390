//! The queue of connections that are ready and wait for a thread, the longest waiting first.
//!
//! It owns them: their words are BUSY. Threads take from the front; locked for a few instructions.

use crate::connection::table::Queued;
use headway_reporter::lock::Lock;
use std::collections::VecDeque;
use std::sync::MutexGuard;

/// A connection, and since when it waits for a thread.
#[derive(Debug)]
pub struct Ready {
    pub connection: Queued,
    pub since_ns: u64,
}

#[derive(Default)]
pub struct ReadyQueue(Lock<VecDeque<Ready>>);

impl ReadyQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        self.0.lock()
    }

    pub fn push(&self, connection: Queued, now_ns: u64) {
        self.lock().push_back(Ready { connection, since_ns: now_ns });
    }

    pub fn extend(&self, connections: impl Iterator<Item = Queued>, now_ns: u64) {
        let ready = connections.map(|connection| Ready { connection, since_ns: now_ns });
        self.lock().extend(ready);
    }

    /// The first, and how many wait behind it.
    pub fn pop(&self) -> Option<(Ready, usize)> {
        let mut queue = self.lock();
        Some((queue.pop_front()?, queue.len()))
    }

    /// The first, if it has waited for longer than `limit_ns`.
    pub fn pop_late(&self, limit_ns: u64, now_ns: u64) -> Option<Ready> {
        let mut queue = self.lock();
        let first = queue.front()?;
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
    use crate::connection::state::Connection;
    use crate::connection::table::ConnectionTable;
    use crate::net::socket::PeerAddress;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_a_connection_that_waits_too_long_is_late() {
        let table = ConnectionTable::default();
        let connections = [(); 3].map(|()| {
            let (one, _) = UnixStream::pair().unwrap();
            let new = Connection::new(one.into(), PeerAddress::default(), Default::default());
            table.insert(Box::new(new)).unwrap().queue()
        });
        let [first, second, third] = connections;
        let queue = ReadyQueue::default();
        queue.extend([first, second].into_iter(), 100);
        queue.push(third, 150);
        let index = |ready: Ready| table.resume(ready.connection).view().index();
        assert!(queue.pop_late(50, 150).is_none());
        assert_eq!(queue.pop_late(50, 151).map(index), Some(0));
        let (ready, behind) = queue.pop().unwrap();
        assert_eq!((ready.since_ns, index(ready), behind), (100, 1, 1));
        assert!(queue.pop_late(50, 151).is_none());
        assert!(!queue.is_empty());
    }
}
