//! Which worker threads rest, and who wakes them.
//!
//! Few active threads are better than many while requests are short: threads that are awake for
//! nothing fight for the GIL and run into its switch interval. So a thread without work parks, and
//! is woken only for work that nobody else will take soon.

use headway_reporter::lock::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::Thread;

/// A turn that has lasted this long may last for ever: its thread does not count as lively. A short
/// request that waits for the GIL behind others is over before.
const STUCK_TURN_NS: u64 = 1_000_000;

#[derive(Default)]
pub struct IdleList {
    lot: Lock<Lists>,
    /// `lot.parked.len()`, to see without the lock that there is nobody to wake.
    parked: AtomicUsize,
    /// `lot.members.len()`, likewise.
    members: AtomicUsize,
}

#[derive(Default)]
struct Lists {
    /// Threads that work or park here.
    members: Vec<Arc<WorkerSlot>>,
    /// The last to come is the first to be woken: its caches are the warmest.
    parked: Vec<Arc<WorkerSlot>>,
}

/// One thread's place.
pub struct WorkerSlot {
    thread: Thread,
    /// Set by whoever takes the seat out of `parked`, cleared by its thread. Both under the lock;
    /// its thread alone reads it without.
    woken: AtomicBool,
    /// When the thread's current turn began, 0 between turns. Written by its thread, read by
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
        let begun_ns = self.turn_begun_ns.load(Relaxed);
        begun_ns == 0 || now_ns < begun_ns + STUCK_TURN_NS
    }
}

impl IdleList {
    pub fn join(&self) -> Arc<WorkerSlot> {
        let seat = Arc::new(WorkerSlot {
            thread: std::thread::current(),
            woken: AtomicBool::new(true),
            turn_begun_ns: AtomicU64::new(0),
        });
        let mut lot = self.lot.lock();
        lot.members.push(seat.clone());
        self.members.store(lot.members.len(), SeqCst);
        seat
    }

    pub fn leave(&self, seat: &Arc<WorkerSlot>) {
        let mut lot = self.lot.lock();
        lot.members.retain(|other| !Arc::ptr_eq(other, seat));
        self.members.store(lot.members.len(), SeqCst);
    }

    /// Takes a place among the parked. After it, check what could have been missed, then `rest`.
    pub fn step_back(&self, seat: &Arc<WorkerSlot>) {
        self.lot.lock().park(seat, &self.parked);
    }

    /// The same, and true, if another thread is awake and not stuck in a long turn; else false,
    /// and no place.
    pub fn prepare_to_park_behind_another(&self, seat: &Arc<WorkerSlot>, now_ns: u64) -> bool {
        let mut lot = self.lot.lock();
        let others_active = lot.members.len() - lot.parked.len() > 1;
        let lively = others_active
            && lot.members.iter().any(|other| {
                !Arc::ptr_eq(other, seat)
                    && other.woken.load(SeqCst)
                    && other.is_progressing(now_ns)
            });
        if lively {
            lot.park(seat, &self.parked);
        }
        lively
    }

    /// Whether another thread than the calling one is in a turn that may be short, and only long
    /// for its wait for the GIL.
    pub fn has_other_short_turn(&self, now_ns: u64) -> bool {
        let me = std::thread::current().id();
        let lot = self.lot.lock();
        lot.members.iter().any(|seat| {
            let in_turn = seat.turn_begun_ns.load(Relaxed) != 0;
            in_turn && seat.is_progressing(now_ns) && seat.thread.id() != me
        })
    }

    /// Gives the place up again, if nobody has taken it.
    pub fn cancel_park(&self, seat: &Arc<WorkerSlot>) {
        let mut lot = self.lot.lock();
        lot.parked.retain(|other| !Arc::ptr_eq(other, seat));
        seat.woken.store(true, SeqCst);
        self.parked.store(lot.parked.len(), SeqCst);
    }

    /// Sleeps until woken.
    pub fn rest(&self, seat: &WorkerSlot) {
        while !seat.woken.load(SeqCst) {
            std::thread::park();
        }
    }

    /// Wakes one thread; false if none is parked.
    pub fn wake_one(&self) -> bool {
        if self.parked.load(SeqCst) == 0 {
            return false;
        }
        let seat = {
            let mut lot = self.lot.lock();
            let seat = lot.parked.pop();
            self.parked.store(lot.parked.len(), SeqCst);
            if let Some(seat) = &seat {
                seat.woken.store(true, SeqCst);
            }
            seat
        };
        if let Some(seat) = &seat {
            seat.thread.unpark();
        }
        seat.is_some()
    }

    pub fn wake_all(&self) {
        while self.wake_one() {}
    }

    /// A hint: the two counts are not of one moment.
    pub fn has_several_awake(&self) -> bool {
        self.members.load(Relaxed) > self.parked.load(Relaxed) + 1
    }

    pub fn has_parked(&self) -> bool {
        self.parked.load(SeqCst) > 0
    }
}

impl Lists {
    fn park(&mut self, seat: &Arc<WorkerSlot>, parked: &AtomicUsize) {
        seat.woken.store(false, SeqCst);
        self.parked.push(seat.clone());
        parked.store(self.parked.len(), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_steps_back_only_behind_a_lively_one() {
        let idle = IdleList::default();
        let (one, two) = (idle.join(), idle.join());
        assert!(idle.prepare_to_park_behind_another(&one, 5));
        assert!(!idle.prepare_to_park_behind_another(&two, 5), "the last one stays");
        assert!(idle.wake_one());
        idle.rest(&one);
        assert!(!idle.wake_one());
        one.begin_turn(1);
        assert!(!idle.has_other_short_turn(2), "its own");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(idle.has_other_short_turn(STUCK_TURN_NS));
                assert!(!idle.has_other_short_turn(1 + STUCK_TURN_NS));
            });
        });
        assert!(
            !idle.prepare_to_park_behind_another(&two, 1 + STUCK_TURN_NS),
            "the other is stuck"
        );
        assert!(idle.prepare_to_park_behind_another(&two, STUCK_TURN_NS));
        idle.cancel_park(&two);
        assert!(!idle.has_parked());
    }

    #[test]
    fn everyone_who_rests_is_woken() {
        let idle = IdleList::default();
        let members = || idle.lot.lock().members.len();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let seat_taken = members();
                scope.spawn(|| {
                    let seat = idle.join();
                    for _ in 0..1_000 {
                        idle.step_back(&seat);
                        idle.rest(&seat);
                    }
                    idle.leave(&seat);
                });
                while members() == seat_taken {
                    std::thread::yield_now();
                }
            }
            while members() > 0 {
                idle.wake_one();
                std::thread::yield_now();
            }
        });
    }
}
