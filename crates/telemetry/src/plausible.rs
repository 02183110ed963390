//! Bounds on the values of one tick: a process cannot do more in its interval than the machine
//! allows. The bounds are physical and generous, because a tick beyond them is refused as a whole:
//! it is forged or damaged, and one such value would stay in the sums for good.

use super::fields::{Field, Kept, Type, id};
use super::histogram;
use super::record::{entries, row_entries};
use super::{Malformed, Value, malformed};

/// An interval is measured, and events that are added to it may have begun before.
const SLACK_S: f64 = 2.0;
/// More cores than any machine has.
const MAX_CORES: f64 = 8_192.0;
/// Threads of one process, several of which may share a row.
const MAX_THREADS: f64 = 32_768.0;
/// GILs of one process whose times may be added up in one row: those that the meter has counters
/// for.
const MAX_GILS: f64 = 64.0;
/// A request, collection or wait that ends in an interval may have begun long before; it is counted
/// when it ends.
const LONGEST_S: f64 = 7.0 * 86_400.0;
/// A thread may wait for a lock or an event, stand still, or leave its event loop, as long as its
/// process lives.
const LONGEST_PARK_S: f64 = 10.0 * 365.0 * 86_400.0;
/// Nothing that is counted takes less than a nanosecond.
const MAX_COUNT_PER_SECOND: f64 = 1e9;
/// The work for a request takes at least a microsecond on each core.
const MAX_REQUESTS_PER_SECOND: f64 = 1e8;
const MAX_BYTES_PER_SECOND: f64 = 1e13;
/// 4 PiB.
const MAX_MEMORY_BYTES: f64 = 4_503_599_627_370_496.0;

/// Checks that a process can have sent the tick of this record. The error names the field that is
/// beyond its bound.
pub fn check(record: &[u8]) -> Result<(), Malformed> {
    let mut interval_s = 0.0;
    for entry in entries(record)? {
        if let (Field { id: id::PROCESS_SECONDS, .. }, Value::Seconds(ns)) = entry? {
            interval_s = ns as f64 / 1e9;
        }
    }
    for entry in entries(record)? {
        let (field, value) = entry?;
        check_value(field, value, interval_s)?;
        if let Value::Row(row) = value {
            for entry in row_entries(row) {
                let (field, value) = entry?;
                check_value(field, value, interval_s)?;
            }
        }
    }
    Ok(())
}

fn check_value(field: &Field, value: Value, interval_s: f64) -> Result<(), Malformed> {
    let most = most(field, interval_s);
    let is_plausible = match value {
        Value::Count(count) => count as f64 <= most,
        // A negative time would make a sum fall.
        Value::Seconds(_) if field.kept == Kept::Distinct => true,
        Value::Number(_) if field.kept == Kept::Distinct => true,
        Value::Seconds(ns) => ns >= 0 && ns as f64 / 1e9 <= most,
        Value::Number(number) => number >= 0.0 && number <= most,
        Value::Histogram(code) => {
            let histogram = histogram::summary(code)?;
            let count = histogram.count as f64;
            let (sum_ns, max_ns) = (histogram.sum_ns as f64, histogram.max_ns as f64);
            let longest_s = match field.id {
                id::PARKED_TIME_HISTOGRAM | id::LOOP_ITERATION_HISTOGRAM => LONGEST_PARK_S,
                _ => LONGEST_S,
            };
            count <= most
                && max_ns <= longest_s * 1e9
                // mod_wsgi's mean and maximum are rounded.
                && sum_ns <= max_ns * count * 1.01 + 1e9
                && sum_ns <= (MAX_THREADS * (interval_s + SLACK_S) + longest_s) * 1e9
        }
        _ => true,
    };
    if is_plausible {
        Ok(())
    } else {
        malformed(format!("implausible: {} for an interval", field.name))
    }
}

