//! Log-linear histogram buckets for durations in nanoseconds.
//!
//! Every power of two from 512 ns to 275 s is cut into 16 buckets of equal width, so a bucket is at
//! most 6.25 % wide. Shorter durations share bucket 0, longer ones the last. Knows nothing of who
//! counts; `record` is called by one writer at a time, readers may come from anywhere.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LOWEST_POWER: u32 = 9;
const HIGHEST_POWER: u32 = 37;
const STEPS_PER_POWER: usize = 16;

/// Bucket 0, 16 for each power of two, and one for all that is longer.
pub const BUCKETS: usize = 2 + (HIGHEST_POWER - LOWEST_POWER + 1) as usize * STEPS_PER_POWER;

/// The bucket that a duration falls into.
#[inline]
pub fn bucket(ns: u64) -> usize {
    unbounded_bucket(ns).clamp(0, BUCKETS as i64 - 1) as usize
}

/// The same as if there were more buckets of both shorter and longer durations.
#[inline(always)]
fn unbounded_bucket(ns: u64) -> i64 {
    // A double has the power of two and then the steps in its upper bits, behind the sign; what it rounds is
    // longer than all buckets.
    let power_and_step = ((ns as i64 as f64).to_bits() >> 48) as i64;
    const FIRST: i64 = (1_023 + LOWEST_POWER as i64) * STEPS_PER_POWER as i64;
    power_and_step - FIRST + 1
}

/// Places of a table that is written more often than it is read: see `place`.
pub const PLACES: usize = 1_024;
/// Behind the longest duration that there is, a century, and before the shortest, a nanosecond.
const PLACE_OF_SHORT: usize = PLACES - 143;

/// Where a duration is counted in a table of `PLACES`: its bucket, but for what is shorter or longer than all
/// buckets. Costs a few instructions less.
#[inline(always)]
pub fn place(ns: u64) -> usize {
    unbounded_bucket(ns) as usize % PLACES
}

/// The bucket whose durations are counted at `place`.
pub fn bucket_at(place: usize) -> usize {
    if place >= PLACE_OF_SHORT { 0 } else { place.min(BUCKETS - 1) }
}

/// The first duration, in nanoseconds, that is too long for `bucket`; `u64::MAX` for the last.
pub fn upper_bound_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1 << LOWEST_POWER;
    }
    if bucket >= BUCKETS - 1 {
        return u64::MAX;
    }
    let power = LOWEST_POWER + ((bucket - 1) / STEPS_PER_POWER) as u32;
    let step = ((bucket - 1) % STEPS_PER_POWER) as u64;
    (STEPS_PER_POWER as u64 + step + 1) << (power - 4)
}

/// The smallest duration, in nanoseconds, that at least `share` of `count` durations do not exceed; `None` of none.
///
/// `buckets` are upper bounds and counts, ascending. Which bucket the duration is in is exact. Within the bucket it
/// lies on a straight line between the bucket's bounds, or between the shortest and the longest of all durations where
/// these are in the same bucket. `headway.books` has the same function.
pub fn percentile_ns(
    buckets: impl IntoIterator<Item = (u64, u64)>,
    count: u64,
    (min_ns, max_ns): (u64, u64),
    share: f64,
) -> Option<u64> {
    let rank = (count as f64 * share).ceil().max(1.0) as u64;
    let mut below = 0_u64;
    for (bound_ns, number) in buckets {
        let upto = below.saturating_add(number);
        if upto < rank {
            below = upto;
            continue;
        }
        let bucket = bucket(bound_ns - 1);
        if bucket == 0 && min_ns == 0 {
            // No wait at all is counted with the shortest.
            return Some(0);
        }
        // The ranks of two durations of which the others lie between, and these durations.
        let lower_bound_ns = bucket.checked_sub(1).map_or(0, upper_bound_ns);
        let mut first = (below, lower_bound_ns);
        let mut last = (upto.saturating_add(1), bound_ns);
        if below == 0 && (lower_bound_ns..=bound_ns).contains(&min_ns) {
            first = (1, min_ns);
        }
        if upto >= count && (first.1..=bound_ns).contains(&max_ns) {
            last = (upto, max_ns);
        } else if bound_ns == u64::MAX {
            return Some(first.1);
        }
        let ranks = last.0.saturating_sub(first.0);
        let part = if ranks == 0 { 0.0 } else { (rank - first.0) as f64 / ranks as f64 };
        let beyond_first_ns = (part * (last.1 - first.1) as f64).round() as u64;
        return Some(first.1.saturating_add(beyond_first_ns).min(last.1));
    }
    (count > 0).then_some(max_ns)
}

