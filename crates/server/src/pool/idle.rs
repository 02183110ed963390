//! The worker threads of a pool, and the list of those that are parked.

use crate::pool::scheduling::is_progressing;
use headway_threads::lock::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::Thread;

#[derive(Default)]
pub struct IdleList {
    lists: Lock<Lists>,
    /// `lists.parked.len()`. Written under the lock; read without it, `SeqCst`, to see that there
    /// is no thread to wake.
    parked: AtomicUsize,
    /// `lists.workers.len()`. Written under the lock; read without it, relaxed: a hint.
    workers: AtomicUsize,
}

#[derive(Default)]
struct Lists {
    /// All workers, parked or not.
    workers: Vec<Arc<WorkerSlot>>,
    /// The worker that parked last is woken first, because its caches are warmest.
    parked: Vec<Arc<WorkerSlot>>,
}

/// One worker thread.
pub struct WorkerSlot {
    thread: Thread,
    /// False while the slot is among the parked. Set by the thread that takes it out, cleared by
    /// its own thread. Both under the lock; its own thread alone reads it without.
    woken: AtomicBool,
    /// When the thread's current turn began, 0 between turns. Written by the thread, read by
    /// others; relaxed, a hint.
    turn_begun_ns: AtomicU64,
}

impl WorkerSlot {
    pub fn begin_turn(&self, now_ns: u64) {
        self.turn_begun_ns.store(now_ns, Relaxed);
    }

    pub fn end_turn(&self) {
        self.turn_begun_ns.store(0, Relaxed);
    }

    fn is_progressing(&self, now_ns: u64) -> bool {
        is_progressing(self.turn_begun_ns.load(Relaxed), now_ns)
    }
}

impl IdleList {
    /// The calling thread becomes a worker.
    pub fn join(&self) -> Arc<WorkerSlot> {
        let slot = Arc::new(WorkerSlot {
            thread: std::thread::current(),
            woken: AtomicBool::new(true),
            turn_begun_ns: AtomicU64::new(0),
        });
        let mut lists = self.lists.lock();
        lists.workers.push(slot.clone());
        self.workers.store(lists.workers.len(), SeqCst);
        slot
    }

    pub fn leave(&self, slot: &Arc<WorkerSlot>) {
        let mut lists = self.lists.lock();
        lists.workers.retain(|other| !Arc::ptr_eq(other, slot));
        self.workers.store(lists.workers.len(), SeqCst);
    }

    /// Adds a worker to the parked ones. Afterwards the worker checks for work that it has missed,
    /// and then calls `park` or `remove`.
    pub fn add(&self, slot: &Arc<WorkerSlot>) {
        self.add_to(&mut self.lists.lock(), slot);
    }

    /// Adds a worker like `add` if another worker is awake and makes progress, and then returns
    /// true. Otherwise does nothing and returns false.
    pub fn add_behind_another(&self, slot: &Arc<WorkerSlot>, now_ns: u64) -> bool {
        let mut lists = self.lists.lock();
        let others_awake = lists.workers.len() - lists.parked.len() > 1;
        let progressing = others_awake
            && lists.workers.iter().any(|other| {
                !Arc::ptr_eq(other, slot)
                    && other.woken.load(SeqCst)
                    && other.is_progressing(now_ns)
            });
        if progressing {
            self.add_to(&mut lists, slot);
        }
        progressing
    }

    fn add_to(&self, lists: &mut Lists, slot: &Arc<WorkerSlot>) {
        slot.woken.store(false, SeqCst);
        lists.parked.push(slot.clone());
        self.parked.store(lists.parked.len(), SeqCst);
    }

    /// Removes a worker from the parked, if no thread has woken it.
    pub fn remove(&self, slot: &Arc<WorkerSlot>) {
        let mut lists = self.lists.lock();
        lists.parked.retain(|other| !Arc::ptr_eq(other, slot));
        slot.woken.store(true, SeqCst);
        self.parked.store(lists.parked.len(), SeqCst);
    }

    /// Sleeps until woken.
    pub fn park(&self, slot: &WorkerSlot) {
        while !slot.woken.load(SeqCst) {
            std::thread::park();
        }
    }

    /// Wakes one worker; false if none is parked.
    pub fn wake_one(&self) -> bool {
        if self.parked.load(SeqCst) == 0 {
            return false;
        }
        let slot = {
            let mut lists = self.lists.lock();
            let slot = lists.parked.pop();
            self.parked.store(lists.parked.len(), SeqCst);
            if let Some(slot) = &slot {
                slot.woken.store(true, SeqCst);
            }
            slot
        };
        if let Some(slot) = &slot {
            slot.thread.unpark();
        }
        slot.is_some()
    }

    pub fn wake_all(&self) {
        while self.wake_one() {}
    }

    /// Whether a thread other than the calling one is in a turn that may be short, and lasts only
    /// because it waits for the GIL.
    pub fn has_other_short_turn(&self, now_ns: u64) -> bool {
        let me = std::thread::current().id();
        self.lists.lock().workers.iter().any(|slot| {
            let in_turn = slot.turn_begun_ns.load(Relaxed) != 0;
            in_turn && slot.is_progressing(now_ns) && slot.thread.id() != me
        })
    }

    /// A hint, because the two counts are not from the same moment.
    pub fn has_several_awake(&self) -> bool {
        self.workers.load(Relaxed) > self.parked.load(Relaxed) + 1
    }

    pub fn has_parked(&self) -> bool {
        self.parked.load(SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_parks_only_behind_one_that_progresses() {
        const STUCK_NS: u64 = 1_000_000;
        let idle = IdleList::default();
        let (one, two) = (idle.join(), idle.join());
        assert!(idle.add_behind_another(&one, 5));
        assert!(!idle.add_behind_another(&two, 5), "the last one stays");
        assert!(idle.wake_one());
        idle.park(&one);
        assert!(!idle.wake_one());
        one.begin_turn(1);
        assert!(!idle.has_other_short_turn(2), "its own");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(idle.has_other_short_turn(STUCK_NS));
                assert!(!idle.has_other_short_turn(1 + STUCK_NS));
            });
        });
        assert!(!idle.add_behind_another(&two, 1 + STUCK_NS), "the other is stuck");
        assert!(idle.add_behind_another(&two, STUCK_NS));
        idle.remove(&two);
        assert!(!idle.has_parked());
    }

    #[test]
    fn every_parked_worker_is_woken() {
        let idle = IdleList::default();
        let workers = || idle.lists.lock().workers.len();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let before = workers();
                scope.spawn(|| {
                    let slot = idle.join();
                    for _ in 0..1_000 {
                        idle.add(&slot);
                        idle.park(&slot);
                    }
                    idle.leave(&slot);
                });
                while workers() == before {
                    std::thread::yield_now();
                }
            }
            while workers() > 0 {
                idle.wake_one();
                std::thread::yield_now();
            }
        });
    }
}
