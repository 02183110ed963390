//! Distributions of an interval, from counts that only ever grow; and in mod_wsgi's form.

use headway_measure::histogram::{Counts, upper_bound_ns};
use headway_telemetry::SparseHistogram;

/// All that was recorded.
pub fn sparse(counts: &Counts) -> SparseHistogram {
    let used = counts.counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mut all = SparseHistogram {
        sum_ns: counts.sum_ns,
        counts: used.map(|(bucket, count)| (bucket as u16, *count)).collect(),
        ..SparseHistogram::default()
    };
    set_extremes(&mut all, counts.min_ns.unwrap_or(0), counts.max_ns);
    all
}

/// What was recorded in between. Extremes are known to the width of a bucket, unless they are those of all time.
pub fn growth(now: &Counts, before: &Counts) -> SparseHistogram {
    let mut since = sparse(now);
    subtract(&mut since, &sparse(before));
    since
}

pub fn subtract(from: &mut SparseHistogram, what: &SparseHistogram) {
    from.sum_ns = from.sum_ns.saturating_sub(what.sum_ns);
    for (bucket, count) in &what.counts {
        if let Ok(at) = from.counts.binary_search_by_key(bucket, |(bucket, _)| *bucket) {
            from.counts[at].1 = from.counts[at].1.saturating_sub(*count);
        }
    }
    from.counts.retain(|(_, count)| *count > 0);
    let (least_ns, most_ns) = (from.min_ns, from.max_ns);
    set_extremes(from, least_ns, most_ns);
}

fn set_extremes(of: &mut SparseHistogram, least_ns: u64, most_ns: u64) {
    let (Some((first, _)), Some((last, _))) = (of.counts.first(), of.counts.last()) else {
        *of = SparseHistogram::default();
        return;
    };
    let bound_ns = |bucket: u16| upper_bound_ns(usize::from(bucket));
    of.min_ns = first.checked_sub(1).map_or(0, bound_ns).max(least_ns).min(most_ns);
    of.max_ns = bound_ns(*last).min(most_ns);
}

/// How many buckets mod_wsgi's distributions have: four steps to each power of two from 1 ms on, and one
/// for all that is longer than 65 s. The first begins at 0.
pub const MOD_WSGI_BUCKETS: usize = 65;

/// `of` as mod_wsgi has it; each of our buckets, which are narrower, goes where its middle lies.
pub fn mod_wsgi_buckets(of: &SparseHistogram) -> [i32; MOD_WSGI_BUCKETS] {
    let mut buckets = [0_i32; MOD_WSGI_BUCKETS];
    for (bucket, count) in &of.counts {
        let upper_ns = upper_bound_ns(usize::from(*bucket)).min(of.max_ns.saturating_add(1));
        let lower_ns = bucket.checked_sub(1).map_or(0, |below| upper_bound_ns(usize::from(below)));
        let place = mod_wsgi_bucket((lower_ns + upper_ns.max(lower_ns)) as f64 / 2e6);
        let count = i32::try_from(*count).unwrap_or(i32::MAX);
        buckets[place] = buckets[place].saturating_add(count);
    }
    buckets
}

/// `wsgi_record_time_in_buckets` of mod_wsgi's wsgi_metrics.c.
fn mod_wsgi_bucket(ms: f64) -> usize {
    if ms < 1.0 {
        return 0;
    }
    if ms >= 65_536.0 {
        return MOD_WSGI_BUCKETS - 1;
    }
    let power = ms.log2().floor();
    let step = ((ms / power.exp2() - 1.0) * 4.0) as usize;
    power as usize * 4 + step.min(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lie_where_mod_wsgi_has_them() {
        for (ms, place) in [
            (0.0, 0),
            (0.999, 0),
            (1.0, 0),
            (1.25, 1),
            (1.99, 3),
            (2.0, 4),
            (5.0, 9),
            (1024.0, 40),
            (65_535.0, 63),
            (65_536.0, 64),
            (1e9, 64),
        ] {
            assert_eq!(mod_wsgi_bucket(ms), place, "{ms} ms");
        }
        let mut all = SparseHistogram::default();
        for ns in [0, 400_000, 1_100_000, 2_200_000, 5_300_000, 5_300_000, 100_000_000_000] {
            all.record(ns);
        }
        let buckets = mod_wsgi_buckets(&all);
        assert_eq!(buckets.iter().sum::<i32>(), 7);
        assert_eq!((buckets[0], buckets[4], buckets[9], buckets[64]), (3, 1, 2, 1));
    }
}
