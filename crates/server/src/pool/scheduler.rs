//! The shared state on which scheduling decisions depend, and the wake-ups that follow from a
//! decision.

use crate::connection::table::{Owned, Queued};
use crate::net::epoll::Waker;
use crate::pool::idle::{IdleList, WorkerSlot};
use crate::pool::monitor_handle::MonitorHandle;
use crate::pool::ready::{Ready, ReadyQueue};
use crate::pool::scheduling::{self, Preemption, Situation};
use crate::request::ThreadScheduling;
use headway_measure::clock::now_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

pub struct PoolScheduler {
    pub(super) queue: ReadyQueue,
    pub(super) idle: IdleList,
    pub(super) monitor: MonitorHandle,
    /// True while one thread polls. Set with a swap by a thread that polls, cleared by it.
    /// `SeqCst`, like the idle list's count: a thread that parks looks at the flag, and a thread
    /// that polls looks at the list.
    polling: AtomicBool,
    /// Interrupts the thread that polls.
    pub(super) waker: Waker,
    /// Turns that have ended. Written by all threads, read by the monitor; relaxed, a hint.
    turns: AtomicU64,
    /// Moving averages of the duration of a turn without its waits for the GIL, and of the part of
    /// it that other threads could have used. Written and read by all threads, relaxed: racing
    /// writers lose a sample.
    turn_ns: AtomicU64,
    shareable_ns: AtomicU64,
    parallel: bool,
}

impl PoolScheduler {
    pub fn new(waker: Waker, parallel: bool) -> Self {
        Self {
            queue: ReadyQueue::default(),
            idle: IdleList::default(),
            monitor: MonitorHandle::default(),
            polling: AtomicBool::new(false),
            waker,
            turns: AtomicU64::new(0),
            turn_ns: AtomicU64::new(0),
            shareable_ns: AtomicU64::new(0),
            parallel,
        }
    }

    /// Queues a connection from a thread other than the polling one.
    pub fn submit(&self, owned: Owned) {
        self.submit_queued(owned.queue());
    }

    pub fn submit_queued(&self, connection: Queued) {
        self.submit_since(connection, now_ns());
    }

    /// Queues a connection whose request has waited since `since_ns`.
    pub fn submit_since(&self, connection: Queued, since_ns: u64) {
        self.queue.push(connection, since_ns);
        if !self.idle.wake_one() {
            self.waker.wake();
        }
    }

    /// Takes the connection that has waited longest, with the number of connections left in the
    /// queue. Wakes another thread if that is worth it.
    pub fn take(&self) -> Option<(Ready, usize)> {
        let (ready, waiting) = self.queue.pop()?;
        if scheduling::wakes_another(self, waiting) {
            self.idle.wake_one();
        }
        Some((ready, waiting))
    }

    /// Takes a place in the idle list if another thread suffices.
    pub fn retire_if_superfluous(
        &self,
        slot: &Arc<WorkerSlot>,
        is_batch_open: impl FnOnce() -> bool,
    ) -> bool {
        scheduling::is_superfluous(self, is_batch_open)
            && self.idle.add_behind_another(slot, now_ns())
    }

    /// Parks the calling thread, which has a place in the idle list, unless `has_missed` something.
    pub fn park(&self, slot: &Arc<WorkerSlot>, has_missed: impl Fn() -> bool) {
        // If no thread polls, only the monitor notices work that no thread takes.
        self.monitor.wake_if_asleep();
        if has_missed() {
            self.idle.remove(slot);
        } else {
            self.idle.park(slot);
        }
    }

    /// True if the caller is now the one thread that polls.
    pub fn begin_poll(&self) -> bool {
        !self.polling.swap(true, SeqCst)
    }

    pub fn end_poll(&self) {
        self.polling.store(false, SeqCst);
    }

    /// Records a turn that took `elapsed_ns`.
    pub fn note_turn(&self, elapsed_ns: u64, gil_wait_ns: u64, gil_held_ns: u64) {
        self.turns.fetch_add(1, Relaxed);
        let turn_ns = elapsed_ns.saturating_sub(gil_wait_ns);
        add_sample(&self.turn_ns, turn_ns);
        add_sample(&self.shareable_ns, turn_ns.saturating_sub(gil_held_ns));
    }

    pub fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// Wakes all workers, including the thread that polls.
    pub fn wake_workers(&self) {
        self.idle.wake_all();
        self.waker.wake();
    }

    pub fn wake_everyone(&self) {
        self.wake_workers();
        self.monitor.wake();
    }

    #[cfg(test)]
    pub fn set_averages(&self, turn_ns: u64, shareable_ns: u64) {
        self.turn_ns.store(turn_ns, Relaxed);
        self.shareable_ns.store(shareable_ns, Relaxed);
    }
}

impl ThreadScheduling for PoolScheduler {
    fn wake_monitor_if_asleep(&self) {
        self.monitor.wake_if_asleep();
    }

    fn sends_before_preemption(&self) -> bool {
        let has_other_short_turn = || self.idle.has_other_short_turn(now_ns());
        match scheduling::before_preemption(self, has_other_short_turn) {
            Preemption::Ignore => false,
            Preemption::Send => true,
            Preemption::SendAndWake => {
                self.idle.wake_one();
                true
            }
        }
    }
}

impl Situation for PoolScheduler {
    fn is_parallel(&self) -> bool {
        self.parallel
    }

    fn average_turn_ns(&self) -> u64 {
        self.turn_ns.load(Relaxed)
    }

    fn average_shareable_ns(&self) -> u64 {
        self.shareable_ns.load(Relaxed)
    }

    fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn is_polling(&self) -> bool {
        self.polling.load(SeqCst)
    }

    fn has_parked(&self) -> bool {
        self.idle.has_parked()
    }

    fn has_several_awake(&self) -> bool {
        self.idle.has_several_awake()
    }
}

fn add_sample(average: &AtomicU64, sample: u64) {
    let past = average.load(Relaxed);
    average.store(past - past / 16 + sample / 16, Relaxed);
}