/// Adds to a counter that only one thread at a time writes: a load and a store, no locked
/// instruction. Readers see either value.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Counts, sum, minimum and maximum of durations. All zero bytes are an empty histogram, so it can
/// live in fresh mapped memory.
///
/// Writer: one thread at a time. Readers: any thread or process, relaxed; a reader that needs the
/// fields to agree must keep the writer out.
#[repr(C)]
pub struct Histogram {
    pub sum_ns: AtomicU64,
    /// The minimum plus one; 0 while nothing was recorded.
    min_ns_plus_one: AtomicU64,
    max_ns: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

/// A copy of a [`Histogram`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    pub count: u64,
    pub sum_ns: u64,
    /// `None` while nothing was recorded.
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// (upper bound in ns, count), the empty buckets left out.
    pub buckets: Vec<(u64, u64)>,
}

/// Counts of any number of histograms together; all that is in it only ever grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    pub sum_ns: u64,
    /// `None` while nothing was recorded.
    pub min_ns: Option<u64>,
    pub max_ns: u64,
    pub counts: Box<[u64; BUCKETS]>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { sum_ns: 0, min_ns: None, max_ns: 0, counts: Box::new([0; BUCKETS]) }
    }
}

impl Histogram {
    pub const fn new() -> Self {
        Self {
            sum_ns: AtomicU64::new(0),
            min_ns_plus_one: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    #[inline]
    pub fn record(&self, ns: u64) {
        add(&self.sum_ns, ns);
        self.widen(ns, ns);
        add(&self.counts[bucket(ns)], 1);
    }

    #[inline]
    fn widen(&self, min_ns: u64, max_ns: u64) {
        // 0 (nothing yet) wraps to the largest value, so the first duration is a new minimum.
        if min_ns < self.min_ns_plus_one.load(Relaxed).wrapping_sub(1) {
            self.min_ns_plus_one.store(min_ns + 1, Relaxed);
        }
        if max_ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(max_ns, Relaxed);
        }
    }

    /// Adds all that `other` holds.
    pub fn merge(&self, other: &Histogram) {
        let min_ns_plus_one = other.min_ns_plus_one.load(Relaxed);
        if min_ns_plus_one == 0 {
            return;
        }
        add(&self.sum_ns, other.sum_ns.load(Relaxed));
        self.widen(min_ns_plus_one - 1, other.max_ns.load(Relaxed));
        for (mine, theirs) in self.counts.iter().zip(&other.counts) {
            let count = theirs.load(Relaxed);
            if count != 0 {
                add(mine, count);
            }
        }
    }

    /// Makes this histogram a copy of `other`.
    pub fn copy_from(&self, other: &Histogram) {
        if other.min_ns_plus_one.load(Relaxed) == 0 {
            return self.clear();
        }
        self.sum_ns.store(other.sum_ns.load(Relaxed), Relaxed);
        self.min_ns_plus_one.store(other.min_ns_plus_one.load(Relaxed), Relaxed);
        self.max_ns.store(other.max_ns.load(Relaxed), Relaxed);
        for (mine, theirs) in self.counts.iter().zip(&other.counts) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
    }

    pub fn clear(&self) {
        if self.min_ns_plus_one.load(Relaxed) == 0 {
            return;
        }
        for counter in [&self.sum_ns, &self.min_ns_plus_one, &self.max_ns].into_iter() {
            counter.store(0, Relaxed);
        }
        self.counts.iter().filter(|c| c.load(Relaxed) != 0).for_each(|c| c.store(0, Relaxed));
    }

    /// Adds all that this one holds to `all`.
    pub fn add_to(&self, all: &mut Counts) {
        let Some(min_ns) = self.min_ns_plus_one.load(Relaxed).checked_sub(1) else { return };
        // Its writer may be recording: a duration beyond the extremes that are read comes the next time.
        let max_ns = self.max_ns.load(Relaxed);
        let used = bucket(min_ns)..=bucket(max_ns);
        all.sum_ns += self.sum_ns.load(Relaxed);
        all.min_ns = Some(all.min_ns.map_or(min_ns, |least| least.min(min_ns)));
        all.max_ns = all.max_ns.max(max_ns);
        for (sum, counter) in all.counts[used.clone()].iter_mut().zip(&self.counts[used]) {
            *sum += counter.load(Relaxed);
        }
    }

    pub fn read(&self) -> Distribution {
        let mut distribution =
            Distribution { sum_ns: self.sum_ns.load(Relaxed), ..Default::default() };
        let min_ns_plus_one = self.min_ns_plus_one.load(Relaxed);
        if min_ns_plus_one == 0 {
            return distribution;
        }
        distribution.min_ns = Some(min_ns_plus_one - 1);
        distribution.max_ns = Some(self.max_ns.load(Relaxed));
        for (index, counter) in self.counts.iter().enumerate() {
            let count = counter.load(Relaxed);
            if count != 0 {
                distribution.count += count;
                distribution.buckets.push((upper_bound_ns(index), count));
            }
        }
        distribution
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_under_its_bound_and_above_the_one_before() {
        let powers = (0..63).map(|power| 1_u64 << power);
        for ns in powers.flat_map(|p| [p - 1, p, p + 1, p + p / 3, p + p / 2]) {
            let index = bucket(ns);
            assert!(ns < upper_bound_ns(index), "{ns} in bucket {index}");
            assert!(index == 0 || ns >= upper_bound_ns(index - 1), "{ns} in bucket {index}");
        }
    }

    #[test]
    fn a_place_is_that_of_its_bucket() {
        let powers = (0..62).map(|power| 1_u64 << power);
        for ns in powers.flat_map(|p| [0, p - 1, p, p + 1, p + p / 3, p + p / 2]) {
            assert_eq!(bucket_at(place(ns)), bucket(ns), "{ns}");
        }
    }

    #[test]
    fn buckets_from_one_microsecond_to_100_s_are_at_most_a_sixteenth_wide() {
        for index in bucket(1_000)..=bucket(100_000_000_000) {
            let (low, high) = (upper_bound_ns(index - 1), upper_bound_ns(index));
            assert!((high - low) * 16 <= low, "bucket {index}: {low} to {high}");
        }
    }

    #[test]
    fn a_percentile_is_on_a_line_between_bounds_or_extremes() {
        let of = |buckets: &[(u64, u64)], extremes, share| {
            let count = buckets.iter().map(|bucket| bucket.1).sum();
            percentile_ns(buckets.iter().copied(), count, extremes, share)
        };
        assert_eq!(of(&[], (0, 0), 0.5), None);
        // 1,024 to 1,088 and 2,048 to 2,176: the first is the shortest, the last the longest.
        let buckets = [(1_088, 3), (2_176, 3)];
        assert_eq!(of(&buckets, (1_030, 2_100), 0.0), Some(1_030));
        assert_eq!(of(&buckets, (1_030, 2_100), 0.5), Some(1_030 + 2 * (1_088 - 1_030) / 3 + 1));
        assert_eq!(of(&buckets, (1_030, 2_100), 0.66), Some(2_048 + (2_100 - 2_048) / 3));
        assert_eq!(of(&buckets, (1_030, 2_100), 1.0), Some(2_100));
        // What is too short to be told apart, with none at all among it, is none.
        assert_eq!(of(&[(512, 9), (1_088, 1)], (0, 1_050), 0.9), Some(0));
        // Extremes that cannot be are left out, as those of a sender may be.
        assert_eq!(of(&[(1_088, 1)], (5, 9_000_000), 0.5), Some(1_056));
        assert_eq!(of(&[(u64::MAX, 1)], (0, 0), 0.5), Some(1 << 38));
        assert_eq!(of(&[(u64::MAX, 2)], (0, u64::MAX), 1.0), Some(u64::MAX));
    }

    #[test]
    fn what_is_recorded_is_read_and_merged() {
        let (one, two) = (Histogram::new(), Histogram::new());
        assert_eq!(one.read(), Distribution::default());
        one.record(0);
        one.record(5_000_000);
        two.record(7_000_000_000);
        two.merge(&one);
        two.merge(&Histogram::new());
        let read = two.read();
        assert_eq!((read.count, read.sum_ns), (3, 7_005_000_000));
        assert_eq!((read.min_ns, read.max_ns), (Some(0), Some(7_000_000_000)));
        assert_eq!(read.buckets.iter().map(|b| b.1).collect::<Vec<_>>(), [1, 1, 1]);
        two.clear();
        assert_eq!(two.read(), Distribution::default());
    }
}
