//! Histograms in the form of mod_wsgi.

use headway_measure::Histogram;
use headway_measure::scale::{lower_bound_ns, upper_bound_ns};

/// The number of buckets of a mod_wsgi histogram: four for each power of two from 1 ms, and one for
/// durations over 65 s. The first begins at 0.
pub const MOD_WSGI_BUCKETS: usize = 65;

/// The counts in mod_wsgi's buckets. Each bucket of Headway, which is narrower, is added to the
/// bucket that contains its middle.
pub fn mod_wsgi_buckets(of: &Histogram) -> [i32; MOD_WSGI_BUCKETS] {
    let mut buckets = [0_i32; MOD_WSGI_BUCKETS];
    for (bucket, count) in &of.counts {
        let upper_ns = upper_bound_ns(usize::from(*bucket)).min(of.max_ns.saturating_add(1));
        let lower_ns = lower_bound_ns(usize::from(*bucket));
        let bucket = mod_wsgi_bucket((lower_ns + upper_ns.max(lower_ns)) as f64 / 2e6);
        let count = i32::try_from(*count).unwrap_or(i32::MAX);
        buckets[bucket] = buckets[bucket].saturating_add(count);
    }
    buckets
}

/// The same computation as `wsgi_record_time_in_buckets` of mod_wsgi's wsgi_metrics.c.
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
        for (ms, bucket) in [
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
            assert_eq!(mod_wsgi_bucket(ms), bucket, "{ms} ms");
        }
        let mut all = Histogram::default();
        for ns in [0, 400_000, 1_100_000, 2_200_000, 5_300_000, 5_300_000, 100_000_000_000] {
            all.record(ns);
        }
        let buckets = mod_wsgi_buckets(&all);
        assert_eq!(buckets.iter().sum::<i32>(), 7);
        assert_eq!((buckets[0], buckets[4], buckets[9], buckets[64]), (3, 1, 2, 1));
    }
}
