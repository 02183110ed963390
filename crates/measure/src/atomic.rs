//! The atomic form of the histogram: one thread writes it, others may read it at any time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::histogram::Histogram;
use crate::scale::{BUCKETS, bucket};

/// Adds to a counter that only one thread at a time writes, without a locked instruction. Readers
/// see either value.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Counts, sum, minimum and maximum of durations. All zero bytes are an empty histogram, so it can
/// live in fresh mapped memory.
///
/// Writer: one thread at a time. Readers: any thread or process. Every access is relaxed: a reader
/// that needs the fields to agree must exclude the writer.
#[repr(C)]
pub struct AtomicHistogram {
    pub sum_ns: AtomicU64,
    /// The minimum plus one; 0 while the histogram is empty.
    min_ns_plus_one: AtomicU64,
    max_ns: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

impl AtomicHistogram {
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
        // 0, of an empty histogram, wraps to the largest value, so the first duration is smaller.
        if min_ns < self.min_ns_plus_one.load(Relaxed).wrapping_sub(1) {
            self.min_ns_plus_one.store(min_ns.wrapping_add(1), Relaxed);
        }
        if max_ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(max_ns, Relaxed);
        }
    }

    /// Adds the durations of `other`.
    pub fn merge(&self, other: &Self) {
        let min_ns_plus_one = other.min_ns_plus_one.load(Relaxed);
        if min_ns_plus_one == 0 {
            return;
        }
        add(&self.sum_ns, other.sum_ns.load(Relaxed));
        self.widen(min_ns_plus_one - 1, other.max_ns.load(Relaxed));
        for (sum, counter) in self.counts.iter().zip(&other.counts) {
            let count = counter.load(Relaxed);
            if count != 0 {
                add(sum, count);
            }
        }
    }

    /// Makes this histogram a copy of `other`.
    pub fn copy_from(&self, other: &Self) {
        if other.min_ns_plus_one.load(Relaxed) == 0 {
            return self.clear();
        }
        self.sum_ns.store(other.sum_ns.load(Relaxed), Relaxed);
        self.min_ns_plus_one.store(other.min_ns_plus_one.load(Relaxed), Relaxed);
        self.max_ns.store(other.max_ns.load(Relaxed), Relaxed);
        for (copy, counter) in self.counts.iter().zip(&other.counts) {
            copy.store(counter.load(Relaxed), Relaxed);
        }
    }

    pub fn clear(&self) {
        if self.min_ns_plus_one.load(Relaxed) == 0 {
            return;
        }
        for counter in [&self.sum_ns, &self.min_ns_plus_one, &self.max_ns] {
            counter.store(0, Relaxed);
        }
        self.counts.iter().filter(|c| c.load(Relaxed) != 0).for_each(|c| c.store(0, Relaxed));
    }

    /// Adds the durations of this histogram to `sum`.
    pub fn add_to(&self, sum: &mut Histogram) {
        let Some(min_ns) = self.min_ns_plus_one.load(Relaxed).checked_sub(1) else { return };
        // The writer may be recording. The next reading shows a duration beyond these extremes.
        let max_ns = self.max_ns.load(Relaxed);
        let used = bucket(min_ns)..=bucket(max_ns);
        let first = *used.start();
        let mut merge = sum.merge_durations(self.sum_ns.load(Relaxed), min_ns, max_ns);
        for (offset, counter) in self.counts.get(used).unwrap_or_default().iter().enumerate() {
            let count = counter.load(Relaxed);
            if count != 0 {
                merge.add((first + offset) as u16, count);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.min_ns_plus_one.load(Relaxed) == 0
    }

    pub fn read(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.add_to(&mut histogram);
        histogram
    }
}

impl Default for AtomicHistogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read_and_merged() {
        let (one, two) = (AtomicHistogram::new(), AtomicHistogram::new());
        assert_eq!(one.read(), Histogram::default());
        one.record(0);
        one.record(5_000_000);
        two.record(7_000_000_000);
        two.merge(&one);
        two.merge(&AtomicHistogram::new());
        let read = two.read();
        assert_eq!((read.count(), read.sum_ns), (3, 7_005_000_000));
        assert_eq!((read.min_ns, read.max_ns), (0, 7_000_000_000));
        assert_eq!(read.counts.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 1, 1]);
        two.clear();
        assert_eq!(two.read(), Histogram::default());
    }
}
