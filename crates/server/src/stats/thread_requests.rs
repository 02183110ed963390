//! Records the requests of one thread: counters, busy and CPU time, lines of the access log.

use crate::stats::access_log::{AccessLog, Asked, LogBuffer, LogForm};
use crate::stats::contexts::Contexts;
use crate::stats::cpu_charges::CpuCharges;
use crate::stats::date_cache::DateCache;
use crate::stats::{RequestRecord, ServerStats, WorkerCounters, WorkerTimes};
use headway_threads::lock::Lock;
use std::sync::Arc;

pub struct ThreadRequests {
    /// Written by this thread. Any thread that reports reads or takes it.
    counters: Arc<Lock<WorkerCounters>>,
    /// Exists with telemetry, if the thread runs requests.
    times: Option<Arc<WorkerTimes>>,
    access_log: Option<Arc<AccessLog>>,
    lines: LogBuffer,
    dates: DateCache,
    cpu: CpuCharges,
    contexts: Contexts,
}

impl ThreadRequests {
    /// The record of the calling thread's requests.
    pub fn new(
        stats: &ServerStats,
        access_log: Option<Arc<AccessLog>>,
        runs_requests: bool,
    ) -> Self {
        Self {
            counters: stats.join(),
            times: if runs_requests { stats.join_workers() } else { None },
            access_log,
            lines: LogBuffer::default(),
            dates: DateCache::default(),
            cpu: CpuCharges::of_this_thread(),
            contexts: Contexts::default(),
        }
    }

    /// The date for a response that is framed now.
    pub fn http_date(&mut self) -> &str {
        self.dates.http()
    }

    /// Records that the thread takes a request.
    pub fn begin_request(&mut self, now_ns: u64, target: &[u8]) {
        if let Some(times) = &self.times {
            times.begin(now_ns);
            self.contexts.begin(target);
        }
    }

    /// The request has ended after `elapsed_ns`; returns its CPU time.
    pub fn end_request(&mut self, now_ns: u64, elapsed_ns: u64) -> u64 {
        let cpu_ns = self.cpu.charge(elapsed_ns);
        if let Some(times) = &self.times {
            times.end(now_ns, cpu_ns);
            self.contexts.end();
        }
        cpu_ns
    }

    /// Counts a request, which the poller noticed at `noticed_ns`, and writes its line in the
    /// access log. Calls `ask` only if there is an access log.
    pub fn record<'a>(
        &mut self,
        target: &[u8],
        noticed_ns: u64,
        record: &RequestRecord,
        ask: impl FnOnce(LogForm) -> Asked<'a>,
    ) {
        self.counters.lock().record(target, noticed_ns, record);
        if let Some(log) = &self.access_log {
            self.lines.push(log, ask(log.form), record, &mut self.dates);
        }
    }

    pub fn has_unwritten_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Writes the collected lines of the access log.
    pub fn flush(&mut self) {
        if let Some(log) = &self.access_log {
            self.lines.flush(log);
        }
    }
}
