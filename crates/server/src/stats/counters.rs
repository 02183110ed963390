//! The counters of all threads of a server. They do not depend on Python, so a reporter may keep
//! them after the server has ended.
//!
//! Each worker thread writes its own counters, under a lock that only a reader of all threads
//! contends for. Without telemetry the counters are never taken and contain only rows by path.

use crate::stats::block::Block;
use crate::stats::request_counters::RequestCounters;
use crate::stats::routes::Routes;
use crate::stats::worker_times::WorkerTimes;
use crate::stats::{PathTables, RequestRecord};
use headway_threads::lock::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one thread since they were last taken.
#[derive(Default)]
pub struct WorkerCounters {
    pub paths: PathTables,
    /// `None` without telemetry.
    pub requests: Option<Box<RequestCounters>>,
    /// The latest block, if there was one.
    block: Option<Box<Block>>,
}

impl WorkerCounters {
    /// `noticed_ns` is when the poller saw the connection ready.
    pub fn record(&mut self, target: &[u8], noticed_ns: u64, record: &RequestRecord) {
        if let Some(block) = &mut self.block {
            block.record(target, noticed_ns, record);
        }
        if let Some(requests) = &mut self.requests {
            requests.record(record);
        }
        let by_endpoint = self.requests.is_some();
        self.paths.of_interpreter(record.slot).record(target, record, by_endpoint);
    }
}

pub struct ServerStats {
    /// Whether a telemetry reporter takes the counters.
    reported: bool,
    /// One entry for each thread that has ever counted here.
    threads: Lock<Vec<Arc<Lock<WorkerCounters>>>>,
    /// One entry for each worker thread; empty without telemetry.
    slots: Lock<Vec<Arc<WorkerTimes>>>,
    /// The sum of all counters by path that were taken.
    taken: Lock<PathTables>,
    pub routes: Routes,
    /// The connections accepted and closed. All threads write them, the reporter reads them;
    /// relaxed, because the counts order no other data.
    accepted: AtomicU64,
    closed: AtomicU64,
}

impl ServerStats {
    pub fn new(reported: bool) -> Self {
        Self {
            reported,
            threads: Lock::default(),
            slots: Lock::default(),
            taken: Lock::default(),
            routes: Routes::default(),
            accepted: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }
    }

    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// Registers new counters for the calling thread.
    pub fn join(&self) -> Arc<Lock<WorkerCounters>> {
        let requests = self.reported.then(Box::default);
        let thread_counters =
            Arc::new(Lock::new(WorkerCounters { requests, ..WorkerCounters::default() }));
        self.threads.lock().push(Arc::clone(&thread_counters));
        thread_counters
    }

    /// Registers a slot for the calling worker thread; `None` without telemetry.
    pub fn join_workers(&self) -> Option<Arc<WorkerTimes>> {
        self.reported.then(|| {
            let slot = Arc::<WorkerTimes>::default();
            self.slots.lock().push(Arc::clone(&slot));
            slot
        })
    }

    /// Calls `with` for each slot and its number.
    pub fn for_each_slot(&self, with: impl FnMut((usize, &Arc<WorkerTimes>))) {
        self.slots.lock().iter().enumerate().for_each(with);
    }

    /// Takes the counters of each thread and leaves empty ones. The counters by path remain in
    /// `paths`.
    pub fn take(&self, mut with: impl FnMut(WorkerCounters)) {
        let threads = self.threads.lock().clone();
        for thread_counters in threads {
            // The new counters are allocated before the lock, so that no request waits for an
            // allocation.
            let requests = self.reported.then(Box::default);
            let empty = WorkerCounters { requests, ..WorkerCounters::default() };
            // `taken` is locked first, so that `paths` finds each request in exactly one of the
            // two.
            let mut taken = self.taken.lock();
            let mut counters = thread_counters.lock();
            let mut full = std::mem::replace(&mut *counters, empty);
            counters.block = full.block.take();
            drop(counters);
            taken.merge(&full.paths);
            drop(taken);
            with(full);
        }
    }

