//! The sums of all threads' counters since a tick was last sent.
//!
//! The memory is bounded even if no receiver listens: endpoints beyond a maximum share one row.

use crate::stats::PathRow;
use crate::stats::request_counters::{Phase, RequestCounters};
use headway_measure::Histogram;
use headway_measure::scale::bucket_of_wrapped;
use headway_reporter::{OTHER, Row};
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;
use rustc_hash::FxHashMap;

/// An interpreter that runs requests.
#[derive(Clone, Debug)]
pub struct InterpreterName {
    /// The application group; "" is that of the main interpreter.
    pub group: String,
    /// The name of the interpreter within the group.
    pub name: String,
    pub own_gil: bool,
}

/// More endpoints than a tick has rows for, so that the tick can contain the most important ones.
const MAX_ENDPOINTS: usize = 256;

#[derive(Default)]
pub struct Interval {
    pub server: Histogram,
    pub queue: Histogram,
    pub application: Histogram,
    pub request: Histogram,
    pub gil_wait: Histogram,
    pub input_read: Histogram,
    pub output_write: Histogram,
    pub gil_held: Histogram,
    pub cpu: Histogram,
    pub statuses: [u64; 10],
    pub failed: u64,
    pub input_bytes: u64,
    pub input_reads: u64,
    pub output_bytes: u64,
    pub output_writes: u64,
    endpoints: FxHashMap<EndpointKey, Sums>,
    /// Indexed by interpreter slot.
    interpreters: Vec<Sums>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointKey {
    pub name: String,
    pub is_route: bool,
    /// The application group.
    pub group: String,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    requests: u64,
    errors: u64,
    response: Histogram,
    gil_wait: Histogram,
    gil_held_ns: u64,
    application_ns: u64,
    cpu_ns: u64,
}

impl Interval {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn requests(&self) -> u64 {
        self.statuses.iter().sum()
    }

    pub fn add_requests(&mut self, counters: &RequestCounters) {
        for (sum, phase) in [
            (&mut self.server, &counters.server),
            (&mut self.queue, &counters.queue),
            (&mut self.application, &counters.application),
            (&mut self.input_read, &counters.input_read),
            (&mut self.output_write, &counters.output_write),
            (&mut self.gil_held, &counters.gil_held),
            (&mut self.cpu, &counters.cpu),
        ] {
            add(sum, phase);
        }
        self.statuses.iter_mut().zip(counters.statuses).for_each(|(sum, count)| *sum += count);
        if counters.without_input > 0 {
            self.input_read.merge_durations(0, 0, 0).add(0, counters.without_input);
        }
        self.failed += counters.failed;
        self.input_bytes += counters.input_bytes;
        self.input_reads += counters.input_reads;
        self.output_bytes += counters.output_bytes;
        self.output_writes += counters.output_writes;
    }

    pub fn add_row(&mut self, slot: usize, key: impl FnOnce() -> EndpointKey, row: &PathRow) {
        row.response.add_to(&mut self.request);
        row.gil_wait.add_to(&mut self.gil_wait);
        let sums = Sums {
            requests: row.requests,
            errors: row.errors,
            response: row.response.read(),
            gil_wait: row.gil_wait.read(),
            gil_held_ns: row.gil_held_ns,
            application_ns: row.application_ns,
            cpu_ns: row.cpu_ns,
        };
        if self.interpreters.len() <= slot {
            self.interpreters.resize_with(slot + 1, Sums::default);
        }
        self.interpreters[slot].add(&sums);
        let mut key = key();
        if self.endpoints.len() >= MAX_ENDPOINTS && !self.endpoints.contains_key(&key) {
            key = EndpointKey { name: OTHER.into(), is_route: false, group: String::new() };
        }
        self.endpoints.entry(key).or_default().add(&sums);
    }

