//! The server's telemetry of one interval: mod_wsgi's metrics of requests and threads under its
//! names, Headway's additions, and rows by endpoint and interpreter.
//!
//! Each tick takes the counters of the threads and keeps them here until a tick was sent. Only the
//! reporter's thread calls this.

use crate::stats::counters::{ServerStats, WorkerCounters};
use crate::stats::endpoints::endpoint_of;
use crate::stats::interval::{EndpointKey, InterpreterName, Interval};
use crate::stats::paths::{PathEntry, RowKind};
use crate::stats::routes::Route;
use crate::stats::worker_times::Reading;
use headway_measure::Histogram;
use headway_reporter::mod_wsgi_buckets;
use headway_reporter::{Bounds, RequestCounts, Source, Tick};
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;
use headway_threads::lock::Lock;
use std::sync::{Arc, MutexGuard};

/// The maximum number of thread slots that mod_wsgi reports.
const MAX_SLOTS: usize = 128;
const ENDPOINTS: Bounds = Bounds { rows: 64, bytes: 24_000 };
const INTERPRETERS: Bounds = Bounds { rows: 64, bytes: 7_000 };
/// The space for all distributions with all their buckets, for the metrics of `MAX_SLOTS` threads,
/// and for the most important rows.
const BYTES: usize = 28_000;
const NOT_FOUND: &str = "(404)";
const OTHER: &str = "(other)";

pub struct ServerReport {
    stats: Arc<ServerStats>,
    /// Indexed by interpreter slot.
    interpreters: Vec<InterpreterName>,
    /// The configured number of worker threads.
    threads: usize,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    /// The counters that were taken and not yet sent.
    interval: Interval,
    lifetime: u64,
    slots: Vec<SlotState>,
    accepted_reported: u64,
    accepted: u64,
}

#[derive(Clone, Copy, Default)]
struct SlotState {
    reported: Reading,
    latest: Reading,
    longest_ns: u64,
}

