//! Each decision of the pool as a table: the situation, and what follows.

use super::*;

#[derive(Clone, Copy, Debug)]
struct Case {
    parallel: bool,
    turn_ns: u64,
    shareable_ns: u64,
    queue_empty: bool,
    polling: bool,
    parked: bool,
    several_awake: bool,
}

/// With a GIL: short requests, one thread awake that neither polls nor has work, others parked.
const SHORT: Case = Case {
    parallel: false,
    turn_ns: 10_000,
    shareable_ns: 0,
    queue_empty: true,
    polling: false,
    parked: true,
    several_awake: false,
};
const LONG: Case = Case { turn_ns: 300_000, shareable_ns: LONG_TURN_NS, ..SHORT };
const POLLING: Case = Case { polling: true, ..SHORT };
const PARALLEL: Case = Case { parallel: true, ..SHORT };
const PARALLEL_LONG: Case = Case { parallel: true, ..LONG };

impl Situation for Case {
    fn is_parallel(&self) -> bool {
        self.parallel
    }

    fn average_turn_ns(&self) -> u64 {
        self.turn_ns
    }

    fn average_shareable_ns(&self) -> u64 {
        self.shareable_ns
    }

    fn is_queue_empty(&self) -> bool {
        self.queue_empty
    }

    fn is_polling(&self) -> bool {
        self.polling
    }

    fn has_parked(&self) -> bool {
        self.parked
    }

    fn has_several_awake(&self) -> bool {
        self.several_awake
    }
}

#[test]
fn another_thread_is_woken_for_what_would_wait_long() {
    for (case, waiting, wakes) in [
        (SHORT, 0, false),
        (SHORT, 9, false),
        (LONG, 0, false),
        (LONG, 1, true),
        (Case { shareable_ns: LONG_TURN_NS - 1, ..LONG }, 1, false),
        (Case { parked: false, ..LONG }, 1, false),
        (PARALLEL, 0, false),
        (PARALLEL, 1, true),
        (PARALLEL_LONG, 0, true),
        (Case { polling: true, ..PARALLEL_LONG }, 0, false),
        (Case { polling: true, ..PARALLEL_LONG }, 1, true),
        (Case { parked: false, ..PARALLEL_LONG }, 1, false),
    ] {
        assert_eq!(wakes_another(&case, waiting), wakes, "{case:?}, {waiting} waiting");
    }
}

#[test]
fn a_batch_is_for_several_connections_and_middling_turns() {
    for (turn_ns, waiting, begins) in [
        (SHORT_TURN_NS, 1, false),
        (SHORT_TURN_NS, 2, true),
        (SHORT_TURN_NS - 1, 2, false),
        (LONG_TURN_NS - 1, 9, true),
        (LONG_TURN_NS, 9, false),
    ] {
        let case = Case { turn_ns, ..SHORT };
        assert_eq!(begins_batch(&case, waiting), begins, "{turn_ns} ns, {waiting} waiting");
    }
}

#[test]
fn a_thread_is_superfluous_beside_another_that_does_as_well() {
    let several = Case { several_awake: true, ..SHORT };
    for (case, batch_open, superfluous) in [
        (SHORT, false, false),
        (several, false, true),
        (several, true, false),
        (Case { shareable_ns: LONG_TURN_NS, ..several }, false, false),
        (Case { queue_empty: false, ..several }, false, true),
        (Case { queue_empty: false, polling: true, ..several }, false, false),
        (Case { polling: true, ..several }, false, true),
        (Case { parallel: true, ..several }, false, true),
        (Case { parallel: true, queue_empty: false, ..several }, false, false),
    ] {
        assert_eq!(is_superfluous(&case, || batch_open), superfluous, "{case:?}, {batch_open}");
    }
}

#[test]
fn a_thread_does_not_park_past_work() {
    for (queue_empty, polling, missed, any) in [
        (true, true, false, false),
        (true, false, false, true),
        (false, true, true, true),
        (false, false, false, true),
    ] {
        let case = Case { queue_empty, polling, ..SHORT };
        assert_eq!((has_missed_work(&case), has_work(&case)), (missed, any), "{case:?}");
    }
}

#[test]
fn a_turn_progresses_for_a_millisecond() {
    for (begun_ns, now_ns, progresses) in
        [(0, u64::MAX, true), (1, STUCK_TURN_NS, true), (1, 1 + STUCK_TURN_NS, false)]
    {
        assert_eq!(is_progressing(begun_ns, now_ns), progresses, "{begun_ns} {now_ns}");
    }
}

#[test]
fn a_thread_that_may_lose_its_core_sends_its_response() {
    for (case, other_short_turn, preemption) in [
        (SHORT, true, Preemption::Ignore),
        (LONG, true, Preemption::Ignore),
        (SHORT, false, Preemption::Send),
        (POLLING, false, Preemption::Send),
        (LONG, false, Preemption::SendAndWake),
        (Case { polling: true, ..LONG }, false, Preemption::Send),
    ] {
        assert_eq!(before_preemption(&case, || other_short_turn), preemption, "{case:?}");
    }
}

#[test]
fn the_monitor_wakes_a_poller_only_where_nothing_progresses() {
    for (case, needs) in [(SHORT, true), (POLLING, false), (Case { parked: false, ..SHORT }, false)]
    {
        assert_eq!(needs_poller(&case), needs, "{case:?}");
    }
    let last = QUIET_TICKS - 1;
    let many = MANY_TURNS;
    for (needs_poller, has_deferred, turns, quiet, expected) in [
        (true, false, 0, 5, (true, 0, Some(TICK))),
        (true, false, 1, 5, (false, 0, Some(TICK))),
        (true, false, many, 5, (false, 0, Some(TICK_OF_MANY_TURNS))),
        (true, true, many, 5, (false, 0, Some(TICK))),
        (false, true, 0, 5, (false, 0, Some(TICK))),
        (false, false, 0, 5, (false, 6, Some(TICK))),
        (false, false, 1, last, (false, QUIET_TICKS, None)),
        (false, true, 1, last, (false, 0, Some(TICK))),
    ] {
        let tick = MonitorTick { needs_poller, has_deferred, turns };
        let AfterTick { wakes_one, quiet_ticks, next } = after_tick(tick, quiet);
        assert_eq!((wakes_one, quiet_ticks, next), expected, "{tick:?} after {quiet}");
    }
}