    /// The rows of all endpoints, in descending order of total response time.
    pub fn endpoint_rows(&self) -> Vec<EndpointRow> {
        let row = |(key, sums): (&EndpointKey, &Sums)| EndpointRow {
            key: key.clone(),
            sums: sums.clone(),
        };
        let mut rows: Vec<_> = self.endpoints.iter().map(row).collect();
        rows.sort_by(|one, other| {
            let by_time = other.sums.response.sum_ns.cmp(&one.sums.response.sum_ns);
            by_time.then_with(|| one.key.name.cmp(&other.key.name))
        });
        rows
    }

    pub fn interpreter_rows(&self, names: &[InterpreterName]) -> Vec<InterpreterRow> {
        let row = |(interpreter, sums): (&InterpreterName, &Sums)| InterpreterRow {
            name: interpreter.name.clone(),
            own_gil: interpreter.own_gil,
            sums: sums.clone(),
        };
        let all = names.iter().zip(&self.interpreters).map(row);
        all.filter(|row| row.sums.requests > 0).collect()
    }
}

fn add(sum: &mut Histogram, phase: &Phase) {
    if phase.min_ns == u64::MAX {
        return;
    }
    let mut counts: Vec<_> =
        phase.counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
    counts.sort_unstable_by_key(|(wrapped, _)| bucket_of_wrapped(*wrapped));
    let mut merge = sum.merge_durations(phase.sum_ns, phase.min_ns, phase.max_ns);
    for (wrapped, count) in counts {
        merge.add(bucket_of_wrapped(wrapped) as u16, u64::from(*count));
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.response.merge(&other.response);
        self.gil_wait.merge(&other.gil_wait);
        self.gil_held_ns += other.gil_held_ns;
        self.application_ns += other.application_ns;
        self.cpu_ns += other.cpu_ns;
    }
}

pub struct EndpointRow {
    key: EndpointKey,
    sums: Sums,
}

impl Row for EndpointRow {
    fn write(&self, row: &mut Writer) {
        row.text(id::ENDPOINT_NAME, &self.key.name);
        row.count(id::ENDPOINT_IS_ROUTE, u64::from(self.key.is_route));
        row.count(id::ENDPOINT_REQUESTS, self.sums.requests);
        row.count(id::ENDPOINT_ERRORS, self.sums.errors);
        row.histogram(id::ENDPOINT_RESPONSE, &self.sums.response);
        row.histogram(id::ENDPOINT_GIL_WAIT, &self.sums.gil_wait);
        row.seconds_of_ns(id::ENDPOINT_GIL_HELD, self.sums.gil_held_ns);
        row.seconds_of_ns(id::ENDPOINT_APPLICATION, self.sums.application_ns);
        row.seconds_of_ns(id::ENDPOINT_CPU, self.sums.cpu_ns);
        row.text(id::ENDPOINT_APPLICATION_GROUP, &self.key.group);
    }

    fn fold(&mut self, other: Self) {
        if self.key.group != other.key.group {
            self.key.group.clear();
        }
        self.sums.add(&other.sums);
    }

    fn become_other(&mut self) {
        (self.key.name, self.key.is_route) = (OTHER.into(), false);
    }
}

pub struct InterpreterRow {
    name: String,
    own_gil: bool,
    sums: Sums,
}

impl Row for InterpreterRow {
    fn write(&self, row: &mut Writer) {
        row.text(id::INTERPRETER_ROW_NAME, &self.name);
        row.count(id::INTERPRETER_REQUESTS, self.sums.requests);
        row.count(id::INTERPRETER_ERRORS, self.sums.errors);
        row.seconds_of_ns(id::INTERPRETER_APPLICATION, self.sums.application_ns);
        row.seconds_of_ns(id::INTERPRETER_GIL_WAIT, self.sums.gil_wait.sum_ns);
        row.seconds_of_ns(id::INTERPRETER_GIL_HELD, self.sums.gil_held_ns);
        row.count(id::INTERPRETER_OWN_GIL, u64::from(self.own_gil));
    }

    fn fold(&mut self, other: Self) {
        self.own_gil |= other.own_gil;
        self.sums.add(&other.sums);
    }

    fn become_other(&mut self) {
        self.name = OTHER.into();
    }
}