    /// The requests of all threads since the server began, by interpreter slot and path.
    pub fn paths(&self) -> PathTables {
        // `taken` stays locked, so that no thread's counters are counted twice or missed.
        let taken = self.taken.lock();
        let mut all = PathTables::default();
        all.merge(&taken);
        for thread_counters in self.threads.lock().iter() {
            all.merge(&thread_counters.lock().paths);
        }
        all
    }

    /// Begins a block, in place of the latest.
    pub fn begin_block(&self, now_ns: u64) {
        for thread_counters in self.threads.lock().iter() {
            let block = Some(Box::new(Block::begin(now_ns)));
            // The former block is freed after the lock.
            let former = std::mem::replace(&mut thread_counters.lock().block, block);
            drop(former);
        }
    }

    /// Ends the block. Requests that were noticed in it are still counted.
    pub fn end_block(&self, now_ns: u64) {
        for thread_counters in self.threads.lock().iter() {
            if let Some(block) = &mut thread_counters.lock().block {
                block.end(now_ns);
            }
        }
    }

    /// The answered requests of the latest block, by interpreter slot and path.
    pub fn block(&self) -> PathTables {
        let mut all = PathTables::default();
        for thread_counters in self.threads.lock().iter() {
            if let Some(block) = &thread_counters.lock().block {
                all.merge(&block.paths);
            }
        }
        all
    }

    pub fn note_accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// The number of connections ever accepted, and the number of open ones.
    pub fn connections(&self) -> (u64, u64) {
        let closed = self.closed.load(Relaxed);
        let accepted = self.accepted.load(Relaxed);
        (accepted, accepted.saturating_sub(closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_requests_remain_in_the_table() {
        let counters = ServerStats::new(true);
        let (one, two) = (counters.join(), counters.join());
        let answered = RequestRecord { status: 200, ..RequestRecord::default() };
        let requests = |counters: &ServerStats| {
            counters.paths().rows().iter().map(|(_, row, _)| row.requests).sum::<u64>()
        };
        one.lock().record(b"/a", 0, &answered);
        two.lock().record(b"/a", 0, &answered);
        two.lock().record(b"/b", 0, &answered);
        let mut taken = Vec::new();
        counters.take(|thread_counters| taken.push(thread_counters.requests.unwrap().statuses[2]));
        assert_eq!(taken, [1, 2]);
        assert_eq!(requests(&counters), 3);
        one.lock().record(b"/a", 0, &answered);
        assert_eq!(requests(&counters), 4);
        let mut taken = 0;
        counters.take(|thread_counters| taken += thread_counters.requests.unwrap().statuses[2]);
        assert_eq!((taken, requests(&counters)), (1, 4));
    }

    #[test]
    fn a_reader_never_misses_requests_while_they_are_taken() {
        let counters = ServerStats::new(true);
        let thread_counters = counters.join();
        let answered = RequestRecord { status: 200, ..RequestRecord::default() };
        let requests =
            || counters.paths().rows().iter().map(|(_, row, _)| row.requests).sum::<u64>();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                for _ in 0..2_000 {
                    thread_counters.lock().record(b"/a", 0, &answered);
                    counters.take(|_| ());
                }
            });
            let mut seen = 0;
            while !taker.is_finished() {
                let now = requests();
                assert!(now >= seen, "{now} after {seen}");
                seen = now;
            }
        });
        assert_eq!(requests(), 2_000);
    }

    #[test]
    fn a_block_has_the_requests_that_were_noticed_in_it() {
        let stats = ServerStats::new(true);
        let counters = stats.join();
        let answered = RequestRecord { status: 200, ..RequestRecord::default() };
        let requests = || stats.block().rows().iter().map(|(_, row, _)| row.requests).sum::<u64>();
        counters.lock().record(b"/a", 5, &answered);
        assert_eq!(requests(), 0);
        stats.begin_block(10);
        counters.lock().record(b"/a", 9, &answered);
        counters.lock().record(b"/a", 10, &answered);
        stats.take(drop);
        stats.end_block(20);
        // The first is answered after the end, the second came after it.
        counters.lock().record(b"/b", 19, &answered);
        counters.lock().record(b"/b", 20, &answered);
        assert_eq!(requests(), 2);
        stats.begin_block(30);
        assert_eq!(requests(), 0);
    }
}
