//! Sums of records: of one process over time, or of several processes.
//!
//! Counts, times and histograms add up; settings become the set of their values; rows with the same
//! keys become one row. So percentiles of a sum are those of all requests, not means of
//! percentiles. Slots add up by index, which is meaningful for records of one process only. The
//! numbers of rows and of values are bounded: rows beyond the bound are added to a row named
//! `OTHER`.

use super::fields::{FIELDS, Field, Kept, Type, field, id};
use headway_measure::Histogram;

use super::histogram;
use super::record::{RecordWriter, Slot, entries, parse_slots, push_slots, row_entries};
use super::{Malformed, Value};

/// Different values of one setting.
pub const MAX_DISTINCT: usize = 16;
/// Rows of one kind.
pub const MAX_ROWS: usize = 128;
/// Rows of lines. There are more lines than threads or endpoints, and most rows are small.
pub const MAX_LINES: usize = 32;
/// Rows of stacks. There are more stacks than lines.
pub const MAX_STACKS: usize = 32;
/// The name of the row for all that has no row of its own.
pub const OTHER: &str = "(other)";

/// The sum of one field.
#[derive(Debug, Default)]
pub struct Sum {
    /// By field number, ascending.
    totals: Vec<(u16, Total)>,
}

#[derive(Debug)]
enum Total {
    Count(u64),
    Integer(i64),
    Seconds(i64),
    Number(f64),
    Distinct(Vec<Distinct>),
    Histogram(Histogram),
    Slots(Vec<Slot>),
    Rows(Rows),
}

/// The key fields of a row with their texts. The first of several equal key fields counts.
type RowKey = Vec<(u16, Vec<u8>)>;

/// By key, ascending.
type Rows = Vec<(RowKey, Sum)>;

/// The fields of a row that is being added.
type RowFields<'a> = Vec<(&'static Field, Value<'a>)>;

#[derive(Clone, Debug, PartialEq)]
enum Distinct {
    Count(u64),
    Integer(i64),
    Seconds(i64),
    Number(f64),
    Text(Vec<u8>),
}

impl Distinct {
    fn of(value: Value) -> Option<Self> {
        Some(match value {
            Value::Count(number) => Self::Count(number),
            Value::Integer(number) => Self::Integer(number),
            Value::Seconds(ns) => Self::Seconds(ns),
            Value::Number(number) => Self::Number(number),
            Value::Text(bytes) => Self::Text(bytes.to_vec()),
            _ => return None,
        })
    }

    fn is(&self, value: Value) -> bool {
        match (self, value) {
            (Self::Text(mine), Value::Text(bytes)) => mine == bytes,
            (Self::Count(mine), Value::Count(number)) => *mine == number,
            (Self::Integer(mine), Value::Integer(number)) => *mine == number,
            (Self::Seconds(mine), Value::Seconds(ns)) => *mine == ns,
            (Self::Number(mine), Value::Number(number)) => *mine == number,
            _ => false,
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Count(number) => Value::Count(*number),
            Self::Integer(number) => Value::Integer(*number),
            Self::Seconds(ns) => Value::Seconds(*ns),
            Self::Number(number) => Value::Number(*number),
            Self::Text(bytes) => Value::Text(bytes),
        }
    }
}

/// The sum of records.
pub fn merge<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, Malformed> {
    let mut sum = Sum::default();
    for record in records {
        sum.add(record)?;
    }
    Ok(sum.into_record())
}

impl Sum {
    /// Adds a record. A malformed record may be added in part.
    pub fn add(&mut self, record: &[u8]) -> Result<(), Malformed> {
        self.add_entries(entries(record)?)
    }

    pub fn into_record(self) -> Vec<u8> {
        let mut writer = RecordWriter::new();
        self.write(&mut writer);
        writer.into_bytes()
    }

