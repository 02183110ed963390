//! How a waiter is woken: it spins for a moment and then sleeps.
//!
//! There is one futex for each row. Its thread prepares it while it holds the GIL's mutex, releases
//! the mutex, and waits. The holder of the mutex wakes it.

use super::futex::Futex;

/// The values of the futex.
///
/// | value | meaning | set by |
/// |---|---|---|
/// | `AWAKE` | its thread reads the futex again before it sleeps | the thread, with the GIL's mutex |
/// | `ASLEEP` | its thread sleeps or is about to, and needs a wake | the thread, from `AWAKE` |
/// | `WOKEN` | its thread locks the mutex and decides again | the mutex's holder, or an uninstall |
///
/// The futex of a row that does not wait keeps any value, and waking it has no effect.
pub const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const WOKEN: u32 = 2;

/// Prepares a wait. The caller still holds the mutex.
pub fn prepare(futex: &impl Futex) {
    futex.store(AWAKE);
}

/// Waits to be woken, until `until_ns` at most, and spins for the first `spin_ns`. Returns whether
/// it was woken. The caller has prepared the futex and holds no mutex.
pub fn wait(futex: &impl Futex, spin_ns: u64, until_ns: u64) -> bool {
    if spin_ns > 0 && futex.spin(spin_ns, || futex.load() != AWAKE) {
        return true;
    }
    if !futex.compare_exchange(AWAKE, ASLEEP) {
        return true;
    }
    while futex.load() == ASLEEP {
        if !futex.wait(ASLEEP, until_ns) {
            return false;
        }
    }
    true
}

/// Wakes the thread that waits on `futex`.
pub fn wake(futex: &impl Futex) {
    if futex.swap(WOKEN) == ASLEEP {
        futex.wake(1);
    }
}
