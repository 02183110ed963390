//! The log-linear scale of durations in nanoseconds.
//!
//! Every power of two from 512 ns to 275 s is divided into 16 buckets of equal width, so a bucket
//! is at most 6.25 % wide. Bucket 0 counts all shorter durations, the last bucket all longer ones.

const LOWEST_POWER: u32 = 9;
const HIGHEST_POWER: u32 = 37;
const STEPS_PER_POWER: usize = 16;

/// Bucket 0, 16 buckets for each power of two, and one for all longer durations.
pub const BUCKETS: usize = 2 + (HIGHEST_POWER - LOWEST_POWER + 1) as usize * STEPS_PER_POWER;

/// The bucket that counts a duration.
#[inline]
pub fn bucket(ns: u64) -> usize {
    unbounded_bucket(ns).clamp(0, BUCKETS as i64 - 1) as usize
}

/// The bucket of a duration on a scale that continues in both directions.
#[inline(always)]
fn unbounded_bucket(ns: u64) -> i64 {
    // The upper bits of a double, behind the sign, are the power of two and then the step. The
    // conversion rounds only durations that are longer than all buckets.
    let power_and_step = ((ns as i64 as f64).to_bits() >> 48) as i64;
    const FIRST: i64 = (1_023 + LOWEST_POWER as i64) * STEPS_PER_POWER as i64;
    power_and_step - FIRST + 1
}

/// Entries of a table that is indexed by [`wrapped_bucket`].
pub const WRAPPED_BUCKETS: usize = 1_024;
/// The lowest entry for durations below bucket 1: behind the longest duration, a century, and
/// before the shortest, a nanosecond.
const FIRST_WRAPPED: usize = WRAPPED_BUCKETS - 143;

/// The index of a duration in a table of `WRAPPED_BUCKETS` entries, which is cheaper to compute
/// than [`bucket`]: durations outside of the scale have entries of their own. [`bucket_of_wrapped`]
/// maps an index to its bucket.
#[inline(always)]
pub fn wrapped_bucket(ns: u64) -> usize {
    unbounded_bucket(ns) as usize % WRAPPED_BUCKETS
}

/// The bucket that counts the durations of entry `wrapped`.
pub fn bucket_of_wrapped(wrapped: usize) -> usize {
    if wrapped >= FIRST_WRAPPED { 0 } else { wrapped.min(BUCKETS - 1) }
}

/// The shortest duration, in nanoseconds, that is too long for `bucket`; `u64::MAX` for the last.
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

/// The shortest duration that `bucket` counts.
pub fn lower_bound_ns(bucket: usize) -> u64 {
    bucket.checked_sub(1).map_or(0, upper_bound_ns)
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
    fn a_wrapped_bucket_stands_for_its_bucket() {
        let powers = (0..62).map(|power| 1_u64 << power);
        for ns in powers.flat_map(|p| [0, p - 1, p, p + 1, p + p / 3, p + p / 2]) {
            assert_eq!(bucket_of_wrapped(wrapped_bucket(ns)), bucket(ns), "{ns}");
        }
    }

    #[test]
    fn buckets_from_one_microsecond_to_100_s_are_at_most_a_sixteenth_wide() {
        for index in bucket(1_000)..=bucket(100_000_000_000) {
            let (low, high) = (upper_bound_ns(index - 1), upper_bound_ns(index));
            assert!((high - low) * 16 <= low, "bucket {index}: {low} to {high}");
        }
    }
}