    fn add_entries<'a>(
        &mut self,
        entries: impl Iterator<Item = Result<(&'static Field, Value<'a>), Malformed>>,
    ) -> Result<(), Malformed> {
        // Entries ascend like the totals, so the search for each begins at the last one.
        let mut at = 0;
        let mut row = RowFields::new();
        for entry in entries {
            let (field, value) = entry?;
            while self.totals.get(at).is_some_and(|(id, _)| *id < field.id) {
                at += 1;
            }
            if self.totals.get(at).is_none_or(|(id, _)| *id != field.id) {
                self.totals.insert(at, (field.id, Total::empty(field)));
            }
            self.totals[at].1.add(field, value, &mut row)?;
        }
        Ok(())
    }

    /// Adds another sum of the same kind of row.
    fn absorb(&mut self, other: Self) -> Result<(), Malformed> {
        let mut writer = RecordWriter::of_row();
        other.write(&mut writer);
        self.add_entries(row_entries(&writer.into_bytes()))
    }

    fn write(&self, writer: &mut RecordWriter) {
        for (id, total) in &self.totals {
            total.write(*id, writer);
        }
    }

    /// The weight of a row, which decides whether it stays: the time held, waited and used, and
    /// some microseconds for each request.
    fn weight(&self) -> i64 {
        let weights = self.totals.iter().map(|(id, total)| match (*id, total) {
            (id::GIL_WALL | id::GIL_IDLE | id::THREAD_PARKED, _) => 0,
            (_, Total::Seconds(ns)) => *ns,
            (id::ENDPOINT_REQUESTS | id::INTERPRETER_REQUESTS, Total::Count(count)) => {
                i64::try_from(count.saturating_mul(10_000)).unwrap_or(i64::MAX)
            }
            _ => 0,
        });
        weights.fold(0, i64::saturating_add)
    }
}

impl Total {
    fn empty(field: &Field) -> Self {
        match (field.kept, field.kind) {
            (Kept::Distinct | Kept::Key, _) => Self::Distinct(Vec::new()),
            (_, Type::Row) => Self::Rows(Rows::new()),
            (_, Type::Histogram) => Self::Histogram(Histogram::default()),
            (_, Type::Slots) => Self::Slots(Vec::new()),
            (_, Type::Seconds) => Self::Seconds(0),
            (_, Type::Number) => Self::Number(0.0),
            (_, Type::Integer) => Self::Integer(0),
            _ => Self::Count(0),
        }
    }

    /// `row` is memory for the fields of a row.
    fn add<'a>(
        &mut self,
        field: &Field,
        value: Value<'a>,
        row: &mut RowFields<'a>,
    ) -> Result<(), Malformed> {
        let larger = field.kept == Kept::Max;
        match (self, value) {
            (Self::Count(total), Value::Count(number)) if larger => *total = number.max(*total),
            (Self::Count(total), Value::Count(number)) => *total = total.saturating_add(number),
            (Self::Integer(total), Value::Integer(number)) if larger => *total = number.max(*total),
            (Self::Integer(total), Value::Integer(number)) => *total = total.saturating_add(number),
            (Self::Seconds(total), Value::Seconds(ns)) if larger => *total = ns.max(*total),
            (Self::Seconds(total), Value::Seconds(ns)) => *total = total.saturating_add(ns),
            (Self::Number(total), Value::Number(number)) => {
                *total = (*total + number).clamp(f64::MIN, f64::MAX);
            }
            (Self::Histogram(total), Value::Histogram(code)) => histogram::merge(total, code)?,
            (Self::Slots(total), Value::Slots(bytes)) => add_slots(total, &parse_slots(bytes)?),
            (Self::Rows(rows), Value::Row(bytes)) => {
                row.clear();
                for entry in row_entries(bytes) {
                    row.push(entry?);
                }
                add_row(rows, field, row)?;
            }
            (Self::Distinct(known), value)
                if known.len() < most_distinct(field)
                    && !known.iter().any(|each| each.is(value)) =>
            {
                known.extend(Distinct::of(value));
            }
            // A known value; the table decides the type of all others.
            _ => {}
        }
        Ok(())
    }

    fn write(&self, id: u16, writer: &mut RecordWriter) {
        let mut bytes = Vec::new();
        let mut of_row = RecordWriter::of_row();
        match self {
            Self::Count(total) => writer.push(id, Value::Count(*total)),
            Self::Integer(total) => writer.push(id, Value::Integer(*total)),
            Self::Seconds(total) => writer.push(id, Value::Seconds(*total)),
            Self::Number(total) => writer.push(id, Value::Number(*total)),
            Self::Distinct(known) => known.iter().for_each(|each| writer.push(id, each.value())),
            Self::Histogram(total) => {
                histogram::encode(total, &mut bytes);
                writer.push(id, Value::Histogram(&bytes));
            }
            Self::Slots(slots) => {
                push_slots(&mut bytes, slots);
                writer.push(id, Value::Slots(&bytes));
            }
            Self::Rows(rows) => {
                for (_, row) in rows {
                    of_row.begin_row();
                    row.write(&mut of_row);
                    writer.push(id, Value::Row(of_row.bytes()));
                }
            }
        }
    }
}

