//! The request counters of one thread since they were last taken: the distributions of each phase
//! with their exact extremes, statuses and bytes.
//!
//! They exist only with telemetry. The thread writes a few words per request; the reporter takes
//! the counters as a whole and leaves empty ones. Response times and GIL waits are in the rows of
//! `paths` and are not repeated here.

use crate::stats::RequestRecord;
use headway_measure::scale::{WRAPPED_BUCKETS, wrapped_bucket};

/// The durations of one phase.
#[derive(Clone, Debug)]
pub struct Phase {
    pub sum_ns: u64,
    /// `u64::MAX` until a duration is recorded.
    pub min_ns: u64,
    pub max_ns: u64,
    /// Indexed by `wrapped_bucket`.
    pub counts: [u32; WRAPPED_BUCKETS],
}

impl Phase {
    #[inline(always)]
    fn record(&mut self, ns: u64) {
        self.sum_ns += ns;
        if ns < self.min_ns || ns > self.max_ns {
            self.widen(ns);
        }
        self.counts[wrapped_bucket(ns)] += 1;
    }

    #[cold]
    #[inline(never)]
    fn widen(&mut self, ns: u64) {
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }
}

impl Default for Phase {
    fn default() -> Self {
        Self { sum_ns: 0, min_ns: u64::MAX, max_ns: 0, counts: [0; WRAPPED_BUCKETS] }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RequestCounters {
    pub server: Phase,
    pub queue: Phase,
    pub application: Phase,
    pub input_read: Phase,
    pub output_write: Phase,
    pub gil_held: Phase,
    pub cpu: Phase,
    /// Indexed by the first digit of the status; 0 for requests without a status.
    pub statuses: [u64; 10],
    pub failed: u64,
    /// Requests without a body. Their `input_read` is 0 and is not recorded in that phase.
    pub without_input: u64,
    pub input_bytes: u64,
    pub input_reads: u64,
    pub output_bytes: u64,
    pub output_writes: u64,
}

impl RequestCounters {
    pub fn record(&mut self, record: &RequestRecord) {
        self.statuses[usize::from(record.status / 100).min(9)] += 1;
        self.failed += u64::from(record.failed);
        self.output_bytes += record.output_bytes;
        self.output_writes += u64::from(record.output_writes);
        self.queue.record(record.queue_ns);
        self.cpu.record(record.cpu_ns);
        self.output_write.record(record.output_write_ns);
        if record.input_bytes | record.input_read_ns != 0 {
            self.input_bytes += record.input_bytes;
            self.input_reads += u64::from(record.input_reads);
            self.input_read.record(record.input_read_ns);
        } else {
            self.without_input += 1;
        }
        // These phases belong to the application, which a rejected request never reaches.
        if record.server_ns != 0 {
            self.server.record(record.server_ns);
            self.application.record(record.application_ns);
        }
        if let Some(ns) = record.gil_held_ns {
            self.gil_held.record(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_extremes_and_sum() {
        let mut counters = RequestCounters::default();
        for (application_ns, status) in [(7_000_000, 200), (3_000, 503), (0, 0)] {
            counters.record(&RequestRecord {
                status,
                server_ns: 1,
                application_ns,
                gil_held_ns: Some(application_ns / 2),
                input_bytes: 3,
                input_reads: 1,
                output_writes: 2,
                failed: status == 0,
                ..RequestRecord::default()
            });
        }
        let phase = &counters.application;
        assert_eq!((phase.sum_ns, phase.min_ns, phase.max_ns), (7_003_000, 0, 7_000_000));
        assert_eq!(phase.counts[wrapped_bucket(3_000)], 1);
        assert_eq!(phase.counts.iter().sum::<u32>(), 3);
        assert_eq!(counters.gil_held.max_ns, 3_500_000);
        assert_eq!((counters.statuses[2], counters.statuses[5], counters.statuses[0]), (1, 1, 1));
        assert_eq!(
            (counters.failed, counters.input_bytes, counters.input_reads, counters.output_writes),
            (1, 9, 3, 6)
        );
    }

    #[test]
    fn a_rejected_request_has_no_application_phase() {
        let mut counters = RequestCounters::default();
        counters.record(&RequestRecord { status: 504, queue_ns: 5, ..RequestRecord::default() });
        assert_eq!(counters.application.counts.iter().sum::<u32>(), 0);
        assert_eq!((counters.queue.max_ns, counters.statuses[5]), (5, 1));
    }
}
