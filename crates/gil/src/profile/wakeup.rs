//! The sleep of the sampler, from which a thread that begins to wait wakes it.

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
