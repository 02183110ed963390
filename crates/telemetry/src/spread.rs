//! Parts of a tick's record: a process that reports late describes several intervals in one tick.
//! Its levels times seconds would be a multiple of the level in the step of a chart, or in the row
//! of a store, that has the tick's end. The parts of a record add up to the record.

use super::fields::{Field, Kept, id};
use super::record::{RecordWriter, Slot, entries, parse_slots, push_slots, row_entries};
use super::{Malformed, Value, histogram};
use headway_measure::Histogram;

/// A tick is divided from this multiple of its interval on.
const LATE: f64 = 1.5;
/// The reporting interval of a sender that names none.
const USUAL_INTERVAL_NS: i64 = 1_000_000_000;

/// The cells of `width_s` seconds from `origin_s` on over which a tick that ended at `end_s`
/// extends, each with its part of the record, the latest first. A tick that is not late is
/// in the cell of its end alone. Parts before `origin_s` are left out.
pub fn spread(
    record: &[u8],
    end_s: f64,
    origin_s: f64,
    width_s: f64,
) -> Result<Vec<(i64, Vec<u8>)>, Malformed> {
    let last = ((end_s - origin_s) / width_s).floor();
    let width_ns = width_s * 1e9;
    let (period_ns, interval_ns) = lengths_ns(record)?;
    if period_ns as f64 <= LATE * width_ns.min(interval_ns as f64) {
        return Ok(vec![(last as i64, record.to_vec())]);
    }
    let end_ns = (end_s - origin_s) * 1e9;
    let mut parts = Vec::new();
    let mut cell = last;
    // How long before the end of all a part ends.
    let mut after_ns = 0;
    while after_ns < period_ns && cell >= 0.0 {
        let before_ns = ((end_ns - cell * width_ns).ceil() as i64).clamp(after_ns, period_ns);
        let part = Part { from: period_ns - before_ns, to: period_ns - after_ns, of: period_ns };
        if before_ns > after_ns {
            parts.push((cell as i64, part.of_record(record)?));
        }
        after_ns = before_ns;
        cell -= 1.0;
    }
    Ok(parts)
}

/// The length of a tick, and the interval at which its sender reports.
fn lengths_ns(record: &[u8]) -> Result<(i64, i64), Malformed> {
    let mut interval_ns = USUAL_INTERVAL_NS;
    for entry in entries(record)? {
        match entry? {
            (Field { id: id::TELEMETRY_INTERVAL, .. }, Value::Seconds(ns)) if ns > 0 => {
                interval_ns = ns;
            }
            (Field { id: id::PROCESS_SECONDS, .. }, Value::Seconds(ns)) => {
                return Ok((ns, interval_ns));
            }
            _ => {}
        }
    }
    Ok((0, interval_ns))
}

/// The part from `from` to `to` of something that is `of` long.
#[derive(Clone, Copy)]
struct Part {
    from: i64,
    to: i64,
    of: i64,
}

impl Part {
    fn of_record(self, record: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut writer = RecordWriter::new();
        self.write(entries(record)?, &mut writer)?;
        Ok(writer.into_bytes())
    }