/// How many different values a sum keeps of a field. A key has one, so that a row of a sum has the
/// key of the rows that it is made of.
fn most_distinct(field: &Field) -> usize {
    if field.kept == Kept::Key { 1 } else { MAX_DISTINCT }
}

fn add_slots(total: &mut Vec<Slot>, slots: &[Slot]) {
    if total.len() < slots.len() {
        total.resize(slots.len(), Slot::default());
    }
    for (mine, theirs) in total.iter_mut().zip(slots) {
        mine.completed = mine.completed.saturating_add(theirs.completed);
        mine.busy_us = mine.busy_us.saturating_add(theirs.busy_us);
        mine.cpu_us = mine.cpu_us.saturating_add(theirs.cpu_us);
        mine.longest_us = mine.longest_us.max(theirs.longest_us);
    }
}

fn add_row(rows: &mut Rows, field: &Field, row: &RowFields) -> Result<(), Malformed> {
    let index = match rows.binary_search_by(|(key, _)| borrowed(key).cmp(key_of(row))) {
        Ok(index) => index,
        Err(index) => {
            let key = key_of(row).map(|(id, text)| (id, text.to_vec())).collect();
            rows.insert(index, (key, Sum::default()));
            index
        }
    };
    rows[index].1.add_entries(row.iter().copied().map(Ok))?;
    if rows.len() > 2 * most_rows(field) { fold(rows, field) } else { Ok(()) }
}

fn borrowed(key: &RowKey) -> impl Iterator<Item = (u16, &[u8])> {
    key.iter().map(|(id, text)| (*id, text.as_slice()))
}

/// The key of a row, whose fields ascend.
fn key_of<'a>(row: &RowFields<'a>) -> impl Iterator<Item = (u16, &'a [u8])> {
    let mut last = None;
    row.iter().filter_map(move |(field, value)| match value {
        Value::Text(text) if field.kept == Kept::Key && last != Some(field.id) => {
            last = Some(field.id);
            Some((field.id, *text))
        }
        _ => None,
    })
}

/// Keeps the heaviest rows and one row for the others.
fn fold(rows: &mut Rows, field: &Field) -> Result<(), Malformed> {
    let name_of_row = first_key(field);
    let other_key = vec![(name_of_row, OTHER.as_bytes().to_vec())];
    let is_other = |(key, _): &(RowKey, Sum)| *key == other_key;
    let other = rows.iter().position(is_other).map(|index| rows.remove(index).1);
    let mut other = other.unwrap_or_default();
    let mut by_weight = std::mem::take(rows);
    by_weight.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
    for (_, mut row) in by_weight.split_off(by_weight.len().min(most_rows(field) - 1)) {
        row.totals.retain(|(id, _)| !is_key(*id));
        other.absorb(row)?;
    }
    *rows = by_weight;
    other.totals.retain(|(id, _)| !is_key(*id));
    let name = Total::Distinct(vec![Distinct::Text(OTHER.as_bytes().to_vec())]);
    other.totals.push((name_of_row, name));
    other.totals.sort_by_key(|(id, _)| *id);
    rows.push((other_key, other));
    rows.sort_by(|(one, _), (two, _)| one.cmp(two));
    Ok(())
}

fn most_rows(field: &Field) -> usize {
    match field.id {
        id::LINES | id::LATE_LINES => MAX_LINES,
        id::STACKS | id::LATE_STACKS => MAX_STACKS,
        _ => MAX_ROWS,
    }
}

fn is_key(id: u16) -> bool {
    field(id).is_some_and(|field| field.kept == Kept::Key)
}

