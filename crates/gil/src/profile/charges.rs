//! The time that threads wait for one GIL, and the parts of it that are charged to stacks.
//!
//! A nanosecond in which `n` threads wait counts as `n` nanoseconds. It belongs to the hold, or to
//! the gap between a drop and the next take, in which it passes. So the sums are exact, whichever
//! stacks are read. The time without a stack is the difference between the sums and the charges.
//!
//! A stack is read when the time that is not charged yet reaches a limit. The limit is random, so
//! that no pattern of holds can escape it: on average it is half a millisecond of waiting.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};

use headway_measure::add;

use crate::counters::Name;

/// The mean of the random limits, for one waiting thread.
const MEAN_LIMIT_NS: u64 = 500_000;
/// A hold's stack is read during the hold when threads have waited in it for this long,
const FIRST_READING_NS: u64 = 1_000_000;
/// and again after this time, or after a part of the hold's duration, but at most after the last
/// time.
const NEXT_READING_NS: u64 = 2_000_000;
const PART_OF_HOLD: u64 = 8;
const LAST_READING_NS: u64 = 20_000_000;

/// The sums of one GIL under a profile. All zero bytes are unused sums.
///
/// Writers: `charged_held_ns`, `charged_waits_ns`, the limits, `random` and the fields of the last
/// reading: the holder of the store's lock. All others: events, with the GIL's mutex held. Readers:
/// events, and any thread within [`Gil::read`](crate::gil::Gil::read). Relaxed: the
/// mutex, the lock and the GIL's `sequence` order them.
#[repr(C)]
pub struct Charges {
    /// The serial number of the GIL's opening; 0 if the sums are unused.
    pub serial: AtomicU32,
    pub waiters: AtomicU32,
    pub held: AtomicU32,
    /// The row of the thread that began to wait last.
    pub last_waiter: AtomicU32,
    pub interpreter: AtomicI64,
    pub name: Name,
    /// The sums include the time up to this moment.
    pub changed_ns: AtomicU64,
    /// The time that threads waited while the GIL was held.
    pub held_ns: AtomicU64,
    /// The time that threads waited from a drop to the next take.
    pub handoff_ns: AtomicU64,
    /// The sum of the waits that ended in a take.
    pub waits_ns: AtomicU64,
    /// The parts of `held_ns` and of `waits_ns` that are charged to stacks.
    pub charged_held_ns: AtomicU64,
    pub charged_waits_ns: AtomicU64,
    /// The parts of these that found no room in the tables.
    pub lost_held_ns: AtomicU64,
    pub lost_waits_ns: AtomicU64,
    held_limit_ns: AtomicU64,
    waits_limit_ns: AtomicU64,
    random: AtomicU64,
    /// The number of the present or last hold.
    pub holds: AtomicU64,
    /// The value of `held_ns` at the take of this hold.
    held_before_ns: AtomicU64,
    /// The last reading while a thread held: the hold, `held_ns` at that moment, and the stack.
    reading_hold: AtomicU64,
    reading_held_ns: AtomicU64,
    /// The last voluntary drop after a hold in which threads waited long enough for a reading.
    pub voluntary_ns: AtomicU64,
    pub reading_node: AtomicU32,
    pub reading_waiter: AtomicU32,
}

/// A limit that was reached.
pub enum Side {
    Held,
    Waits,
}

impl Charges {
    /// The fields of 64 bits.
    fn numbers(&self) -> [&AtomicU64; 16] {
        [
            &self.changed_ns,
            &self.held_ns,
            &self.handoff_ns,
            &self.waits_ns,
            &self.charged_held_ns,
            &self.charged_waits_ns,
            &self.lost_held_ns,
            &self.lost_waits_ns,
            &self.held_limit_ns,
            &self.waits_limit_ns,
            &self.random,
            &self.holds,
            &self.held_before_ns,
            &self.reading_hold,
            &self.reading_held_ns,
            &self.voluntary_ns,
        ]
    }

    pub fn clear(&self) {
        self.serial.store(0, Relaxed);
        self.numbers().iter().for_each(|number| number.store(0, Relaxed));
    }

    /// Begins the sums of an opening of a GIL.
    pub fn begin(&self, serial: u32, waiters: u32, held: bool, now_ns: u64) {
        self.numbers().iter().for_each(|number| number.store(0, Relaxed));
        self.changed_ns.store(now_ns, Relaxed);
        self.random.store(now_ns | 1, Relaxed);
        self.waiters.store(waiters, Relaxed);
        self.held.store(u32::from(held), Relaxed);
        self.last_waiter.store(u32::MAX, Relaxed);
        self.draw_limit(&Side::Held);
        self.draw_limit(&Side::Waits);
        self.serial.store(serial, Release);
    }