/// The largest value that a field may have for an interval.
fn most(field: &Field, interval_s: f64) -> f64 {
    let length_s = interval_s + SLACK_S;
    match (field.id, field.kind) {
        (id::PROCESS_SECONDS, _) => interval_s,
        // Settings do not add up.
        _ if field.kept == Kept::Distinct => f64::INFINITY,
        (id::RSS_BYTE_SECONDS, _) => MAX_MEMORY_BYTES * length_s,
        (id::MEMORY_MAX_RSS, _) => MAX_MEMORY_BYTES,
        (id::GIL_WALL | id::GIL_HELD | id::GIL_HANDOFF | id::GIL_IDLE, _) => MAX_GILS * length_s,
        (id::CPU_USER_SECONDS | id::CPU_SYSTEM_SECONDS, _) => MAX_CORES * length_s,
        // A request is counted when it ends, with all its time.
        (id::ENDPOINT_APPLICATION | id::ENDPOINT_CPU | id::ENDPOINT_GIL_HELD, _)
        | (id::INTERPRETER_APPLICATION | id::INTERPRETER_GIL_WAIT | id::INTERPRETER_GIL_HELD, _) => {
            MAX_THREADS * length_s + LONGEST_S
        }
        (id::THREAD_PARKED | id::THREAD_SUSPENDED, _) => MAX_THREADS * length_s + LONGEST_PARK_S,
        // Waits and iterations are counted when they end.
        (id::LOOP_POLLED..=id::LOOP_LATE_BLOCKED, Type::Seconds) => {
            MAX_THREADS * length_s + LONGEST_PARK_S
        }
        (id::LOOP_ITERATING, _) => LONGEST_PARK_S,
        (_, Type::Seconds) => MAX_THREADS * length_s,
        (id::INPUT_BYTES_TOTAL | id::OUTPUT_BYTES_TOTAL, _) => MAX_BYTES_PER_SECOND * length_s,
        (id::LIFETIME_REQUESTS, _) => MAX_REQUESTS_PER_SECOND * LONGEST_S * 100.0,
        (
            id::REQUEST_COUNT
            | id::STATUS_1XX_TOTAL..=id::STATUS_5XX_TOTAL
            | id::REQUESTS_FAILED
            | id::CONNECTIONS_ACCEPTED
            | id::ENDPOINT_REQUESTS
            | id::ENDPOINT_ERRORS
            | id::INTERPRETER_REQUESTS
            | id::INTERPRETER_ERRORS,
            _,
        ) => MAX_REQUESTS_PER_SECOND * length_s,
        (
            id::TICKS_UNSENT
            | id::RECORDS_LOST
            | id::ROWS_FOLDED
            | id::UNMEASURED_EVENTS
            | id::UNMEASURED_LOOPS,
            _,
        ) => MAX_COUNT_PER_SECOND * LONGEST_S,
        _ => MAX_COUNT_PER_SECOND * length_s,
    }
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Datagram, Header, Writer};
    use super::super::tick;
    use super::*;
    use headway_measure::Histogram;

    fn check_tick(write: impl FnOnce(&mut Writer)) -> Result<(), Malformed> {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        writer.number(id::SAMPLE_PERIOD, 1.0);
        write(&mut writer);
        check(&tick::record(&Datagram::parse(writer.bytes()).unwrap()))
    }

    #[test]
    fn a_busy_process_is_plausible() {
        let result = check_tick(|out| {
            out.count(id::REQUEST_COUNT, 200_000);
            out.count(id::OUTPUT_BYTES_TOTAL, 10_000_000_000);
            out.number(id::CPU_USER_UTILIZATION, 128.0);
            out.number(id::INTERRUPT_TIMEOUT, -1.0);
            out.row(id::GILS, |row| {
                // The sum of those that have no row of their own.
                row.text(id::GIL_NAME, "(other)");
                row.number(id::GIL_HELD, 40.0);
                row.count(id::GIL_TAKES, 30_000_000);
            });
            out.row(id::ENDPOINTS, |row| {
                row.text(id::ENDPOINT_NAME, "/poll");
                row.number(id::ENDPOINT_APPLICATION, 86_400.0);
            });
            let mut histogram = Histogram::default();
            histogram.record(86_400_000_000_000);
            out.histogram(id::REQUEST_TIME_HISTOGRAM, &histogram);
            // The main thread waited for a thread that ran for thirty days.
            histogram.record(30 * 86_400_000_000_000);
            out.histogram(id::PARKED_TIME_HISTOGRAM, &histogram);
            out.row(id::THREADS, |row| row.number(id::THREAD_PARKED, 30.0 * 86_400.0));
            // An event loop waited for events, and ran another program, for as long.
            out.histogram(id::LOOP_ITERATION_HISTOGRAM, &histogram);
            for id in [id::LOOP_POLLED, id::LOOP_LATE_COMPUTED, id::LOOP_ITERATING] {
                out.number(id, 30.0 * 86_400.0);
            }
        });
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn what_no_process_can_do_is_refused_by_name() {
        let refused = |name: &str, write: &dyn Fn(&mut Writer)| {
            let expected = format!("implausible: {name} for an interval");
            assert_eq!(check_tick(write), Err(Malformed(expected)));
        };
        refused("request_count", &|out| out.count(id::REQUEST_COUNT, 1 << 63));
        refused("output_bytes_total", &|out| out.count(id::OUTPUT_BYTES_TOTAL, 1 << 60));
        refused("cpu_user_seconds", &|out| out.number(id::CPU_USER_UTILIZATION, 1e9));
        refused("rss_byte_seconds", &|out| out.count(id::MEMORY_RSS, 1 << 62));
        refused("cgroup_throttled_time", &|out| out.number(id::CGROUP_THROTTLED_TIME, -1.0));
        let row = |id: u16, seconds: f64| {
            move |out: &mut Writer| {
                out.row(id::GILS, |row| row.number(id, seconds));
            }
        };
        refused("gil_held", &row(id::GIL_HELD, 1e6));
        refused("gil_held", &row(id::GIL_HELD, -1.0));
        refused("loop_late", &|out| out.count(id::LOOP_LATE, 1 << 40));
        refused("loop_computed", &|out| out.number(id::LOOP_COMPUTED, 1e9));
        refused("loop_late_blocked", &|out| out.number(id::LOOP_LATE_BLOCKED, -1.0));
        refused("loop_iterating", &|out| out.number(id::LOOP_ITERATING, 1e9));
        let distribution = |sum_ns: u64, count: u64| {
            move |out: &mut Writer| {
                let histogram =
                    Histogram { sum_ns, min_ns: 1, max_ns: 1_000, counts: vec![(1, count)] };
                out.histogram(id::REQUEST_TIME_HISTOGRAM, &histogram);
            }
        };
        refused("request_time_histogram", &distribution(1_000, 1 << 62));
        refused("request_time_histogram", &distribution(1 << 62, 2));
    }
}
