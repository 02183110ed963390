//! How a process accepts from listeners that other processes accept from too.
//!
//! The kernel wakes one waiting process for a new connection, always the first that waits
//! (EPOLLEXCLUSIVE). Without balancing, the first process takes nearly all: it empties the queue
//! before the others are awake, and connections that come one by one find it waiting again.
//! Clients that keep their connections would then keep one process busy and the others idle. So a
//! process that has accepted leaves the listeners for a moment and then waits behind the others,
//! as in nginx's `ngx_reorder_accept_events`. If no other process takes what is there, it takes
//! more at a time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Time for the others to wake up and accept.
const AWAY_NS: u64 = 200_000;
/// A process that finds connections waiting this soon after its return is the only one to accept.
const ALONE_NS: u64 = 100_000;

/// Used by the thread that polls; the polling flag orders the accesses, so all are relaxed.
pub struct AcceptBalancing {
    is_shared: bool,
    /// Connections to accept at the next event.
    batch: AtomicUsize,
    max_batch: usize,
    /// When to return to the listeners; 0 while the process waits for connections.
    away_until_ns: AtomicU64,
    /// When the process last returned.
    returned_ns: AtomicU64,
}

impl AcceptBalancing {
    pub fn new(is_shared: bool, max_batch: usize) -> Self {
        Self {
            is_shared,
            batch: AtomicUsize::new(1),
            max_batch,
            away_until_ns: AtomicU64::new(0),
            returned_ns: AtomicU64::new(0),
        }
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// How many connections to accept now that there are some.
    pub fn batch(&self, now_ns: u64) -> usize {
        if !self.is_shared {
            return self.max_batch;
        }
        let is_alone = now_ns.saturating_sub(self.returned_ns.load(Relaxed)) < ALONE_NS;
        let last = self.batch.load(Relaxed);
        let batch = if is_alone { last + (last / 2).max(1) } else { 1 };
        let batch = batch.min(self.max_batch);
        self.batch.store(batch, Relaxed);
        batch
    }

    /// Connections were accepted. True if the process leaves the listeners for a while.
    pub fn leave(&self, now_ns: u64) -> bool {
        if self.is_shared {
            self.away_until_ns.store(now_ns + AWAY_NS, Relaxed);
        }
        self.is_shared
    }

    pub fn is_away(&self) -> bool {
        self.away_until_ns.load(Relaxed) != 0
    }

    /// How long to stay away; `None` once, when it is time to return.
    pub fn remaining_ns(&self, now_ns: u64) -> Option<u64> {
        let remaining_ns = self.away_until_ns.load(Relaxed).saturating_sub(now_ns);
        if remaining_ns == 0 {
            self.away_until_ns.store(0, Relaxed);
            self.returned_ns.store(now_ns, Relaxed);
        }
        (remaining_ns > 0).then_some(remaining_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_accepts_alone_accepts_more_each_time() {
        let balancing = AcceptBalancing::new(true, 8);
        let mut now_ns = 1_000_000;
        let mut batches = Vec::new();
        for _ in 0..7 {
            batches.push(balancing.batch(now_ns));
            assert!(balancing.leave(now_ns) && balancing.is_away());
            assert_eq!(balancing.remaining_ns(now_ns + 1), Some(AWAY_NS - 1));
            now_ns += AWAY_NS;
            assert_eq!(balancing.remaining_ns(now_ns), None);
            assert!(!balancing.is_away());
        }
        assert_eq!(batches, [1, 2, 3, 4, 6, 8, 8]);
        assert_eq!(balancing.batch(now_ns + ALONE_NS), 1, "others took part");
    }

    #[test]
    fn a_process_that_does_not_share_its_listeners_stays() {
        let balancing = AcceptBalancing::new(false, 8);
        assert_eq!(balancing.batch(0), 8);
        assert!(!balancing.leave(0) && !balancing.is_away());
    }
}
