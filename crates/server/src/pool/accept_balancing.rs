//! How a process accepts from listeners that other processes accept from too.
//!
//! The kernel wakes one waiting process per new connection, always the first that waits (EPOLLEXCLUSIVE).
//! Left to itself, the first takes nearly all: a burst of connections lies in the queue before the
//! others are on their feet, and connections that come one by one find it waiting again. Clients
//! that keep their connections would then keep one process busy, and the others idle. So a process
//! that has accepted steps back from the listeners for a moment and then waits behind the others, as in
//! nginx's `ngx_reorder_accept_events`. If nobody else takes what is there, it takes more at a time.
//!
//! Fields are used by the thread that polls only; `polling` orders them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Time for others to wake up and accept.
const STEP_BACK_NS: u64 = 200_000;
/// Whoever finds connections waiting so soon after it came back is the only one who accepts.
const STILL_NS: u64 = 100_000;

pub struct AcceptBalancing {
    is_shared: bool,
    /// Connections to accept at the next event.
    batch: AtomicUsize,
    max_batch: usize,
    /// When to wait for connections again; 0 while we do.
    until_ns: AtomicU64,
    /// When we last came back.
    back_ns: AtomicU64,
}

impl AcceptBalancing {
    pub fn new(is_shared: bool, max_batch: usize) -> Self {
        Self {
            is_shared,
            batch: AtomicUsize::new(1),
            max_batch,
            until_ns: AtomicU64::new(0),
            back_ns: AtomicU64::new(0),
        }
    }

    /// How many connections may be accepted now that there are some.
    pub fn batch(&self, now_ns: u64) -> usize {
        if !self.is_shared {
            return self.max_batch;
        }
        let alone = now_ns.saturating_sub(self.back_ns.load(Relaxed)) < STILL_NS;
        let last = self.batch.load(Relaxed);
        let batch = if alone { last + (last / 2).max(1) } else { 1 };
        let batch = batch.min(self.max_batch);
        self.batch.store(batch, Relaxed);
        batch
    }

    /// Connections were accepted. True if the listeners are to be left alone for a while.
    pub fn step_back(&self, now_ns: u64) -> bool {
        if self.is_shared {
            self.until_ns.store(now_ns + STEP_BACK_NS, Relaxed);
        }
        self.is_shared
    }

    /// Whether we have stepped back.
    pub fn is_away(&self) -> bool {
        self.until_ns.load(Relaxed) != 0
    }

    /// How long to stay away yet; `None` once, when it is time to come back.
    pub fn remaining_ns(&self, now_ns: u64) -> Option<u64> {
        let remaining_ns = self.until_ns.load(Relaxed).saturating_sub(now_ns);
        if remaining_ns == 0 {
            self.until_ns.store(0, Relaxed);
            self.back_ns.store(now_ns, Relaxed);
        }
        (remaining_ns > 0).then_some(remaining_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_alone_accepts_more_each_time() {
        let balancing = AcceptBalancing::new(true, 8);
        let mut now_ns = 1_000_000;
        let mut batches = Vec::new();
        for _ in 0..7 {
            batches.push(balancing.batch(now_ns));
            assert!(balancing.step_back(now_ns) && balancing.is_away());
            assert_eq!(balancing.remaining_ns(now_ns + 1), Some(STEP_BACK_NS - 1));
            now_ns += STEP_BACK_NS;
            assert_eq!(balancing.remaining_ns(now_ns), None);
            assert!(!balancing.is_away());
        }
        assert_eq!(batches, [1, 2, 3, 4, 6, 8, 8]);
        assert_eq!(balancing.batch(now_ns + STILL_NS), 1, "others took part");
    }

    #[test]
    fn whoever_shares_with_nobody_stays() {
        let balancing = AcceptBalancing::new(false, 8);
        assert_eq!(balancing.batch(0), 8);
        assert!(!balancing.step_back(0) && !balancing.is_away());
    }
}