/// The key that comes first in a kind of row: its name.
fn first_key(row: &Field) -> u16 {
    let later = FIELDS.iter().filter(|field| field.id > row.id);
    later.filter(|field| field.kept == Kept::Key).map(|field| field.id).next().unwrap_or(row.id)
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Datagram, Header, Writer};
    use super::super::{nanoseconds, tick};
    use super::*;
    use proptest::prelude::*;

    fn record(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        write(&mut writer);
        tick::record(&Datagram::parse(writer.bytes()).unwrap())
    }

    fn all(record: &[u8]) -> Vec<(u16, Value<'_>)> {
        entries(record)
            .unwrap()
            .map(|entry| entry.map(|(field, value)| (field.id, value)).unwrap())
            .collect()
    }

    fn get(record: &[u8], id: u16) -> Option<Value<'_>> {
        all(record).into_iter().find(|(found, _)| *found == id).map(|(_, value)| value)
    }

    fn tick_of(period_s: f64, cpu: f64, rss: u64) -> Vec<u8> {
        record(|out| {
            out.number(id::SAMPLE_PERIOD, period_s);
            out.number(id::CPU_USER_UTILIZATION, cpu);
            out.count(id::MEMORY_RSS, rss);
            out.text(id::POLICY, if cpu > 0.5 { "priority" } else { "interval" });
        })
    }

    #[test]
    fn levels_are_weighted_by_time() {
        let sum = merge([&*tick_of(1.0, 0.2, 100), &*tick_of(3.0, 0.6, 200)]).unwrap();
        assert_eq!(get(&sum, id::PROCESS_SECONDS), Some(Value::Seconds(4_000_000_000)));
        assert_eq!(get(&sum, id::CPU_USER_SECONDS), Some(Value::Seconds(2_000_000_000)));
        assert_eq!(get(&sum, id::RSS_BYTE_SECONDS), Some(Value::Number(700.0)));
        let policies = all(&sum).into_iter().filter(|(found, _)| *found == id::POLICY).count();
        assert_eq!(policies, 2);
        assert_eq!(get(&sum, id::TICKS), Some(Value::Count(2)));
    }

    #[test]
    fn rows_of_the_same_name_become_one() {
        let with = |name: &str, held_s: f64| {
            record(|out| {
                for gil in [name, "main"] {
                    out.row(id::GILS, |row| {
                        // Not in order, as others may write them.
                        row.number(id::GIL_HELD, held_s);
                        row.text(id::GIL_NAME, gil);
                    });
                }
            })
        };
        let sum = merge([&*with("shop", 1.0), &*with("blog", 2.0), &*with("blog", 4.0)]).unwrap();
        let rows: Vec<(Vec<u8>, i64)> = all(&sum)
            .into_iter()
            .filter_map(|(_, value)| match value {
                Value::Row(row) => Some(row_entries(row).map(Result::unwrap).collect::<Vec<_>>()),
                _ => None,
            })
            .map(|row| match row[..] {
                [(_, Value::Text(name)), (_, Value::Seconds(ns))] => (name.to_vec(), ns),
                _ => panic!("{row:?}"),
            })
            .collect();
        let expected = [("blog", 6.0), ("main", 7.0), ("shop", 1.0)];
        assert_eq!(rows, expected.map(|(name, s)| (name.as_bytes().to_vec(), nanoseconds(s))));
    }

    #[test]
    fn a_key_that_comes_twice_is_the_first() {
        // No tick has such a record, but a store may.
        let with = |names: &[&str]| {
            let (mut record, mut row) = (RecordWriter::new(), RecordWriter::of_row());
            row.begin_row();
            names.iter().for_each(|name| row.push(id::GIL_NAME, Value::Text(name.as_bytes())));
            row.push(id::GIL_HELD, Value::Seconds(1_000_000_000));
            record.push(id::GILS, Value::Row(row.bytes()));
            record.into_bytes()
        };
        let records = [with(&["a", "a"]), with(&["a"]), with(&["a", "b"]), with(&["a\0b"])];
        let sum = merge(records.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(all(&sum).iter().filter(|(found, _)| *found == id::GILS).count(), 2);
        assert_eq!(merge([&*sum]).unwrap(), sum);
    }

    #[test]
    fn the_number_of_rows_is_bounded_and_nothing_is_lost() {
        let records: Vec<Vec<u8>> = (0..40_u64)
            .map(|number| {
                record(|out| {
                    for index in 0..20 {
                        out.row(id::ENDPOINTS, |row| {
                            row.text(id::ENDPOINT_NAME, &format!("/{number}/{index}"));
                            row.count(id::ENDPOINT_REQUESTS, 1 + number);
                            row.text(id::ENDPOINT_APPLICATION_GROUP, "shop");
                        });
                    }
                })
            })
            .collect();
        let sum = merge(records.iter().map(Vec::as_slice)).unwrap();
        let again = merge([&sum[..], &records[39]]).unwrap();
        for (sum, requests) in [(&sum, 820 * 20), (&again, 860 * 20)] {
            let rows: Vec<Vec<_>> = all(sum)
                .into_iter()
                .filter_map(|(_, value)| match value {
                    Value::Row(row) => Some(row_entries(row).map(Result::unwrap).collect()),
                    _ => None,
                })
                .collect();
            assert!(rows.len() <= 2 * MAX_ROWS);
            let counted = rows.iter().flatten().map(|(_, value)| match value {
                Value::Count(count) => *count,
                _ => 0,
            });
            assert_eq!(counted.sum::<u64>(), requests);
            let name = Value::Text(OTHER.as_bytes());
            assert_eq!(rows.iter().filter(|row| row[0].1 == name).count(), 1);
        }
    }

    #[test]
    fn mod_wsgi_s_histograms_become_ours_with_exact_sums() {
        let mut buckets = [0; 65];
        (buckets[0], buckets[8], buckets[64]) = (2, 1, 1);
        let made = record(|out| {
            out.count(id::REQUEST_COUNT, 4);
            out.number(id::GIL_WAIT_TIME, 25.002);
            out.number(id::GIL_WAIT_TIME_MIN, 0.0);
            out.number(id::GIL_WAIT_TIME_MAX, 100.0);
            out.counts(id::GIL_WAIT_TIME_BUCKETS, buckets.into_iter());
        });
        let Some(Value::Histogram(bytes)) = get(&made, id::GIL_WAIT_TIME_HISTOGRAM) else {
            panic!()
        };
        let wait = histogram::decode(bytes).unwrap();
        assert_eq!((wait.count(), wait.sum_ns, wait.max_ns), (4, 100_008_000_000, 100_000_000_000));
        let median_ns = wait.percentile_ns(0.75).unwrap();
        assert!((4_000_000..5_000_000).contains(&median_ns), "{median_ns}");
        assert!(wait.percentile_ns(0.5).unwrap() < 1_250_000 * 17 / 16);
        assert_eq!(get(&made, id::COARSE_TICKS), Some(Value::Count(1)));
    }

    #[test]
    fn slots_and_extremes_are_kept() {
        let one = record(|out| {
            out.counts(id::REQUEST_THREADS_COMPLETED, [3, 1].into_iter());
            // Whole numbers in a list of seconds, as a sender in Python may write them.
            out.counts(id::REQUEST_THREADS_BUSY_TIME, [1, 0].into_iter());
            out.seconds_list(id::REQUEST_THREADS_CURRENT_ELAPSED, [0.0, 9.0].into_iter());
            out.count(id::MEMORY_MAX_RSS, 5);
        });
        let sum = merge([&*one, &*one]).unwrap();
        let Some(Value::Slots(bytes)) = get(&sum, id::SLOTS) else { panic!() };
        let slots = parse_slots(bytes).unwrap();
        assert_eq!(
            (slots[0].completed, slots[0].busy_us, slots[1].longest_us),
            (6, 2_000_000, 9_000_000)
        );
        assert_eq!(get(&sum, id::MEMORY_MAX_RSS), Some(Value::Count(5)));
    }

    #[test]
    fn sums_stay_numbers() {
        let mut writer = RecordWriter::new();
        writer.push(id::RSS_BYTE_SECONDS, Value::Number(f64::MAX));
        let record = writer.into_bytes();
        let sum = merge([&*record, &*record]).unwrap();
        assert_eq!(get(&sum, id::RSS_BYTE_SECONDS), Some(Value::Number(f64::MAX)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let _ = merge([&[&[1], &bytes[..]].concat()[..]]);
        }

        #[test]
        fn sums_do_not_depend_on_how_they_are_grouped(parts in proptest::collection::vec((1..5_u32, 0..4_u32), 2..12)) {
            let records: Vec<Vec<u8>> = parts
                .iter()
                .map(|(period, cpu)| tick_of(f64::from(*period), f64::from(*cpu) / 4.0, 10))
                .collect();
            let at = records.len() / 2;
            let flat = merge(records.iter().map(Vec::as_slice)).unwrap();
            let halves = [&records[..at], &records[at..]]
                .map(|half| merge(half.iter().map(Vec::as_slice)).unwrap());
            prop_assert_eq!(merge(halves.iter().map(Vec::as_slice)).unwrap(), flat);
        }
    }
}
