//! The lines of code that make threads wait: numbers in a tick, names in a record.
//!
//! A process numbers its lines and sends each name when it first uses the number, and again after a
//! while, since a recorder may have begun later or a datagram may be lost. A record has the names,
//! so that records of all processes add up.

use super::datagram::{Datagram, entries};
use super::fields::id;
use super::merge::OTHER;
use super::record::RecordWriter;
use super::{Value, counts};
use std::collections::HashMap;

/// The numbers that need no name. A process numbers its lines from `FIRST` on.
pub const NUMBER_OF_OTHER: u32 = 0;
pub const NUMBER_OF_HANDOFF: u32 = 1;
pub const NUMBER_OF_NOT_RECORDED: u32 = 2;
pub const FIRST: u32 = 16;

/// The parts of an iteration of an event loop, as the outermost calls of the stacks of late ones.
pub const PARTS: [&str; 3] = ["(computed)", "(waited)", "(blocked)"];

/// Between a drop of a GIL and the next take.
const HANDOFF: &str = "(handoff)";
/// No stack was read.
const NOT_RECORDED: &str = "(not recorded)";
/// The name has not arrived.
const UNNAMED: &str = "(not named yet)";

/// Names that are kept of one process. It uses fewer at a time.
const MAX_NAMES: usize = 512;
const MAX_NAME_BYTES: usize = 300;
/// Rows of one tick that are kept.
const MAX_ROWS: usize = 64;

/// The names that one process has sent.
#[derive(Debug, Default)]
pub struct LineNames {
    names: HashMap<u32, Name>,
    ticks: u64,
}

#[derive(Debug)]
struct Name {
    /// Function, place, endpoint and holder.
    texts: [Vec<u8>; 4],
    /// The tick that used it last.
    used: u64,
}

impl LineNames {
    /// Adds the rows of a tick's lines to its record.
    pub fn add_lines(&mut self, datagram: &Datagram, record: &mut RecordWriter) {
        self.ticks += 1;
        for (id, value) in datagram.fields() {
            if let (id::LINE_NAMES, Value::Row(row)) = (id, value) {
                self.learn(row);
            }
        }
        let (Some(Value::Counts(numbers)), Some(Value::Counts(times))) =
            (datagram.get(id::LINE_NUMBERS), datagram.get(id::LINE_TIMES))
        else {
            return;
        };
        let mut row = RecordWriter::of_row();
        let mut unnamed_ns = 0;
        for (number, us) in counts(numbers).zip(counts(times)).take(MAX_ROWS) {
            let ns = i64::from(us.max(0)) * 1_000;
            match self.texts_of(number) {
                Some(texts) => write_row(record, &mut row, &texts[..3], ns),
                None => unnamed_ns += ns,
            }
        }
        if unnamed_ns != 0 {
            write_row(record, &mut row, &[UNNAMED.as_bytes()], unnamed_ns);
        }
    }

    /// Adds the rows of the lines for which event loops were late to the record of the tick that
    /// `add_lines` got last.
    pub fn add_late_lines(&mut self, datagram: &Datagram, record: &mut RecordWriter) {
        let list = |id| match datagram.get(id) {
            Some(Value::Counts(bytes)) => bytes,
            _ => &[],
        };
        let [numbers, parts, times] = [id::LATE_NUMBERS, id::LATE_PARTS, id::LATE_TIMES].map(list);
        let mut row = RecordWriter::of_row();
        let rows = counts(numbers).zip(counts(parts)).zip(counts(times)).take(MAX_ROWS);
        for ((number, part), us) in rows {
            let part = usize::try_from(part).ok().and_then(|part| PARTS.get(part));
            let Some(part) = part.filter(|_| us > 0) else { continue };
            let unnamed = [UNNAMED.as_bytes(), b"", b"", b""];
            let texts = self.texts_of(number).unwrap_or(unnamed);
            row.begin_row();
            for (text, id) in texts.iter().zip(id::LATE_FUNCTION..) {
                if !text.is_empty() {
                    row.push(id, Value::Text(text));
                }
            }
            row.push(id::LATE_PART, Value::Text(part.trim_matches(['(', ')']).as_bytes()));
            row.push(id::LATE_TIME, Value::Seconds(i64::from(us) * 1_000));
            record.push(id::LATE_LINES, Value::Row(row.bytes()));
        }
    }

