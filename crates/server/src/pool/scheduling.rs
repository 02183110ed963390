//! The pool's decisions: how many threads are awake, which of them polls, and when responses are
//! sent together. Each is a function of a [`Load`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Requests that leave the GIL to others for so long are worth several threads.
pub const LONG_TURN_NS: u64 = 200_000;
/// Below it a response that is held back saves no wake-up of its client, and only arrives later.
const SHORT_TURN_NS: u64 = 20_000;
/// Fewer connections behind the one whose turn it is are not worth a batch.
const CONNECTIONS_WORTH_A_BATCH: usize = 2;

/// What the decisions go by. The fields are hints of about the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Threads run Python at the same time, without a GIL or with several.
    pub parallel: bool,
    /// A thread waits for events.
    pub is_polled: bool,
    pub has_parked: bool,
    /// More threads than one are awake.
    pub has_several_awake: bool,
    /// The mean of a turn's duration without its waits for the GIL.
    pub turn_ns: u64,
    /// The part of it that other threads could have used the GIL in.
    pub parallel_ns: u64,
}

impl Load {
    /// Whether one thread serves as well as several.
    fn is_light(&self) -> bool {
        self.parallel_ns < LONG_TURN_NS
    }

    /// Whether a thread wakes another before it runs a request, behind which `waiting` connections are
    /// ready. With a GIL and none ready the monitor wakes a thread to poll: another thread for each
    /// short request between long ones would take the core of these.
    pub fn wakes_another(&self, waiting: usize) -> bool {
        self.has_parked
            && match self.parallel {
                true => waiting > 0 || !(self.is_light() || self.is_polled),
                false => waiting > 0 && !self.is_light(),
            }
    }

    /// Whether a thread parks if another is awake that progresses: with a GIL, two threads that run
    /// short requests wait for each other. A thread that polls does not take up what is ready.
    pub fn parks_behind_another(&self, is_none_ready: impl FnOnce() -> bool) -> bool {
        self.is_light()
            && self.has_several_awake
            && (!self.parallel && !self.is_polled || is_none_ready())
    }

    /// Whether responses are held back from here on, `waiting` connections being ready behind the one
    /// whose turn it is.
    pub fn begins_batch(&self, waiting: usize) -> bool {
        waiting >= CONNECTIONS_WORTH_A_BATCH
            && (SHORT_TURN_NS..LONG_TURN_NS).contains(&self.turn_ns)
    }

    /// Whether a thread that may lose its core to the thread that it took the GIL from wakes another to
    /// poll.
    pub fn wakes_poller_before_preemption(&self) -> bool {
        !self.is_light() && !self.is_polled
    }

    /// Whether the monitor watches for threads that are all stuck in their requests: no thread waits for
    /// events, and one could.
    pub fn needs_watching(&self) -> bool {
        !self.is_polled && self.has_parked
    }
}

/// Moving averages over the turns of all threads.
#[derive(Default)]
pub struct TurnAverages {
    /// See `Load`. Written by all threads, relaxed: of two writers at the same time one loses its sample.
    turn_ns: AtomicU64,
    /// As `turn_ns`.
    parallel_ns: AtomicU64,
    /// Turns that ended. Written by all threads, read by the monitor, relaxed: a hint.
    turns: AtomicU64,
}

impl TurnAverages {
    /// A turn has ended. `turn_ns` leaves out the waits for the GIL, of which it was held for
    /// `held_ns`.
    pub fn add(&self, turn_ns: u64, held_ns: u64) {
        self.turns.fetch_add(1, Relaxed);
        average(&self.turn_ns, turn_ns);
        average(&self.parallel_ns, turn_ns.saturating_sub(held_ns));
    }

    #[cfg(test)]
    pub fn set(&self, turn_ns: u64, parallel_ns: u64) {
        self.turn_ns.store(turn_ns, Relaxed);
        self.parallel_ns.store(parallel_ns, Relaxed);
    }

    pub fn turn_ns(&self) -> u64 {
        self.turn_ns.load(Relaxed)
    }

    pub fn parallel_ns(&self) -> u64 {
        self.parallel_ns.load(Relaxed)
    }

    pub fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }
}

fn average(of: &AtomicU64, sample: u64) {
    let past = of.load(Relaxed);
    of.store(past - past / 16 + sample / 16, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread with short requests, which polls when nothing is ready.
    const IDLE: Load = Load {
        parallel: false,
        is_polled: false,
        has_parked: true,
        has_several_awake: false,
        turn_ns: 0,
        parallel_ns: 0,
    };
    const LONG: Load = Load { turn_ns: LONG_TURN_NS, parallel_ns: LONG_TURN_NS, ..IDLE };
    const PARALLEL: Load = Load { parallel: true, ..IDLE };

    #[test]
    fn another_thread_is_woken_for_long_requests_or_where_threads_run_beside_each_other() {
        for (load, waiting, wakes) in [
            (IDLE, 5, false),
            (LONG, 0, false),
            (LONG, 1, true),
            (Load { has_parked: false, ..LONG }, 1, false),
            (PARALLEL, 0, false),
            (PARALLEL, 1, true),
            (Load { parallel: true, ..LONG }, 0, true),
            (Load { parallel: true, is_polled: true, ..LONG }, 0, false),
        ] {
            assert_eq!(load.wakes_another(waiting), wakes, "{waiting} behind {load:?}");
        }
    }

    #[test]
    fn a_thread_too_many_parks() {
        let several = |load| Load { has_several_awake: true, ..load };
        for (load, is_none_ready, parks) in [
            (IDLE, true, false),
            (several(IDLE), true, true),
            (several(IDLE), false, true),
            (several(Load { is_polled: true, ..IDLE }), false, false),
            (several(Load { is_polled: true, ..IDLE }), true, true),
            (several(PARALLEL), false, false),
            (several(PARALLEL), true, true),
            (several(LONG), true, false),
        ] {
            let parked = load.parks_behind_another(|| is_none_ready);
            assert_eq!(parked, parks, "none ready: {is_none_ready}, {load:?}");
        }
    }

    #[test]
    fn responses_are_sent_together_while_requests_are_neither_short_nor_long() {
        for (turn_ns, waiting, begins) in [
            (SHORT_TURN_NS - 1, 2, false),
            (SHORT_TURN_NS, 1, false),
            (SHORT_TURN_NS, 2, true),
            (LONG_TURN_NS - 1, 2, true),
            (LONG_TURN_NS, 2, false),
        ] {
            assert_eq!(Load { turn_ns, ..IDLE }.begins_batch(waiting), begins, "{turn_ns}");
        }
    }

    #[test]
    fn somebody_looks_for_events_while_requests_are_long() {
        let polled = |load| Load { is_polled: true, ..load };
        assert!(LONG.wakes_poller_before_preemption());
        assert!(!polled(LONG).wakes_poller_before_preemption());
        assert!(!IDLE.wakes_poller_before_preemption());
        assert!(IDLE.needs_watching() && LONG.needs_watching());
        assert!(!polled(IDLE).needs_watching());
        assert!(!Load { has_parked: false, ..IDLE }.needs_watching());
    }

    #[test]
    fn an_average_follows_its_samples() {
        let averages = TurnAverages::default();
        for _ in 0..100 {
            averages.add(160_000, 160_000);
        }
        assert!((100_000..=160_000).contains(&averages.turn_ns()), "{}", averages.turn_ns());
        assert_eq!((averages.parallel_ns(), averages.turns()), (0, 100));
    }
}
