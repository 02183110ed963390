//! The record of a tick: the fields of a datagram, in a form that adds up.
//!
//! Rates and levels (CPU, memory, busy threads) are multiplied by the length of the interval, so
//! that sums over time and over processes are both correct. If a sender has mod_wsgi's histograms
//! only, each is converted: its count, sum and extremes are exact, and its buckets are those of the
//! middle of mod_wsgi's buckets, which are up to a quarter wide.

use super::datagram::{Datagram, entries};
use super::fields::{Kept, field, id};
use super::histogram::encode;
use super::record::{RecordWriter, Slot, push_slots};
use super::{Value, counts, nanoseconds, seconds_list};
use headway_measure::Histogram;
use headway_measure::scale::bucket;

/// The longest interval that is accepted from a sender: a day.
const LONGEST_PERIOD_S: f64 = 86_400.0;
/// The length to which names and settings are cut in records.
const MAX_TEXT_BYTES: usize = 1_000;
/// mod_wsgi's phases: means from 60 on, minima from 70, maxima from 80, histograms from 90; ours
/// from 1040.
const PHASES: u16 = 8;
/// mod_wsgi's arrays have at most 128 items.
const MAX_SLOTS: usize = 1_024;

/// The record of a tick, in the code of `record`.
pub fn record(datagram: &Datagram) -> Vec<u8> {
    let mut kept: Vec<(u16, Held)> = Vec::with_capacity(256);
    for (id, value) in datagram.fields().filter(|(id, _)| is_in_records(*id)) {
        kept.push((id, Held::Sent(value)));
    }
    let tick = TickFields { datagram, period_s: period_s(datagram) };
    tick.add_levels(&mut kept);
    tick.add_histograms(&mut kept);
    if let Some(slots) = tick.slots() {
        kept.push((id::SLOTS, Held::Slots(slots)));
    }
    // Equal fields stay in their order.
    kept.sort_by_key(|(id, _)| *id);
    write(&kept)
}

fn is_in_records(id: u16) -> bool {
    field(id).is_some_and(|field| field.kept != Kept::No)
}

enum Held<'a> {
    Sent(Value<'a>),
    Histogram(Vec<u8>),
    Slots(Vec<u8>),
}

/// Writes all rows, and the last value of each other field: a computed value follows a sent one.
fn write(kept: &[(u16, Held)]) -> Vec<u8> {
    let mut writer = RecordWriter::new();
    let (mut row, mut values) = (RecordWriter::of_row(), Vec::new());
    let mut kept = kept.iter().peekable();
    while let Some((id, held)) = kept.next() {
        if let Held::Sent(Value::Row(sent)) = held {
            write_row(&mut row, &mut values, sent);
            writer.push(*id, Value::Row(row.bytes()));
            continue;
        }
        if kept.peek().is_some_and(|(next, _)| next == id) {
            continue;
        }
        match held {
            Held::Sent(value) => writer.push(*id, cut(*value)),
            Held::Histogram(bytes) => writer.push(*id, Value::Histogram(bytes)),
            Held::Slots(bytes) => writer.push(*id, Value::Slots(bytes)),
        }
    }
    writer.into_bytes()
}

fn cut(value: Value) -> Value {
    match value {
        Value::Text(bytes) => Value::Text(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]),
        other => other,
    }
}

/// Writes a row as records have it; `values` is memory for its fields.
fn write_row<'a>(writer: &mut RecordWriter, values: &mut Vec<(u16, Value<'a>)>, row: &'a [u8]) {
    values.clear();
    values.extend(entries(row).map_while(Result::ok).filter(|(id, _)| is_in_records(*id)));
    values.sort_by_key(|(id, _)| *id);
    writer.begin_row();
    for (id, value) in values {
        writer.push(*id, cut(*value));
    }
}

fn period_s(datagram: &Datagram) -> f64 {
    let seconds = |value: Option<Value>| match value {
        Some(Value::Seconds(ns)) if ns > 0 => Some(ns as f64 / 1e9),
        _ => None,
    };
    seconds(datagram.get(id::SAMPLE_PERIOD))
        .or_else(|| seconds(datagram.get(id::TELEMETRY_INTERVAL)))
        .unwrap_or(1.0)
        .min(LONGEST_PERIOD_S)
}

struct TickFields<'d, 'a> {
    datagram: &'d Datagram<'a>,
    period_s: f64,
}