impl ServerReport {
    pub fn new(
        stats: Arc<ServerStats>,
        interpreters: Vec<InterpreterName>,
        threads: usize,
    ) -> Self {
        Self { stats, interpreters, threads: threads.max(1), state: Lock::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn take(&self, state: &mut State) {
        let State { interval, lifetime, .. } = state;
        self.stats.take(|WorkerCounters { paths, requests, .. }| {
            if let Some(counters) = requests {
                *lifetime += counters.statuses.iter().sum::<u64>();
                interval.add_requests(&counters);
            }
            for (slot, entry) in paths.entries() {
                interval.add_row(slot, || self.endpoint(slot, entry), &entry.row);
            }
        });
    }

    fn endpoint(&self, slot: usize, entry: &PathEntry) -> EndpointKey {
        let group = self.interpreters.get(slot).map_or("", |it| &it.group).to_owned();
        if entry.route != Route::NONE {
            if let Some(name) = self.stats.routes.name(entry.route) {
                return EndpointKey { name: (*name).into(), is_route: true, group };
            }
        }
        let name = match entry.kind {
            RowKind::Path => endpoint_of(&entry.name),
            RowKind::Endpoint => String::from_utf8_lossy(&entry.name).into_owned(),
            RowKind::NotFound => NOT_FOUND.into(),
            RowKind::Other => OTHER.into(),
        };
        EndpointKey { name, is_route: false, group }
    }

    fn read_slots(&self, state: &mut State, now_ns: u64) {
        self.stats.for_each_slot(|(number, slot)| {
            if state.slots.len() <= number {
                state.slots.resize(number + 1, SlotState::default());
            }
            let slot_state = &mut state.slots[number];
            slot_state.latest = slot.read(now_ns);
            slot_state.longest_ns = slot_state.longest_ns.max(slot.take_longest_ns());
        });
    }

    fn write_requests(&self, state: &State, tick: &mut Tick) {
        let (interval, out) = (&state.interval, &mut *tick.fields);
        let requests = interval.requests();
        out.count(id::REQUEST_COUNT, requests);
        out.number(id::REQUEST_THROUGHPUT, requests as f64 / tick.period_s.max(1e-9));
        out.count(id::LIFETIME_REQUESTS, state.lifetime);
        out.count(id::REQUESTS_FAILED, interval.failed);
        out.count(id::INPUT_BYTES_TOTAL, interval.input_bytes);
        out.count(id::INPUT_READS_TOTAL, interval.input_reads);
        out.count(id::OUTPUT_BYTES_TOTAL, interval.output_bytes);
        out.count(id::OUTPUT_WRITES_TOTAL, interval.output_writes);
        let [no_status, informational, successful, redirected, client_errors, server_errors, ..] =
            interval.statuses;
        // mod_wsgi counts a request without a status as 500, which its clients receive.
        let beyond: u64 = interval.statuses[6..].iter().sum();
        out.count(id::STATUS_1XX_TOTAL, informational);
        out.count(id::STATUS_2XX_TOTAL, successful);
        out.count(id::STATUS_3XX_TOTAL, redirected);
        out.count(id::STATUS_4XX_TOTAL, client_errors);
        out.count(id::STATUS_5XX_TOTAL, server_errors + no_status + beyond);
        // Without a meter the wait is unknown; a 0 would claim that no request waited.
        let has_wait = !interval.gil_wait.is_empty() || requests == 0;
        for (phase, counts) in [
            (0, Some(&interval.server)),
            (1, Some(&interval.queue)),
            (3, Some(&interval.application)),
            (4, Some(&interval.request)),
            (5, has_wait.then_some(&interval.gil_wait)),
            (6, Some(&interval.input_read)),
            (7, Some(&interval.output_write)),
        ] {
            if let Some(counts) = counts {
                write_phase(out, phase, counts);
            }
        }
        out.histogram(id::GIL_HELD_TIME_HISTOGRAM, &interval.gil_held);
        out.histogram(id::REQUEST_CPU_TIME_HISTOGRAM, &interval.cpu);
    }

    fn write_threads(&self, state: &State, tick: &mut Tick) {
        let out = &mut *tick.fields;
        let busy_ns = |slot: &SlotState| slot.latest.busy_ns.saturating_sub(slot.reported.busy_ns);
        let completed = |slot: &SlotState| slot.latest.completed - slot.reported.completed;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let all_busy_s = seconds(state.slots.iter().map(busy_ns).sum());
        let share = all_busy_s / tick.period_s.max(1e-9) / self.threads as f64;
        let is_active = |slot: &&SlotState| completed(slot) > 0 || slot.latest.current_ns > 0;
        out.number(id::CAPACITY_UTILIZATION, share);
        out.count(id::REQUEST_THREADS_MAXIMUM, self.threads as u64);
        out.count(id::REQUEST_THREADS_STARTED, state.slots.len() as u64);
        out.count(id::REQUEST_THREADS_ACTIVE, state.slots.iter().filter(is_active).count() as u64);
        let mut slots = state.slots.clone();
        slots.resize(self.threads.min(MAX_SLOTS), SlotState::default());
        let times = |of: fn(&SlotState) -> u64| slots.iter().map(move |slot| seconds(of(slot)));
        out.counts(
            id::REQUEST_THREADS_COMPLETED,
            slots.iter().map(|slot| i32::try_from(completed(slot)).unwrap_or(i32::MAX)),
        );
        out.seconds_list(
            id::REQUEST_THREADS_BUSY_TIME,
            slots.iter().map(|slot| seconds(busy_ns(slot))),
        );
        let cpu_ns = |slot: &SlotState| slot.latest.cpu_ns - slot.reported.cpu_ns;
        out.seconds_list(id::REQUEST_THREADS_CPU_TIME, times(cpu_ns));
        out.seconds_list(id::REQUEST_THREADS_CURRENT_ELAPSED, times(|slot| slot.latest.current_ns));
        out.seconds_list(id::REQUEST_THREADS_MAX_DURATION, times(|slot| slot.longest_ns));
    }
}

/// Writes mod_wsgi's mean, extremes and buckets, and Headway's histogram. `phase` is the offset
/// from the ids of the server time.
fn write_phase(out: &mut Writer, phase: u16, durations: &Histogram) {
    let count = durations.count();
    let mean_s = durations.sum_ns as f64 / 1e9 / count.max(1) as f64;
    out.number(id::SERVER_TIME + phase, mean_s);
    if count > 0 {
        out.seconds_of_ns(id::SERVER_TIME_MIN + phase, durations.min_ns);
        out.seconds_of_ns(id::SERVER_TIME_MAX + phase, durations.max_ns);
    }
    out.counts(id::SERVER_TIME_BUCKETS + phase, mod_wsgi_buckets(durations).into_iter());
    out.histogram(id::SERVER_TIME_HISTOGRAM + phase, durations);
}

impl Source for ServerReport {
    fn collect(&self, tick: &mut Tick) {
        let state = &mut *self.lock();
        self.take(state);
        self.read_slots(state, tick.now_ns);
        self.write_requests(state, tick);
        self.write_threads(state, tick);
        let (accepted, open) = self.stats.connections();
        state.accepted = accepted;
        tick.fields.count(id::CONNECTIONS_OPEN, open);
        tick.fields.count(id::CONNECTIONS_ACCEPTED, accepted - state.accepted_reported);
        tick.rows(
            id::INTERPRETERS,
            INTERPRETERS,
            state.interval.interpreter_rows(&self.interpreters),
        );
        tick.rows(id::ENDPOINTS, ENDPOINTS, state.interval.endpoint_rows());
    }

    fn bytes(&self) -> usize {
        BYTES
    }

    fn sent(&self) {
        let state = &mut *self.lock();
        state.interval.clear();
        state.accepted_reported = state.accepted;
        for slot in &mut state.slots {
            (slot.reported, slot.longest_ns) = (slot.latest, 0);
        }
    }

    fn requests(&self) -> Option<RequestCounts> {
        let state = &mut *self.lock();
        self.take(state);
        let mut active = 0;
        self.stats.for_each_slot(|(_, slot)| active += u64::from(slot.is_busy()));
        Some(RequestCounts { lifetime: state.lifetime, active })
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
