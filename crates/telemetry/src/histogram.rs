//! The code of a histogram, on the scale of `headway_measure::scale`.
//!
//! All numbers have variable length: the sum, the minimum, the maximum less the minimum, then for
//! each bucket its distance from the one before and its count. An empty histogram is no bytes.

use headway_measure::scale::BUCKETS;
use headway_measure::{Histogram, Merge};

use super::{Malformed, malformed, varint};

pub fn encode(histogram: &Histogram, out: &mut Vec<u8>) {
    if histogram.is_empty() {
        return;
    }
    varint::push(out, histogram.sum_ns);
    varint::push(out, histogram.min_ns);
    varint::push(out, histogram.max_ns - histogram.min_ns);
    let mut last = 0;
    for (bucket, count) in &histogram.counts {
        varint::push(out, u64::from(bucket - last));
        varint::push(out, *count);
        last = *bucket;
    }
}

pub fn decode(code: &[u8]) -> Result<Histogram, Malformed> {
    let mut histogram = Histogram::default();
    merge(&mut histogram, code)?;
    Ok(histogram)
}

/// Adds an encoded histogram to `sum` without decoding it into memory. If the code is malformed,
/// part of it may have been added.
pub fn merge(sum: &mut Histogram, code: &[u8]) -> Result<(), Malformed> {
    let Some((totals, buckets)) = take_totals(code)? else { return Ok(()) };
    if sum.is_empty() {
        // Each bucket has two numbers, of a byte at least.
        sum.counts.reserve(buckets.len() / 2);
    }
    let mut merge: Merge = sum.merge_durations(totals.sum_ns, totals.min_ns, totals.max_ns);
    for_each_bucket(buckets, |bucket, count| merge.add(bucket, count))
}

/// The sums over all buckets of a histogram. All are 0 for an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
}

/// Checks that the code is well-formed, and adds up its buckets without memory for the histogram.
pub fn summary(code: &[u8]) -> Result<Summary, Malformed> {
    let Some((Totals { sum_ns, max_ns, .. }, buckets)) = take_totals(code)? else {
        return Ok(Summary::default());
    };
    let mut count = 0_u64;
    for_each_bucket(buckets, |_, more| count = count.saturating_add(more))?;
    Ok(Summary { count, sum_ns, max_ns })
}

struct Totals {
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// The totals and the code of the buckets; `None` for an empty histogram.
fn take_totals(mut code: &[u8]) -> Result<Option<(Totals, &[u8])>, Malformed> {
    if code.is_empty() {
        return Ok(None);
    }
    let sum_ns = varint::take(&mut code)?;
    let min_ns = varint::take(&mut code)?;
    let max_ns = min_ns.saturating_add(varint::take(&mut code)?);
    if code.is_empty() {
        return malformed("a histogram has a sum and no buckets");
    }
    Ok(Some((Totals { sum_ns, min_ns, max_ns }, code)))
}

#[inline]
fn for_each_bucket(mut code: &[u8], mut visit: impl FnMut(u16, u64)) -> Result<(), Malformed> {
    let mut last = None;
    while !code.is_empty() {
        let step = varint::take(&mut code)?;
        let count = varint::take(&mut code)?;
        let bucket = step.saturating_add(last.unwrap_or(0));
        if (step == 0 && last.is_some()) || bucket >= BUCKETS as u64 || count == 0 {
            return malformed("a histogram's buckets do not ascend, or one is empty");
        }
        visit(bucket as u16, count);
        last = Some(bucket);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headway_measure::scale::{bucket, upper_bound_ns};
    use proptest::prelude::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
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
            encode(&merged, &mut out);
            prop_assert_eq!(decode(&out), Ok(merged));
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
            let histogram = Histogram { sum_ns, min_ns, max_ns, counts };
            prop_assert!(histogram.percentile_ns(share).is_some());
        }

        #[test]
        fn any_bytes_are_a_histogram_or_an_error(bytes: Vec<u8>) {
            if let Ok(histogram) = decode(&bytes) {
                let mut out = Vec::new();
                encode(&histogram, &mut out);
                prop_assert_eq!(decode(&out), Ok(histogram));
            }
        }
    }
}