impl<'a> TickFields<'_, 'a> {
    fn number(&self, id: u16) -> Option<f64> {
        match self.datagram.get(id)? {
            Value::Number(number) => Some(number),
            Value::Count(number) => Some(number as f64),
            Value::Seconds(ns) => Some(ns as f64 / 1e9),
            _ => None,
        }
    }

    fn add_levels(&self, kept: &mut Vec<(u16, Held<'a>)>) {
        let period_s = self.period_s;
        let mut seconds = |id: u16, rate: Option<f64>| {
            if let Some(rate) = rate.filter(|rate| *rate >= 0.0) {
                kept.push((id, Held::Sent(Value::Seconds(nanoseconds(rate * period_s)))));
            }
        };
        let threads = match self.datagram.get(id::REQUEST_THREADS_MAXIMUM) {
            Some(Value::Count(threads)) => Some(threads as f64),
            _ => None,
        };
        let user = self.number(id::CPU_USER_UTILIZATION);
        let system = self.number(id::CPU_SYSTEM_UTILIZATION);
        seconds(id::PROCESS_SECONDS, Some(1.0));
        seconds(id::CPU_USER_SECONDS, user.or_else(|| self.number(id::CPU_UTILIZATION)));
        seconds(id::CPU_SYSTEM_SECONDS, system);
        seconds(id::THREAD_SECONDS, threads);
        let busy = self.number(id::CAPACITY_UTILIZATION).zip(threads);
        seconds(id::BUSY_SECONDS, busy.map(|(share, threads)| share * threads));
        seconds(id::CONNECTION_SECONDS, self.number(id::CONNECTIONS_OPEN));
        if let Some(bytes) = self.number(id::MEMORY_RSS) {
            kept.push((id::RSS_BYTE_SECONDS, Held::Sent(Value::Number(bytes * period_s))));
        }
        kept.push((id::TICKS, Held::Sent(Value::Count(1))));
    }

    /// Converts mod_wsgi's histograms of the phases that have none of ours.
    fn add_histograms(&self, kept: &mut Vec<(u16, Held<'a>)>) {
        let requests = match self.datagram.get(id::REQUEST_COUNT) {
            Some(Value::Count(requests)) => requests,
            _ => 0,
        };
        let mut coarse = false;
        for phase in 0..PHASES {
            let ours = id::SERVER_TIME_HISTOGRAM + phase;
            let theirs = id::SERVER_TIME_BUCKETS + phase;
            let Some(Value::Counts(buckets)) = self.datagram.get(theirs) else { continue };
            if requests == 0 || self.datagram.get(ours).is_some() {
                continue;
            }
            coarse = true;
            let of = |first: u16| self.number(first + phase).filter(|seconds| *seconds >= 0.0);
            let ns = |seconds: f64| nanoseconds(seconds) as u64;
            let histogram = of_mod_wsgi(
                counts(buckets),
                of(id::SERVER_TIME).map(|mean| ns(mean * requests as f64)),
                of(id::SERVER_TIME_MIN).map(ns),
                of(id::SERVER_TIME_MAX).map(ns),
            );
            let mut bytes = Vec::new();
            encode(&histogram, &mut bytes);
            kept.push((ours, Held::Histogram(bytes)));
        }
        kept.push((id::COARSE_TICKS, Held::Sent(Value::Count(coarse.into()))));
    }

    fn slots(&self) -> Option<Vec<u8>> {
        let list = |id: u16| -> Vec<f64> {
            match self.datagram.get(id) {
                Some(Value::Counts(bytes)) => counts(bytes).map(f64::from).collect(),
                Some(Value::SecondsList(bytes)) => seconds_list(bytes).collect(),
                _ => Vec::new(),
            }
        };
        let completed = list(id::REQUEST_THREADS_COMPLETED);
        let busy = list(id::REQUEST_THREADS_BUSY_TIME);
        let cpu = list(id::REQUEST_THREADS_CPU_TIME);
        let current = list(id::REQUEST_THREADS_CURRENT_ELAPSED);
        let longest = list(id::REQUEST_THREADS_MAX_DURATION);
        let us = |list: &[f64], at: usize| {
            list.get(at).map_or(0, |seconds| nanoseconds(seconds.max(0.0)) as u64 / 1_000)
        };
        let slots: Vec<Slot> = (0..busy.len().max(completed.len()).min(MAX_SLOTS))
            .map(|at| Slot {
                completed: completed.get(at).map_or(0, |count| count.max(0.0) as u64),
                busy_us: us(&busy, at),
                cpu_us: us(&cpu, at),
                longest_us: us(&longest, at).max(us(&current, at)),
            })
            .collect();
        let mut bytes = Vec::new();
        push_slots(&mut bytes, &slots);
        (!slots.is_empty()).then_some(bytes)
    }
}

/// The upper bound of one of mod_wsgi's buckets: 16 powers of two from 1 ms on in four steps each.
/// The first begins at zero, the last has no end.
fn mod_wsgi_upper_bound_ns(bucket: usize) -> u64 {
    let (power, step) = (bucket / 4, bucket % 4);
    (1_000_000_u64 << power) * (4 + step as u64 + 1) / 4
}

fn of_mod_wsgi(
    buckets: impl Iterator<Item = i32>,
    sum_ns: Option<u64>,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
) -> Histogram {
    const OVERFLOW: usize = 64;
    let mut found = Vec::new();
    let (mut first, mut above_ns) = (0_u64, 0_u64);
    for (index, count) in buckets.enumerate().take(OVERFLOW + 1) {
        let count = u64::try_from(count).unwrap_or(0);
        if count == 0 {
            continue;
        }
        if index == 0 {
            first = count;
            continue;
        }
        let low_ns = mod_wsgi_upper_bound_ns(index - 1);
        let high_ns = if index < OVERFLOW { mod_wsgi_upper_bound_ns(index) } else { low_ns };
        let middle_ns = (low_ns + high_ns) / 2;
        above_ns = above_ns.saturating_add(middle_ns.saturating_mul(count));
        found.push((middle_ns, count));
    }
    if first != 0 {
        // The first bucket begins at zero, so its mean is more accurate than its middle.
        let mean_ns = sum_ns.map_or(0, |sum_ns| sum_ns.saturating_sub(above_ns) / first);
        found.push((mean_ns.min(mod_wsgi_upper_bound_ns(0) - 1), first));
    }
    let mut histogram = Histogram::default();
    for (ns, count) in found {
        // The extremes are exact, so no duration is beyond them.
        let ns = ns.max(min_ns.unwrap_or(0)).min(max_ns.unwrap_or(u64::MAX));
        histogram.merge(&Histogram {
            sum_ns: ns.saturating_mul(count),
            min_ns: ns,
            max_ns: ns,
            counts: vec![(bucket(ns) as u16, count)],
        });
    }
    if !histogram.is_empty() {
        histogram.sum_ns = sum_ns.unwrap_or(histogram.sum_ns);
        histogram.min_ns = min_ns.unwrap_or(histogram.min_ns);
        histogram.max_ns = max_ns.unwrap_or(histogram.max_ns).max(histogram.min_ns);
    }
    histogram
}
