//! The time of a GIL's holds by kind, so that a wait can be divided by what it was behind.
//!
//! The GIL keeps a total for each kind, and one for the garbage collector (`collection`). A thread
//! notes the totals when its wait begins; what they have grown by when it takes is what it waited
//! for. Short holds are in no total: waits for them are the price of sharing a GIL. Runs in hooks,
//! with the GIL's mutex held.

use headway_sched::LONG_BURST_NS;

/// A drop that comes later than this after its request was no answer of Python code.
const ANSWER_NS: u64 = 1_000_000;

/// A kind of time in holds, beside that of the garbage collector.
///
/// | kind | what the holder did |
/// |---|---|
/// | `PREEMPTIBLE` | it computed, and would have dropped the GIL on request |
/// | `UNANSWERED` | it did not answer a drop request, and ran, as far as is known: C code |
/// | `OFF_CORE` | it did not answer, and did not run: the kernel ran others, or a call blocked |
pub mod kind {
    pub const PREEMPTIBLE: usize = 0;
    pub const UNANSWERED: usize = 1;
    pub const OFF_CORE: usize = 2;
    pub const COUNT: usize = 3;
}

/// Nanoseconds by kind.
pub type HoldTime = [u64; kind::COUNT];

/// Whether a hold is long enough to be in the totals: one that a request ended after a switch
/// interval is, however short the interval. One that a policy ended early is not.
#[inline(always)]
pub fn is_long(hold_ns: u64, at_interval: bool) -> bool {
    at_interval || hold_ns > LONG_BURST_NS
}

/// The answer to a drop request, without what the garbage collector took of it.
#[derive(Clone, Copy)]
pub struct Answer {
    /// The time from the first request to the drop.
    pub ns: u64,
    /// The CPU time that the holder used in the last part of that, if it is known.
    pub cpu: Option<Cpu>,
}

/// The CPU time that a thread used in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub used_ns: u64,
    pub of_ns: u64,
}

/// Whether no Python code takes so long to answer a drop request.
#[inline(always)]
pub fn is_late(answer_ns: u64) -> bool {
    answer_ns >= ANSWER_NS
}

/// Divides a long hold, without what the garbage collector took of it.
pub fn divide(hold_ns: u64, answer: Option<Answer>) -> HoldTime {
    let mut parts = [0; kind::COUNT];
    if let Some(answer) = answer.filter(|answer| is_late(answer.ns)) {
        match answer.cpu {
            Some(cpu) if cpu.used_ns < cpu.of_ns / 2 => {
                let off = 1.0 - cpu.used_ns as f64 / cpu.of_ns as f64;
                parts[kind::OFF_CORE] = ((answer.ns as f64 * off) as u64).min(hold_ns);
            }
            // The call had begun before the request: on average as long before as it lasted after.
            _ => parts[kind::UNANSWERED] = answer.ns.saturating_mul(2).min(hold_ns),
        }
    }
    parts[kind::PREEMPTIBLE] = hold_ns - parts[kind::UNANSWERED] - parts[kind::OFF_CORE];
    parts
}

/// The parts of a wait of `wait_ns` without what the garbage collector took of it. `before` and
/// `now` are the totals at its beginning and end. A wait that began within a hold is shorter than
/// the hold: what nobody could prevent counts first.
pub fn parts_of_wait(before: HoldTime, now: HoldTime, wait_ns: u64) -> HoldTime {
    let mut left_ns = wait_ns;
    let mut parts = [0; kind::COUNT];
    for kind in [kind::UNANSWERED, kind::OFF_CORE, kind::PREEMPTIBLE] {
        parts[kind] = now[kind].saturating_sub(before[kind]).min(left_ns);
        left_ns -= parts[kind];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn answered(ns: u64, cpu: Option<(u64, u64)>) -> Option<Answer> {
        Some(Answer { ns, cpu: cpu.map(|(used_ns, of_ns)| Cpu { used_ns, of_ns }) })
    }

    #[test]
    fn a_hold_is_divided_by_what_its_holder_did() {
        assert_eq!(divide(5 * MS, answered(20_000, None)), [5 * MS, 0, 0]);
        assert_eq!(divide(3 * MS, None), [3 * MS, 0, 0]);
        // A call of 20 ms, of which a request came after 5 ms: the rest is all the call's.
        assert_eq!(divide(20 * MS, answered(15 * MS, None)), [0, 20 * MS, 0]);
        let ran = Some((14 * MS, 15 * MS));
        assert_eq!(divide(100 * MS, answered(15 * MS, ran)), [70 * MS, 30 * MS, 0]);
        // A holder without a core.
        assert_eq!(
            divide(20 * MS, answered(15 * MS, Some((3 * MS, 15 * MS)))),
            [8 * MS, 0, 12 * MS]
        );
        // Its clock was read late: it ran all the time since then.
        assert_eq!(divide(20 * MS, answered(15 * MS, Some((5 * MS, 5 * MS)))), [0, 20 * MS, 0]);
        assert_eq!(divide(1, answered(u64::MAX, None)), [0, 1, 0]);
        assert_eq!(divide(1, answered(u64::MAX, Some((0, u64::MAX)))), [0, 0, 1]);
    }

    #[test]
    fn the_parts_of_a_wait_are_never_more_than_the_wait() {
        let before = [10, 20, 30];
        assert_eq!(parts_of_wait(before, [15, 20, 30], 9), [5, 0, 0]);
        assert_eq!(parts_of_wait(before, [15, 26, 37], 10), [0, 6, 4]);
        assert_eq!(parts_of_wait(before, before, 10), [0, 0, 0]);
    }
}
