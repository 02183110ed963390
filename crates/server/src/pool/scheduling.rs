//! The decisions of the pool, as pure functions of what the threads are doing.
//!
//! Few active threads are better than many while requests are short: threads that are awake for
//! nothing contend for the GIL and run into its switch interval. So one thread polls, queues what
//! became ready and then takes from the queue like any other, and the rest park. Short requests
//! then run on one thread, and long ones spread over all threads: a thread that takes one of
//! several connections while requests are long wakes another, and the monitor wakes one when no
//! thread polls and nothing progresses.

use std::time::Duration;

/// Requests that leave the GIL to others for this long are worth several threads.
const LONG_TURN_NS: u64 = 200_000;
/// A turn that has lasted this long may last for ever, so its thread does not count as
/// progressing. A short request that waits for the GIL behind others is over before.
const STUCK_TURN_NS: u64 = 1_000_000;
/// Below this, batching saves no wake-ups: a client on this machine hardly falls asleep between
/// two responses, and would only get them later.
const SHORT_TURN_NS: u64 = 20_000;
/// Fewer connections in the queue are not worth the monitor's attention to a batch.
const BATCH_CONNECTIONS: usize = 2;
/// Ticks without anything to do until the monitor sleeps.
const QUIET_TICKS: u32 = 20;
const TICK: Duration = Duration::from_micros(500);
/// The length of a tick after one with `MANY_TURNS`. Each tick takes a core from a thread that
/// works. A first long request among many short ones keeps the others waiting for longer.
const TICK_OF_MANY_TURNS: Duration = Duration::from_millis(2);
const MANY_TURNS: u64 = 10;

/// The facts that a decision depends on. An answer may cost a load or a lock, so each decision asks
/// for no more than it needs, the cheap answers first.
pub trait Situation {
    /// Threads run Python at the same time, without a GIL or with several.
    fn is_parallel(&self) -> bool;
    /// The average duration of a turn, without its waits for the GIL.
    fn average_turn_ns(&self) -> u64;
    /// The part of it that other threads could have used: it did not hold the GIL.
    fn average_shareable_ns(&self) -> u64;
    fn is_queue_empty(&self) -> bool;
    fn is_polling(&self) -> bool;
    fn has_parked(&self) -> bool;
    fn has_several_awake(&self) -> bool;
}

/// Whether one thread does as well as several.
fn is_light(situation: &impl Situation) -> bool {
    situation.average_shareable_ns() < LONG_TURN_NS
}

/// Before a turn, with `waiting` connections left in the queue: whether to wake another thread, so
/// that they need not wait for the turn's end. With a GIL and an empty queue the monitor wakes a
/// poller: to wake a thread for each short request between long ones would cost these their core.
pub fn wakes_another(situation: &impl Situation, waiting: usize) -> bool {
    let is_useful = match situation.is_parallel() {
        true => waiting > 0 || !(is_light(situation) || situation.is_polling()),
        false => waiting > 0 && !is_light(situation),
    };
    is_useful && situation.has_parked()
}

/// Before a turn, with `waiting` connections left in the queue: whether to begin a batch of
/// responses.
pub fn begins_batch(situation: &impl Situation, waiting: usize) -> bool {
    waiting >= BATCH_CONNECTIONS
        && (SHORT_TURN_NS..LONG_TURN_NS).contains(&situation.average_turn_ns())
}

/// Between turns: whether another thread suffices, if one is awake and progresses. With a GIL two
/// threads that run short requests only wait for each other. A thread that polls does not suffice
/// for what is ready.
pub fn is_superfluous(situation: &impl Situation, is_batch_open: impl FnOnce() -> bool) -> bool {
    is_light(situation)
        && situation.has_several_awake()
        && !is_batch_open()
        && (situation.is_queue_empty() || !situation.is_parallel() && !situation.is_polling())
}

/// Whether a turn that began at `turn_begun_ns` (0: none) may end soon.
pub fn is_progressing(turn_begun_ns: u64, now_ns: u64) -> bool {
    turn_begun_ns == 0 || now_ns < turn_begun_ns + STUCK_TURN_NS
}

/// After a superfluous thread took a place in the idle list: whether something is ready while
/// another thread sleeps in epoll, which does not take it. The thread that polls looks at the
/// queue after it set the polling flag, so one of the two sees the other.
pub fn has_missed_work(situation: &impl Situation) -> bool {
    situation.is_polling() && !situation.is_queue_empty()
}

/// After a thread that found nothing to do took a place in the idle list: whether there is
/// something to do after all.
pub fn has_work(situation: &impl Situation) -> bool {
    !situation.is_queue_empty() || !situation.is_polling()
}

/// Whether events go unseen although a parked thread could poll.
pub fn needs_poller(situation: &impl Situation) -> bool {
    !situation.is_polling() && situation.has_parked()
}

/// The measure of a thread that takes the GIL from another thread and may lose its core when it
/// drops the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// Nothing: among short requests the other thread drops the GIL soon.
    Ignore,
    /// Send the response now.
    Send,
    /// The same, and wake another thread to poll.
    SendAndWake,
}

pub fn before_preemption(
    situation: &impl Situation,
    has_other_short_turn: impl FnOnce() -> bool,
) -> Preemption {
    if has_other_short_turn() {
        Preemption::Ignore
    } else if !is_light(situation) && !situation.is_polling() {
        Preemption::SendAndWake
    } else {
        Preemption::Send
    }
}

/// The monitor's findings in one tick.
#[derive(Clone, Copy, Debug)]
pub struct MonitorTick {
    pub needs_poller: bool,
    /// Threads have deferred or handed-off responses.
    pub has_deferred: bool,
    /// Turns that ended since the last tick.
    pub turns: u64,
}

/// The monitor's action after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterTick {
    /// All active threads are stuck in their applications: wake a parked one.
    pub wakes_one: bool,
    /// Ticks in a row without anything to do.
    pub quiet_ticks: u32,
    /// Sleep for this long until the next tick; `None`: until something happens.
    pub next: Option<Duration>,
}

pub fn after_tick(tick: MonitorTick, quiet_ticks: u32) -> AfterTick {
    let is_busy = tick.needs_poller || tick.has_deferred;
    let quiet_ticks = if is_busy { 0 } else { quiet_ticks + 1 };
    let length = match tick.turns >= MANY_TURNS && !tick.has_deferred {
        true => TICK_OF_MANY_TURNS,
        false => TICK,
    };
    AfterTick {
        wakes_one: tick.needs_poller && tick.turns == 0,
        quiet_ticks,
        next: (quiet_ticks < QUIET_TICKS).then_some(length),
    }
}

#[cfg(test)]
#[path = "scheduling_tests.rs"]
mod tests;