    fn learn(&mut self, row: &[u8]) {
        let (mut number, mut texts) = (None, <[Vec<u8>; 4]>::default());
        for (id, value) in entries(row).map_while(Result::ok) {
            match (id, value) {
                (id::LINE_NUMBER, Value::Count(found)) => number = u32::try_from(found).ok(),
                (id::LINE_FUNCTION..=id::LINE_ENDPOINT | id::LINE_HOLDER, Value::Text(text)) => {
                    let kept = &text[..text.len().min(MAX_NAME_BYTES)];
                    let place = usize::from(id - id::LINE_FUNCTION).min(texts.len() - 1);
                    texts[place] = kept.to_vec();
                }
                _ => {}
            }
        }
        let Some(number) = number.filter(|number| *number >= FIRST) else { return };
        if self.names.len() >= MAX_NAMES && !self.names.contains_key(&number) {
            let mut used: Vec<u64> = self.names.values().map(|name| name.used).collect();
            used.sort_unstable();
            let middle = used[used.len() / 2];
            self.names.retain(|_, name| name.used > middle);
        }
        self.names.insert(number, Name { texts, used: self.ticks });
    }

    fn texts_of(&mut self, number: i32) -> Option<[&[u8]; 4]> {
        let named = |name: &'static str| Some([name.as_bytes(), b"", b"", b""]);
        match u32::try_from(number).ok()? {
            NUMBER_OF_OTHER => named(OTHER),
            NUMBER_OF_HANDOFF => named(HANDOFF),
            NUMBER_OF_NOT_RECORDED => named(NOT_RECORDED),
            number => {
                let name = self.names.get_mut(&number)?;
                name.used = self.ticks;
                Some(name.texts.each_ref().map(Vec::as_slice))
            }
        }
    }
}

