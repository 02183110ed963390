//! What the time of a GIL's holds goes to, so that a wait can be divided by what it was behind.
//!
//! The GIL keeps a total for each kind. A thread notes the totals when its wait begins; what they
//! have grown by when it takes is what it waited for. Short holds are in no total: waits for them
//! are the price of sharing a GIL. Runs in hooks, with the GIL's mutex held.

use headway_sched::LONG_BURST_NS;

/// A drop that comes later than this after its request was no answer of Python code.
const ANSWER_NS: u64 = 1_000_000;

/// A kind of time in holds.
///
/// | kind | what the holder did |
/// |---|---|
/// | `PREEMPTIBLE` | it computed, and would have dropped the GIL on request |
/// | `UNANSWERED` | it did not answer a drop request, and ran, as far as is known: C code |
/// | `OFF_CORE` | it did not answer, and did not run: the kernel ran others, or a call blocked |
/// | `COLLECTION` | it collected garbage |
pub mod kind {
    pub const PREEMPTIBLE: usize = 0;
    pub const UNANSWERED: usize = 1;
    pub const OFF_CORE: usize = 2;
    pub const COLLECTION: usize = 3;
    pub const COUNT: usize = 4;
}

/// Nanoseconds by kind.
pub type HoldTime = [u64; kind::COUNT];

/// Whether a hold is long enough to be in the totals. A forced drop ends a turn of a whole switch
/// interval, which may be shorter.
#[inline(always)]
pub fn is_long(hold_ns: u64, forced: bool) -> bool {
    forced || hold_ns > LONG_BURST_NS
}

/// The answer to a drop request: the time from the first request to the drop, and the CPU time that
/// the holder used meanwhile, if it is known.
#[derive(Clone, Copy)]
pub struct Answer {
    pub ns: u64,
    pub cpu_ns: Option<u64>,
}

/// Whether no Python code takes so long to answer a drop request.
#[inline(always)]
pub fn is_late(answer_ns: u64) -> bool {
    answer_ns >= ANSWER_NS
}

/// Divides a long hold, of which `collected_ns` collected garbage.
pub fn divide(hold_ns: u64, answer: Option<Answer>, collected_ns: u64) -> HoldTime {
    let collected_ns = collected_ns.min(hold_ns);
    let left_ns = hold_ns - collected_ns;
    let late_ns = answer.map_or(0, |answer| answer.ns.saturating_sub(collected_ns));
    let mut parts = [0; kind::COUNT];
    match answer.and_then(|answer| answer.cpu_ns) {
        _ if !is_late(late_ns) => {}
        Some(cpu_ns) if 2 * cpu_ns.saturating_sub(collected_ns) < late_ns => {
            let ran_ns = cpu_ns.saturating_sub(collected_ns);
            parts[kind::OFF_CORE] = (late_ns - ran_ns).min(left_ns);
        }
        // The call had begun before the request: on average as long before as it went on after.
        _ => parts[kind::UNANSWERED] = (2 * late_ns).min(left_ns),
    }
    parts[kind::COLLECTION] = collected_ns;
    parts[kind::PREEMPTIBLE] = left_ns - parts[kind::UNANSWERED] - parts[kind::OFF_CORE];
    parts
}

/// The parts of a wait of `wait_ns`, of which `before` and `now` are the totals at its beginning and
/// end. A wait that began within a hold is shorter than the hold: what nobody could prevent counts
/// first.
pub fn parts_of_wait(before: HoldTime, now: HoldTime, wait_ns: u64) -> HoldTime {
    let mut left_ns = wait_ns;
    let mut parts = [0; kind::COUNT];
    for kind in [kind::COLLECTION, kind::UNANSWERED, kind::OFF_CORE, kind::PREEMPTIBLE] {
        parts[kind] = now[kind].saturating_sub(before[kind]).min(left_ns);
        left_ns -= parts[kind];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn answered(ns: u64, cpu_ns: Option<u64>) -> Option<Answer> {
        Some(Answer { ns, cpu_ns })
    }

    #[test]
    fn a_hold_is_divided_by_what_its_holder_did() {
        assert_eq!(divide(5 * MS, answered(20_000, None), 0), [5 * MS, 0, 0, 0]);
        assert_eq!(divide(3 * MS, None, 0), [3 * MS, 0, 0, 0]);
        // A call of 20 ms, of which a request came after 5 ms: the rest is all the call's.
        assert_eq!(divide(20 * MS, answered(15 * MS, None), 0), [0, 20 * MS, 0, 0]);
        assert_eq!(divide(100 * MS, answered(15 * MS, Some(14 * MS)), 0), [70 * MS, 30 * MS, 0, 0]);
        // A holder without a core.
        assert_eq!(divide(20 * MS, answered(15 * MS, Some(MS)), 0), [6 * MS, 0, 14 * MS, 0]);
        // The collector answers no request either.
        let (late, all) = (100 * MS, 105 * MS);
        assert_eq!(divide(all, answered(late, Some(late)), late), [5 * MS, 0, 0, late]);
        let (both, more) = (150 * MS, 205 * MS);
        assert_eq!(divide(more, answered(both, Some(both)), late), [5 * MS, late, 0, late]);
        assert_eq!(divide(MS, None, 7 * MS), [0, 0, 0, MS]);
    }

    #[test]
    fn the_parts_of_a_wait_are_never_more_than_the_wait() {
        let before = [10, 20, 30, 40];
        assert_eq!(parts_of_wait(before, [15, 20, 30, 40], 9), [5, 0, 0, 0]);
        assert_eq!(parts_of_wait(before, [15, 26, 30, 47], 10), [0, 3, 0, 7]);
        assert_eq!(parts_of_wait(before, before, 10), [0, 0, 0, 0]);
    }
}
