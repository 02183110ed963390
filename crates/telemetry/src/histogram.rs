//! Distributions of durations, on the meter's scale (`headway_measure::histogram`: at most 6.25 % wide from 1 µs on),
//! without the buckets that nothing fell into.
//!
//! The code, all numbers of variable length: the sum, the minimum, the maximum less the minimum, then for each bucket
//! how far it is from the one before and its count. An empty distribution is no bytes at all.

use super::{Malformed, malformed, varint};
use headway_measure::histogram::{BUCKETS, bucket, percentile_ns, upper_bound_ns};

/// Counts, sum and extremes in nanoseconds. `min_ns` and `max_ns` are 0 while it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseHistogram {
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// (bucket, count), by bucket; no count is 0.
    pub counts: Vec<(u16, u64)>,
}

impl SparseHistogram {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub fn record(&mut self, ns: u64) {
        self.merge(&Self {
            sum_ns: ns,
            min_ns: ns,
            max_ns: ns,
            counts: vec![(bucket(ns) as u16, 1)],
        });
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.widen(other.sum_ns, other.min_ns, other.max_ns);
        let mut at = 0;
        for (bucket, count) in &other.counts {
            at = self.add(at, *bucket, *count);
        }
    }

    /// The same for one that is in code, without a copy of it. If that is malformed, some of it may be in the sum.
    pub fn merge_code(&mut self, code: &[u8]) -> Result<(), Malformed> {
        let mut at = 0;
        read(code, |(sum_ns, min_ns, max_ns), bucket, count| {
            if let Some(sum_ns) = sum_ns {
                self.widen(sum_ns, min_ns, max_ns);
            }
            at = self.add(at, bucket, count);
        })
    }

    /// Whether it is one, without memory for it.
    pub fn check(code: &[u8]) -> Result<(), Malformed> {
        read(code, |_, _, _| ())
    }

    fn widen(&mut self, sum_ns: u64, min_ns: u64, max_ns: u64) {
        let is_empty = self.is_empty();
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.min_ns = if is_empty { min_ns } else { self.min_ns.min(min_ns) };
        self.max_ns = self.max_ns.max(max_ns);
    }

    /// Adds to a bucket that is at the place `from` or later, and returns its place.
    fn add(&mut self, from: usize, bucket: u16, count: u64) -> usize {
        let mut at = from;
        while self.counts.get(at).is_some_and(|(mine, _)| *mine < bucket) {
            at += 1;
        }
        match self.counts.get_mut(at) {
            Some((mine, sum)) if *mine == bucket => *sum = sum.saturating_add(count),
            _ => self.counts.insert(at, (bucket, count)),
        }
        at
    }

    /// The smallest duration that at least `share` of all do not exceed, interpolated within its bucket; `None` while
    /// it is empty.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let buckets =
            self.counts.iter().map(|(at, count)| (upper_bound_ns(usize::from(*at)), *count));
        percentile_ns(buckets, self.count(), (self.min_ns, self.max_ns), share)
    }

    pub fn push(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        varint::push(out, self.sum_ns);
        varint::push(out, self.min_ns);
        varint::push(out, self.max_ns - self.min_ns);
        let mut last = 0;
        for (bucket, count) in &self.counts {
            varint::push(out, u64::from(bucket - last));
            varint::push(out, *count);
            last = *bucket;
        }
    }

    pub fn parse(code: &[u8]) -> Result<Self, Malformed> {
        let mut histogram = Self::default();
        histogram.merge_code(code)?;
        Ok(histogram)
    }
}

/// Tells of each bucket; with the first also of the sum, the minimum and the maximum.
fn read(
    mut code: &[u8],
    mut tell: impl FnMut((Option<u64>, u64, u64), u16, u64),
) -> Result<(), Malformed> {
    if code.is_empty() {
        return Ok(());
    }
    let mut sum_ns = Some(varint::take(&mut code)?);
    let min_ns = varint::take(&mut code)?;
    let max_ns = min_ns.saturating_add(varint::take(&mut code)?);
    if code.is_empty() {
        return malformed("a histogram has a sum and no buckets");
    }
    let mut last = 0;
    while !code.is_empty() {
        let step = varint::take(&mut code)?;
        let count = varint::take(&mut code)?;
        let bucket = step.saturating_add(last);
        if (step == 0 && sum_ns.is_none()) || bucket >= BUCKETS as u64 || count == 0 {
            return malformed("a histogram's buckets do not ascend, or one is empty");
        }
        tell((sum_ns.take(), min_ns, max_ns), bucket as u16, count);
        last = bucket;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(durations: &[u64]) -> SparseHistogram {
        let mut histogram = SparseHistogram::default();
        durations.iter().for_each(|ns| histogram.record(*ns));
        histogram
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_how_they_are_grouped(
            one in proptest::collection::vec(0..u64::MAX / 1_000, 0..50),
            two in proptest::collection::vec(0..u64::MAX / 1_000, 0..50),
        ) {
            let mut merged = of(&one);
            merged.merge(&of(&two));
            let all: Vec<u64> = one.iter().chain(&two).copied().collect();
            prop_assert_eq!(&merged, &of(&all));
            prop_assert_eq!(merged.count(), all.len() as u64);
            let mut out = Vec::new();
            merged.push(&mut out);
            prop_assert_eq!(SparseHistogram::parse(&out), Ok(merged));
        }

        #[test]
        fn a_percentile_is_in_its_bucket_and_within_the_extremes(
            mut durations in proptest::collection::vec(0..1_000_000_000_000_u64, 1..200),
            share in 0.01..1.0,
        ) {
            let found = of(&durations).percentile_ns(share).unwrap();
            durations.sort_unstable();
            let exact = durations[(durations.len() as f64 * share).ceil() as usize - 1];
            let off_by = bucket(found).abs_diff(bucket(exact));
            prop_assert!(off_by == 0 || found == upper_bound_ns(bucket(exact)), "{found} for {exact}");
            prop_assert!(durations[0] <= found && found <= durations[durations.len() - 1]);
        }

        #[test]
        fn a_sender_s_malformed_histogram_has_percentiles_within_its_extremes_or_buckets(
            sum_ns: u64, min_ns: u64, max_ns: u64, share in 0.0..1.0,
            counts in proptest::collection::btree_map(0..BUCKETS as u16, 1..u64::MAX, 1..9),
        ) {
            let counts = counts.into_iter().collect();
            let histogram = SparseHistogram { sum_ns, min_ns, max_ns, counts };
            prop_assert!(histogram.percentile_ns(share).is_some());
        }

        #[test]
        fn any_bytes_are_a_histogram_or_an_error(bytes: Vec<u8>) {
            if let Ok(histogram) = SparseHistogram::parse(&bytes) {
                let mut out = Vec::new();
                histogram.push(&mut out);
                prop_assert_eq!(SparseHistogram::parse(&out), Ok(histogram));
            }
        }
    }
}