/// `row` is memory for the row.
fn write_row(record: &mut RecordWriter, row: &mut RecordWriter, texts: &[&[u8]], ns: i64) {
    row.begin_row();
    for (text, id) in texts.iter().zip(id::LINE_FUNCTION..) {
        if !text.is_empty() {
            row.push(id, Value::Text(text));
        }
    }
    row.push(id::LINE_WAITED, Value::Seconds(ns));
    record.push(id::LINES, Value::Row(row.bytes()));
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Header, Writer};
    use super::super::fields::{FIELDS, Kept};
    use super::super::record::{entries, row_entries};
    use super::super::{merge, tick};
    use super::*;

    fn sent(names: &[(u32, &str)], rows: &[(i32, i32)]) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        for (number, name) in names {
            writer.row(id::LINE_NAMES, |row| {
                row.count(id::LINE_NUMBER, u64::from(*number));
                row.text(id::LINE_FUNCTION, name);
                row.text(id::LINE_PLACE, "app.py:7");
            });
        }
        writer
            .counts(id::LINE_NUMBERS, rows.iter().map(|row| row.0).collect::<Vec<_>>().into_iter());
        writer.counts(id::LINE_TIMES, rows.iter().map(|row| row.1).collect::<Vec<_>>().into_iter());
        writer.bytes().to_vec()
    }

    fn record(names: &mut LineNames, datagram: &[u8]) -> Vec<u8> {
        let datagram = Datagram::parse(datagram).unwrap();
        let mut record = RecordWriter::after(tick::record(&datagram)).unwrap();
        names.add_lines(&datagram, &mut record);
        record.into_bytes()
    }

    /// The rows of a record: the function, the number of names, the microseconds.
    fn rows(record: &[u8]) -> Vec<(String, usize, i64)> {
        let rows = entries(record).unwrap().filter_map(|entry| match entry.unwrap().1 {
            Value::Row(row) => Some(row_entries(row).map(Result::unwrap).collect::<Vec<_>>()),
            _ => None,
        });
        let read = rows.map(|row| match (row.first().unwrap().1, row.last().unwrap().1) {
            (Value::Text(name), Value::Seconds(ns)) => {
                (String::from_utf8_lossy(name).into_owned(), row.len() - 1, ns / 1_000)
            }
            other => panic!("{other:?}"),
        });
        read.collect()
    }

    #[test]
    fn a_name_is_sent_once_and_rows_add_up() {
        let mut names = LineNames::default();
        let one = record(&mut names, &sent(&[(16, "work")], &[(16, 5), (1, 3)]));
        let two = record(&mut names, &sent(&[], &[(16, 7), (2, 1), (0, 2)]));
        assert_eq!(rows(&one), [("work".into(), 2, 5), ("(handoff)".into(), 1, 3)]);
        let mut sum = rows(&merge::merge([&one[..], &two]).unwrap());
        sum.sort();
        let expected =
            [("(handoff)", 1, 3), ("(not recorded)", 1, 1), ("(other)", 1, 2), ("work", 2, 12)];
        assert_eq!(sum, expected.map(|(name, keys, us)| (name.to_owned(), keys, us)));
    }

    #[test]
    fn a_tick_that_has_later_rows_already_has_a_whole_record() {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        writer.row(id::LATE_STACKS, |row| row.text(id::LATE_STACK_ID, "forged"));
        writer.counts(id::LINE_NUMBERS, [1].into_iter());
        writer.counts(id::LINE_TIMES, [5].into_iter());
        let record = record(&mut LineNames::default(), writer.bytes());
        assert!(entries(&record).unwrap().all(|entry| entry.is_ok()));
    }

    #[test]
    fn rows_come_behind_all_other_fields_of_a_record() {
        for field in FIELDS.iter().filter(|field| field.id > id::LINES && field.kept != Kept::No) {
            let rows = [
                id::LINES..=id::LINE_WAITED,
                id::STACKS..=id::STACK_WAITED,
                id::LATE_LINES..=id::LATE_TIME,
                id::LATE_STACKS..=id::LATE_STACK_TIME,
            ];
            assert!(rows.iter().any(|rows| rows.contains(&field.id)), "{}", field.name);
        }
    }

    /// The rows of late lines: their texts, and the microseconds.
    fn late_rows(names: &mut LineNames, datagram: &[u8]) -> Vec<(Vec<String>, i64)> {
        let datagram = Datagram::parse(datagram).unwrap();
        let mut record = RecordWriter::after(tick::record(&datagram)).unwrap();
        names.add_lines(&datagram, &mut record);
        names.add_late_lines(&datagram, &mut record);
        // The record can be read, and added to itself.
        let record = merge::merge([record.bytes()]).unwrap();
        let rows = entries(&record).unwrap().map(Result::unwrap);
        let rows = rows.filter_map(|(field, value)| match value {
            Value::Row(row) if field.id == id::LATE_LINES => Some(row.to_vec()),
            _ => None,
        });
        let read = rows.map(|row| {
            let (mut texts, mut us) = (Vec::new(), 0);
            for (_, value) in row_entries(&row).map(Result::unwrap) {
                match value {
                    Value::Text(text) => texts.push(String::from_utf8_lossy(text).into_owned()),
                    Value::Seconds(ns) => us = ns / 1_000,
                    other => panic!("{other:?}"),
                }
            }
            (texts, us)
        });
        read.collect()
    }

    fn sent_late(rows: &[[i32; 3]]) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        writer.row(id::LINE_NAMES, |row| {
            row.count(id::LINE_NUMBER, 20);
            row.text(id::LINE_FUNCTION, "multiply");
            row.text(id::LINE_PLACE, "app.py:7");
            row.text(id::LINE_ENDPOINT, "handle");
            row.text(id::LINE_HOLDER, "worker");
        });
        for (column, id) in [id::LATE_NUMBERS, id::LATE_PARTS, id::LATE_TIMES].iter().enumerate() {
            writer.counts(*id, rows.iter().map(|row| row[column]).collect::<Vec<_>>().into_iter());
        }
        writer.bytes().to_vec()
    }

    #[test]
    fn late_lines_have_names_without_lines_that_made_threads_wait() {
        let mut names = LineNames::default();
        let rows = late_rows(&mut names, &sent_late(&[[20, 1, 5], [0, 2, 3], [20, 1, 2]]));
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let named = ["multiply", "app.py:7", "handle", "worker", "waited"];
        assert_eq!(rows, [(texts(&["(other)", "blocked"]), 3), (texts(&named), 7)]);
        let hostile = [[20, 3, 1], [20, -1, 1], [20, 0, -5], [-9, 0, 1], [21, i32::MAX, 1]];
        let rows = late_rows(&mut names, &sent_late(&hostile));
        assert_eq!(rows, [(texts(&[UNNAMED, "computed"]), 1)]);
        let many = vec![[20, 0, 1]; 1_000];
        assert_eq!(late_rows(&mut names, &sent_late(&many))[0].1, MAX_ROWS as i64);
    }

    #[test]
    fn lines_without_a_name_and_impossible_numbers_are_one_row() {
        let mut names = LineNames::default();
        let made = record(&mut names, &sent(&[(3, "no")], &[(3, 1), (17, 2), (-4, 4), (18, -9)]));
        assert_eq!(rows(&made), [(UNNAMED.to_owned(), 1, 7)]);
    }

    #[test]
    fn names_are_bounded_and_those_in_use_stay() {
        let mut names = LineNames::default();
        for number in FIRST..10_000 {
            record(&mut names, &sent(&[(number, "f")], &[(FIRST as i32, 1), (number as i32, 1)]));
            assert!(names.names.len() <= MAX_NAMES);
        }
        assert!(names.names.contains_key(&FIRST));
    }
}