    /// Adds the sums of `other`, which no event changes any more. Several threads may do so.
    pub fn merge(&self, other: &Charges) {
        for (mine, theirs) in self.sums().into_iter().zip(other.sums()) {
            mine.fetch_add(theirs.load(Relaxed), Relaxed);
        }
    }

    fn sums(&self) -> [&AtomicU64; 7] {
        [
            &self.held_ns,
            &self.handoff_ns,
            &self.waits_ns,
            &self.charged_held_ns,
            &self.charged_waits_ns,
            &self.lost_held_ns,
            &self.lost_waits_ns,
        ]
    }

    /// Counts the waiting up to `now_ns`.
    #[inline]
    pub fn advance(&self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.changed_ns.load(Relaxed));
        self.changed_ns.store(now_ns.max(self.changed_ns.load(Relaxed)), Relaxed);
        self.count(passed_ns * u64::from(self.waiters.load(Relaxed)));
    }

    /// Counts the part of a wait before the event that shows it.
    #[inline]
    pub fn count_since(&self, began_ns: u64) {
        self.count(self.changed_ns.load(Relaxed).saturating_sub(began_ns));
    }

    #[inline]
    fn count(&self, waited_ns: u64) {
        let is_held = self.held.load(Relaxed) != 0;
        add(if is_held { &self.held_ns } else { &self.handoff_ns }, waited_ns);
    }

    /// The meter is removed: from here on no thread is seen to wait, or to hold the GIL.
    pub fn close(&self, now_ns: u64) {
        self.advance(now_ns);
        self.waiters.store(0, Relaxed);
        self.held.store(0, Relaxed);
    }

    #[inline]
    pub fn begin_hold(&self) {
        self.held.store(1, Relaxed);
        add(&self.holds, 1);
        self.held_before_ns.store(self.held_ns.load(Relaxed), Relaxed);
    }

    /// The holder is about to drop the GIL by itself.
    #[inline]
    pub fn note_voluntary_drop(&self, now_ns: u64) {
        let waited_ns =
            self.held_ns.load(Relaxed).saturating_sub(self.held_before_ns.load(Relaxed));
        if waited_ns >= FIRST_READING_NS {
            self.voluntary_ns.store(now_ns, Relaxed);
        }
    }

    /// The time that is not charged on this side; `None` if it has not reached its limit.
    #[inline]
    pub fn open_charge_ns(&self, side: &Side) -> Option<u64> {
        let (sum, charged, limit) = match side {
            Side::Held => (&self.held_ns, &self.charged_held_ns, &self.held_limit_ns),
            Side::Waits => (&self.waits_ns, &self.charged_waits_ns, &self.waits_limit_ns),
        };
        let open_ns = sum.load(Relaxed).saturating_sub(charged.load(Relaxed));
        (open_ns > 0 && open_ns >= limit.load(Relaxed)).then_some(open_ns)
    }

    /// A number that changes with each limit that is drawn.
    pub fn any_number(&self) -> u64 {
        self.random.load(Relaxed) >> 32
    }

    /// Draws the next limit: between nothing and twice the mean, for each thread that waits.
    pub fn draw_limit(&self, side: &Side) {
        let mut random = self.random.load(Relaxed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, Relaxed);
        let share = ((random >> 32) * (2 * MEAN_LIMIT_NS)) >> 32;
        let threads = u64::from(self.waiters.load(Relaxed).max(1));
        let limit = match side {
            Side::Held => &self.held_limit_ns,
            Side::Waits => &self.waits_limit_ns,
        };
        limit.store(share * threads, Relaxed);
    }

    /// Notes the stack of the present hold, which has been charged up to `held_ns`.
    pub fn note_reading(&self, hold: u64, held_ns: u64, node: u32, waiter: u32) {
        self.reading_held_ns.store(held_ns, Relaxed);
        self.reading_node.store(node, Relaxed);
        self.reading_waiter.store(waiter, Relaxed);
        self.reading_hold.store(hold, Relaxed);
    }

    /// The tables of stacks are cleared.
    pub fn forget_reading(&self) {
        self.reading_hold.store(0, Relaxed);
    }

    /// Whether the stack of the present hold was read while it lasted.
    pub fn has_reading(&self) -> bool {
        let hold = self.holds.load(Relaxed);
        hold != 0 && self.reading_hold.load(Relaxed) == hold
    }
}

