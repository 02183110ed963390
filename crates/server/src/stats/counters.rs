//! What all threads of a server have counted. Knows nothing of Python, so that whoever reports may keep it
//! beyond the server's end.
//!
//! Each worker thread writes a book of its own, behind a lock that only a reader of the whole ever
//! contends for. Without telemetry books are never taken, and hold rows by path alone.

use crate::stats::requests::RequestCounters;
use crate::stats::routes::Routes;
use crate::stats::slots::Slot;
use crate::stats::{PathTables, RequestRecord};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// What one thread has counted since its book was last taken.
#[derive(Default)]
pub struct ThreadCounters {
    pub paths: PathTables,
    /// With telemetry.
    pub requests: Option<Box<RequestCounters>>,
}

impl ThreadCounters {
    pub fn record(&mut self, target: &[u8], record: &RequestRecord) {
        if let Some(requests) = &mut self.requests {
            requests.record(record);
        }
        let by_endpoint = self.requests.is_some();
        self.paths.of_place(record.place).record(target, record, by_endpoint);
    }
}

pub struct Counters {
    /// Whether somebody reports, and takes books.
    reported: bool,
    /// One for each thread that ever worked here.
    threads: Mutex<Vec<Arc<Mutex<ThreadCounters>>>>,
    /// One for each worker thread, with telemetry.
    slots: Mutex<Vec<Arc<Slot>>>,
    /// What was in the books that were taken.
    taken: Mutex<PathTables>,
    pub routes: Routes,
    /// Connections. Written by all threads; relaxed, since they are only counted.
    accepted: AtomicU64,
    closed: AtomicU64,
}

impl Counters {
    pub fn new(reported: bool) -> Self {
        Self {
            reported,
            threads: Mutex::default(),
            slots: Mutex::default(),
            taken: Mutex::default(),
            routes: Routes::default(),
            accepted: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }
    }

    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// A book for the calling thread.
    pub fn join(&self) -> Arc<Mutex<ThreadCounters>> {
        let requests = self.reported.then(Box::default);
        let book = Arc::new(Mutex::new(ThreadCounters { requests, ..ThreadCounters::default() }));
        lock(&self.threads).push(Arc::clone(&book));
        book
    }

    /// A slot for the calling thread, which runs requests; `None` without telemetry.
    pub fn join_workers(&self) -> Option<Arc<Slot>> {
        self.reported.then(|| {
            let slot = Arc::<Slot>::default();
            lock(&self.slots).push(Arc::clone(&slot));
            slot
        })
    }

    /// Calls `with` for each slot and its number.
    pub fn for_each_slot(&self, with: impl FnMut((usize, &Arc<Slot>))) {
        lock(&self.slots).iter().enumerate().for_each(with);
    }

    /// Takes what each thread has counted, and leaves empty books. What is by path stays known for good.
    pub fn take(&self, mut with: impl FnMut(ThreadCounters)) {
        let counters = lock(&self.threads).clone();
        for book in counters {
            // Made before the lock, so that no request waits for memory.
            let requests = self.reported.then(Box::default);
            let empty = ThreadCounters { requests, ..ThreadCounters::default() };
            // Locked before, so that `paths` finds them in the one or the other.
            let mut taken = lock(&self.taken);
            let full = std::mem::replace(&mut *lock(&book), empty);
            taken.merge(&full.paths);
            drop(taken);
            with(full);
        }
    }

    /// Requests by place and path since the server began, of all threads together.
    pub fn paths(&self) -> PathTables {
        // Locked throughout, so that no book is counted twice or not at all.
        let taken = lock(&self.taken);
        let mut all = PathTables::default();
        all.merge(&taken);
        for book in lock(&self.threads).iter() {
            all.merge(&lock(book).paths);
        }
        all
    }

    pub fn note_accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// Connections that were ever accepted, and those of them that are open.
    pub fn connections(&self) -> (u64, u64) {
        let closed = self.closed.load(Relaxed);
        let accepted = self.accepted.load(Relaxed);
        (accepted, accepted.saturating_sub(closed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_stays_in_the_table() {
        let counters = Counters::new(true);
        let (one, two) = (counters.join(), counters.join());
        let answered = RequestRecord { status: 200, ..RequestRecord::default() };
        let requests = |counters: &Counters| {
            counters.paths().rows().iter().map(|(_, row, _)| row.requests).sum::<u64>()
        };
        lock(&one).record(b"/a", &answered);
        lock(&two).record(b"/a", &answered);
        lock(&two).record(b"/b", &answered);
        let mut taken = Vec::new();
        counters.take(|book| taken.push(book.requests.unwrap().statuses[2]));
        assert_eq!(taken, [1, 2]);
        assert_eq!(requests(&counters), 3);
        lock(&one).record(b"/a", &answered);
        assert_eq!(requests(&counters), 4);
        let mut taken = 0;
        counters.take(|book| taken += book.requests.unwrap().statuses[2]);
        assert_eq!((taken, requests(&counters)), (1, 4));
    }

    #[test]
    fn requests_are_never_out_of_sight_while_they_are_taken() {
        let counters = Counters::new(true);
        let book = counters.join();
        let answered = RequestRecord { status: 200, ..RequestRecord::default() };
        let requests =
            || counters.paths().rows().iter().map(|(_, row, _)| row.requests).sum::<u64>();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                for _ in 0..2_000 {
                    lock(&book).record(b"/a", &answered);
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
}
