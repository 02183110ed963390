//! The sleep of the sampler, from which a thread that begins to wait wakes it, and one that waits for
//! what the sampler knows of event loops.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use headway_measure::clock::now_ns;

use crate::queue::futex::{Futex, ProcessFutex};

/// Whether the sampler sleeps.
///
/// | value | meaning | next |
/// |---|---|---|
/// | `AWAKE` | the sampler looks at the GILs from time to time, or there is none | `ASLEEP`, by the sampler; `FORCED`, by `force` |
/// | `ASLEEP` | it sleeps until it is woken | `AWAKE`, by a thread that begins to wait, or by the sampler after its limit; `FORCED`, by `force` |
/// | `FORCED` | it must not sleep | `AWAKE`, by the sampler, after a sleep that was none |
static STATE: ProcessFutex = ProcessFutex::new(AWAKE);
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const FORCED: u32 = 2;

/// Wakes the sampler if it sleeps. For hooks.
#[inline]
pub fn wake() {
    if STATE.load() == ASLEEP && STATE.swap(AWAKE) == ASLEEP {
        STATE.wake(1);
    }
}

/// Ends the sampler's sleep or `pause`, or the next one if it does not sleep.
pub fn force() {
    STATE.store(FORCED);
    STATE.wake(1);
}

/// Waits until `until_ns`, or `force`.
pub fn pause(until_ns: u64) {
    STATE.wait(AWAKE, until_ns);
    STATE.store(AWAKE);
}

/// Sleeps until `until_ns`, `wake` or `force`, unless `has_work` returns true.
pub fn sleep(until_ns: u64, has_work: impl FnOnce() -> bool) {
    STATE.store(ASLEEP);
    // A `force` before that store is seen by `has_work`.
    if !has_work() {
        STATE.wait(ASLEEP, until_ns);
    }
    STATE.store(AWAKE);
}

/// The number of the last look at the event loops that has begun, and of the last one that is over;
/// `NO_SAMPLER` if none comes. Writer: the sampler. Reader: `await_loop_look`. SeqCst: a look with a
/// higher number sees what came before the reading.
static LOOP_LOOK_BEGUN: AtomicU64 = AtomicU64::new(0);
static LOOP_LOOK_OVER: AtomicU64 = AtomicU64::new(NO_SAMPLER);
const NO_SAMPLER: u64 = u64::MAX;
/// How long `await_loop_look` waits, and how often it asks.
const LOOK_LIMIT_NS: u64 = 50_000_000;
const LOOK_POLL: Duration = Duration::from_micros(100);

/// The sampler looks at the event loops.
pub fn loop_look<T>(look: impl FnOnce() -> T) -> T {
    let number = LOOP_LOOK_BEGUN.fetch_add(1, SeqCst) + 1;
    let result = look();
    LOOP_LOOK_OVER.store(number, SeqCst);
    result
}

/// The sampler ends.
pub fn no_more_loop_looks() {
    LOOP_LOOK_OVER.store(NO_SAMPLER, SeqCst);
}

/// Has the sampler look at the event loops, and waits until it has, for a limited time. Not for
/// hooks.
pub fn await_loop_look() {
    let begun = LOOP_LOOK_BEGUN.load(SeqCst);
    let limit_ns = now_ns() + LOOK_LIMIT_NS;
    if LOOP_LOOK_OVER.load(SeqCst) != NO_SAMPLER {
        force();
    }
    while LOOP_LOOK_OVER.load(SeqCst) <= begun && now_ns() < limit_ns {
        std::thread::sleep(LOOK_POLL);
    }
}