/// A hold that lasts while threads wait.
pub struct Running {
    pub hold: u64,
    /// `held_ns` at the moment of the copy.
    pub held_ns: u64,
    /// The value of `held_ns` from which the stack is read.
    due_ns: u64,
}

impl Running {
    /// A copy at `now_ns`, within `Gil::read`; `None` if nobody holds, or nobody waits.
    pub fn copy(charges: &Charges, now_ns: u64) -> Option<Self> {
        let waiters = u64::from(charges.waiters.load(Relaxed));
        if charges.held.load(Relaxed) == 0 || waiters == 0 {
            return None;
        }
        let passed_ns = now_ns.saturating_sub(charges.changed_ns.load(Relaxed));
        let held_ns = charges.held_ns.load(Relaxed) + passed_ns * waiters;
        let before_ns = charges.held_before_ns.load(Relaxed);
        let due_ns = match charges.has_reading() {
            false => before_ns + FIRST_READING_NS * waiters,
            true => {
                let part_ns = held_ns.saturating_sub(before_ns) / PART_OF_HOLD;
                let step_ns = part_ns.clamp(NEXT_READING_NS * waiters, LAST_READING_NS * waiters);
                charges.reading_held_ns.load(Relaxed) + step_ns
            }
        };
        Some(Self { hold: charges.holds.load(Relaxed), held_ns, due_ns })
    }

    pub fn is_due(&self) -> bool {
        self.held_ns >= self.due_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused() -> Box<Charges> {
        // SAFETY: all zero bytes are unused sums.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    fn sums(charges: &Charges) -> (u64, u64) {
        (charges.held_ns.load(Relaxed), charges.handoff_ns.load(Relaxed))
    }

    #[test]
    fn waiting_belongs_to_the_hold_or_gap_in_which_it_passes_once_for_each_thread() {
        let charges = unused();
        charges.begin(7, 0, true, 100);
        charges.advance(150);
        assert_eq!(sums(&charges), (0, 0));
        // Two threads begin to wait; the second has waited for the mutex since 160.
        charges.waiters.store(1, Relaxed);
        charges.advance(170);
        charges.count_since(160);
        charges.waiters.store(2, Relaxed);
        assert_eq!(sums(&charges), (30, 0));
        // The drop, and the take of one of them.
        charges.advance(200);
        charges.held.store(0, Relaxed);
        assert_eq!(sums(&charges), (90, 0));
        charges.advance(210);
        charges.waiters.store(1, Relaxed);
        charges.begin_hold();
        charges.advance(300);
        assert_eq!(sums(&charges), (180, 20));
        assert_eq!(charges.holds.load(Relaxed), 1);
    }

    #[test]
    fn an_earlier_time_counts_nothing_twice() {
        let charges = unused();
        charges.begin(7, 1, true, 100);
        charges.advance(90);
        charges.advance(110);
        assert_eq!(sums(&charges), (10, 0));
    }

    #[test]
    fn limits_are_below_twice_the_mean_for_each_thread_and_differ() {
        let charges = unused();
        charges.begin(7, 3, true, 12_345);
        let limits: Vec<_> = (0..1_000)
            .map(|_| {
                charges.draw_limit(&Side::Held);
                charges.held_limit_ns.load(Relaxed)
            })
            .collect();
        assert!(limits.iter().all(|limit| *limit < 3 * 2 * MEAN_LIMIT_NS));
        let mean = limits.iter().sum::<u64>() / 1_000;
        assert!((3 * MEAN_LIMIT_NS).abs_diff(mean) < MEAN_LIMIT_NS / 2, "{mean}");
    }

    #[test]
    fn a_hold_is_read_after_a_millisecond_and_then_at_growing_distances() {
        const MS: u64 = 1_000_000;
        let charges = unused();
        charges.begin(7, 1, false, 0);
        charges.begin_hold();
        let mut read_ms = Vec::new();
        for ms in 0..400 {
            let running = Running::copy(&charges, ms * MS).expect("a hold");
            if running.is_due() {
                charges.note_reading(running.hold, running.held_ns, 0, 0);
                read_ms.push(ms);
            }
        }
        assert_eq!(read_ms[..6], [1, 3, 5, 7, 9, 11]);
        let steps: Vec<_> = read_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.windows(2).all(|pair| pair[0] <= pair[1]) && steps.last() == Some(&20));
        charges.advance(400 * MS);
        charges.held.store(0, Relaxed);
        assert!(Running::copy(&charges, 401 * MS).is_none());
    }
}
