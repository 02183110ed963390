//! The plain form of the histogram: without empty buckets, owned by one thread.

use crate::scale::{bucket, lower_bound_ns, upper_bound_ns};

/// Counts, sum and extremes of durations. The extremes are 0 while the histogram is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// (bucket, count), ascending by bucket; no count is 0.
    pub counts: Vec<(u16, u64)>,
}

impl Histogram {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub fn record(&mut self, ns: u64) {
        self.merge_durations(ns, ns, ns).add(bucket(ns) as u16, 1);
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mut merge = self.merge_durations(other.sum_ns, other.min_ns, other.max_ns);
        for (bucket, count) in &other.counts {
            merge.add(*bucket, *count);
        }
    }

    /// Begins to add durations with this sum and these extremes. The caller adds their counts.
    pub fn merge_durations(&mut self, sum_ns: u64, min_ns: u64, max_ns: u64) -> Merge<'_> {
        let is_empty = self.is_empty();
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.min_ns = if is_empty { min_ns } else { self.min_ns.min(min_ns) };
        self.max_ns = self.max_ns.max(max_ns);
        Merge { histogram: self, index: 0 }
    }

    /// The durations that were recorded since this histogram was equal to `earlier`. The extremes
    /// are exact if they are those of the whole time, and otherwise the bounds of their buckets.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.subtract(earlier);
        since
    }

    /// Removes the durations of `other`, which are part of this histogram.
    pub fn subtract(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.saturating_sub(other.sum_ns);
        for (bucket, count) in &other.counts {
            if let Ok(index) = self.counts.binary_search_by_key(bucket, |(bucket, _)| *bucket) {
                self.counts[index].1 = self.counts[index].1.saturating_sub(*count);
            }
        }
        self.counts.retain(|(_, count)| *count > 0);
        let (Some((first, _)), Some((last, _))) = (self.counts.first(), self.counts.last()) else {
            *self = Self::default();
            return;
        };
        self.min_ns = lower_bound_ns(usize::from(*first)).max(self.min_ns).min(self.max_ns);
        self.max_ns = upper_bound_ns(usize::from(*last)).min(self.max_ns);
    }

    /// The smallest duration, in nanoseconds, that at least `share` of all durations do not exceed;
    /// `None` while the histogram is empty.
    ///
    /// The bucket of the result is exact. Within the bucket the result is interpolated linearly
    /// between the bounds of the bucket, or between the extremes of all durations where they are in
    /// the same bucket. `headway.report.distributions` has the same function.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = (count as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0_u64;
        for (bucket, number) in &self.counts {
            let upto = below.saturating_add(*number);
            if upto < rank {
                below = upto;
                continue;
            }
            if *bucket == 0 && self.min_ns == 0 {
                // The shortest bucket also counts waits of length zero.
                return Some(0);
            }
            let bound_ns = upper_bound_ns(usize::from(*bucket));
            let lower_bound_ns = lower_bound_ns(usize::from(*bucket));
            // (rank, duration) of the two points between which the result lies.
            let mut first = (below, lower_bound_ns);
            let mut last = (upto.saturating_add(1), bound_ns);
            if below == 0 && (lower_bound_ns..=bound_ns).contains(&self.min_ns) {
                first = (1, self.min_ns);
            }
            if upto >= count && (first.1..=bound_ns).contains(&self.max_ns) {
                last = (upto, self.max_ns);
            } else if bound_ns == u64::MAX {
                return Some(first.1);
            }
            let ranks = last.0.saturating_sub(first.0);
            let part = if ranks == 0 { 0.0 } else { (rank - first.0) as f64 / ranks as f64 };
            let beyond_first_ns = (part * (last.1 - first.1) as f64).round() as u64;
            return Some(first.1.saturating_add(beyond_first_ns).min(last.1));
        }
        (count > 0).then_some(self.max_ns)
    }
}

/// Counts on their way into a histogram, ascending by bucket.
pub struct Merge<'a> {
    histogram: &'a mut Histogram,
    /// No bucket that is still to come has a lower index in `counts`.
    index: usize,
}

impl Merge<'_> {
    /// Adds a count. `bucket` is not below that of the call before; `count` is not 0.
    pub fn add(&mut self, bucket: u16, count: u64) {
        let counts = &mut self.histogram.counts;
        while counts.get(self.index).is_some_and(|(present, _)| *present < bucket) {
            self.index += 1;
        }
        match counts.get_mut(self.index) {
            Some((present, sum)) if *present == bucket => *sum = sum.saturating_add(count),
            _ => counts.insert(self.index, (bucket, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_on_a_line_between_bounds_or_extremes() {
        let of = |buckets: &[(u64, u64)], (min_ns, max_ns), share| {
            let bucket_below = |bound_ns: u64| bucket(bound_ns - 1) as u16;
            let counts = buckets.iter().map(|(bound_ns, n)| (bucket_below(*bound_ns), *n));
            let counts = counts.collect();
            Histogram { sum_ns: 0, min_ns, max_ns, counts }.percentile_ns(share)
        };
        assert_eq!(of(&[], (0, 0), 0.5), None);
        // 1,024 to 1,088 and 2,048 to 2,176: the first is the shortest, the last the longest.
        let buckets = [(1_088, 3), (2_176, 3)];
        assert_eq!(of(&buckets, (1_030, 2_100), 0.0), Some(1_030));
        assert_eq!(of(&buckets, (1_030, 2_100), 0.5), Some(1_030 + 2 * (1_088 - 1_030) / 3 + 1));
        assert_eq!(of(&buckets, (1_030, 2_100), 0.66), Some(2_048 + (2_100 - 2_048) / 3));
        assert_eq!(of(&buckets, (1_030, 2_100), 1.0), Some(2_100));
        // The shortest bucket may hold durations of length zero.
        assert_eq!(of(&[(512, 9), (1_088, 1)], (0, 1_050), 0.9), Some(0));
        // Impossible extremes, which a sender may claim, are ignored.
        assert_eq!(of(&[(1_088, 1)], (5, 9_000_000), 0.5), Some(1_056));
        assert_eq!(of(&[(u64::MAX, 1)], (0, 0), 0.5), Some(1 << 38));
        assert_eq!(of(&[(u64::MAX, 2)], (0, u64::MAX), 1.0), Some(u64::MAX));
    }

    #[test]
    fn what_was_recorded_since_has_extremes_to_the_width_of_a_bucket() {
        let mut earlier = Histogram::default();
        [1_000, 90_000_000].iter().for_each(|ns| earlier.record(*ns));
        let mut now = earlier.clone();
        assert_eq!(now.since(&earlier), Histogram::default());
        [5_100_000, 5_200_000].iter().for_each(|ns| now.record(*ns));
        let since = now.since(&earlier);
        assert_eq!((since.count(), since.sum_ns), (2, 10_300_000));
        assert!(since.min_ns <= 5_100_000 && since.min_ns > 4_700_000, "{since:?}");
        assert!(since.max_ns >= 5_200_000 && since.max_ns < 5_600_000, "{since:?}");
        assert_eq!(now.since(&Histogram::default()), now);
    }
}