    fn write<'a>(
        self,
        entries: impl Iterator<Item = Result<(&'static Field, Value<'a>), Malformed>>,
        writer: &mut RecordWriter,
    ) -> Result<(), Malformed> {
        for entry in entries {
            let (field, value) = entry?;
            let mut bytes = Vec::new();
            let value = match value {
                Value::Row(row) => {
                    let mut of_row = RecordWriter::of_row();
                    self.write(row_entries(row), &mut of_row)?;
                    writer.push(field.id, Value::Row(of_row.bytes()));
                    continue;
                }
                value if field.kept != Kept::Sum => value,
                Value::Count(count) => Value::Count(self.count(count)),
                Value::Integer(number) => Value::Integer(self.number(number)),
                Value::Seconds(ns) => Value::Seconds(self.number(ns)),
                Value::Number(number) => {
                    Value::Number(number * (self.to - self.from) as f64 / self.of as f64)
                }
                Value::Histogram(code) => {
                    histogram::encode(&self.durations(&histogram::decode(code)?), &mut bytes);
                    Value::Histogram(&bytes)
                }
                Value::Slots(slots) => {
                    let slots = parse_slots(slots)?;
                    push_slots(&mut bytes, &slots.iter().map(|s| self.slot(s)).collect::<Vec<_>>());
                    Value::Slots(&bytes)
                }
                other => other,
            };
            writer.push(field.id, value);
        }
        Ok(())
    }

    /// The parts of a count are whole, and add up to it.
    fn count(self, count: u64) -> u64 {
        let until = |end: i64| i128::from(count) * i128::from(end) / i128::from(self.of);
        (until(self.to) - until(self.from)) as u64
    }

    fn number(self, number: i64) -> i64 {
        let until = |end: i64| i128::from(number) * i128::from(end) / i128::from(self.of);
        (until(self.to) - until(self.from)) as i64
    }

    /// Each part has the extremes of the whole, and the sum belongs to the durations that it has.
    fn durations(self, whole: &Histogram) -> Histogram {
        let until = |end: i64| -> u64 {
            let part = Part { from: 0, to: end, of: self.of };
            whole.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(part.count(*count)))
        };
        let share = |count: u64| {
            (u128::from(whole.sum_ns) * u128::from(count) / u128::from(whole.count().max(1))) as u64
        };
        let counts = whole.counts.iter().map(|(bucket, count)| (*bucket, self.count(*count)));
        Histogram {
            sum_ns: share(until(self.to)) - share(until(self.from)),
            min_ns: whole.min_ns,
            max_ns: whole.max_ns,
            counts: counts.filter(|(_, count)| *count > 0).collect(),
        }
    }

    fn slot(self, slot: &Slot) -> Slot {
        Slot {
            completed: self.count(slot.completed),
            busy_us: self.count(slot.busy_us),
            cpu_us: self.count(slot.cpu_us),
            longest_us: slot.longest_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Datagram, Header, Writer};
    use super::super::merge::merge;
    use super::super::tick;
    use super::*;
    use proptest::prelude::*;

    fn tick_of(period_s: f64, interval_s: f64, requests: u64) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        writer.number(id::SAMPLE_PERIOD, period_s);
        writer.number(id::TELEMETRY_INTERVAL, interval_s);
        writer.count(id::REQUEST_COUNT, requests);
        writer.count(id::MEMORY_RSS, 64);
        writer.text(id::POLICY, "priority");
        writer.seconds_list(id::REQUEST_THREADS_BUSY_TIME, [period_s, 0.5].into_iter());
        writer.row(id::GILS, |row| {
            row.text(id::GIL_NAME, "main");
            row.number(id::GIL_HELD, period_s / 3.0);
            row.count(id::GIL_THREADS, 3);
        });
        tick::record(&Datagram::parse(writer.bytes()).unwrap())
    }

    fn seconds_in(record: &[u8]) -> f64 {
        lengths_ns(record).unwrap().0 as f64 / 1e9
    }

    #[test]
    fn a_late_tick_is_in_each_cell_for_the_time_that_it_covers() {
        let found = spread(&tick_of(11.0, 1.0, 5), 112.25, 100.0, 1.0).unwrap();
        let cells: Vec<(i64, f64)> =
            found.iter().map(|(cell, part)| (*cell, seconds_in(part))).collect();
        let mut expected = vec![(12, 0.25)];
        expected.extend((2..12).rev().map(|cell| (cell, 1.0)));
        expected.push((1, 0.75));
        assert_eq!(cells, expected);
    }

    #[test]
    fn a_tick_in_time_is_whole_and_a_part_before_the_cells_is_left_out() {
        let tick = tick_of(1.2, 1.0, 5);
        assert_eq!(spread(&tick, 112.25, 100.0, 1.0).unwrap(), [(12, tick.clone())]);
        assert_eq!(spread(&tick, 112.25, 0.0, 60.0).unwrap(), [(1, tick)]);
        // A long interval is not late, but does not fit into a cell.
        let found = spread(&tick_of(60.0, 60.0, 5), 109.0, 100.0, 10.0).unwrap();
        assert_eq!(found.iter().map(|(_, part)| seconds_in(part)).collect::<Vec<_>>(), [9.0]);
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_record(
            period_s in 1.0..5_000.0_f64, interval_s in 0.1..60.0_f64, requests in 0..100_u64,
            end_s in 10_000.0..20_000.0_f64, width_s in 1.0..100.0_f64,
            waits_ns in proptest::collection::vec(0..10_000_000_000_u64, 0..30),
        ) {
            let mut waits = Histogram::default();
            waits_ns.iter().for_each(|ns| waits.record(*ns));
            let mut code = Vec::new();
            histogram::encode(&waits, &mut code);
            let mut with_waits = RecordWriter::new();
            with_waits.push(id::REQUEST_TIME_HISTOGRAM, Value::Histogram(&code));
            let tick = merge([&*tick_of(period_s, interval_s, requests), with_waits.bytes()]).unwrap();
            let parts = spread(&tick, end_s, 0.0, width_s).unwrap();
            for pair in parts.windows(2) {
                prop_assert!(pair[0].0 > pair[1].0);
            }
            let sum = merge(parts.iter().map(|(_, part)| &**part)).unwrap();
            let of = |record: &[u8]| -> Vec<String> {
                let all = entries(record).unwrap().map(Result::unwrap);
                // A sum of floats is only about the same.
                all.filter(|(field, _)| field.id != id::RSS_BYTE_SECONDS)
                    .map(|(field, value)| format!("{field:?} {value:?}"))
                    .collect()
            };
            prop_assert_eq!(of(&sum), of(&tick));
        }
    }
}
