//! The stacks of lines that make threads wait: numbers in a tick, identifiers in a record.
//!
//! A process numbers calls and sends each once with its caller's number, and again after a while.
//! The identifier of a call is a hash of its names and of its caller's identifier, so that equal
//! stacks of all processes, recorders and times are one row. A record has the identifiers of the
//! innermost calls; the reader keeps their names ([`Named`]).

use super::datagram::{Datagram, entries};
use super::fields::id;
use super::record::RecordWriter;
use super::{Value, counts};
use std::collections::HashMap;

/// Calls that are kept of one process. It uses fewer at a time.
const MAX_CALLS: usize = 8_192;
/// Calls of one tick that are kept. A process sends fewer than half as many.
const MAX_NAMED: usize = 512;
const MAX_NAME_BYTES: usize = 300;
/// Rows of one tick that are kept.
const MAX_ROWS: usize = 64;

/// The identifier of a call: ten characters of six bits each, which are text in all formats.
pub type CallId = [u8; 10];

/// A call that a tick names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub id: CallId,
    /// `None` for an outermost call.
    pub caller: Option<CallId>,
    /// Function, place and endpoint. A call has the first two, and an endpoint the third.
    pub texts: [Vec<u8>; 3],
}

/// The identifiers of the calls that one process has sent.
#[derive(Debug, Default)]
pub struct CallIds {
    ids: HashMap<u32, Known>,
    ticks: u64,
}

#[derive(Debug)]
struct Known {
    id: CallId,
    /// The tick that named it, or used it as the innermost call, last.
    used: u64,
}

impl CallIds {
    /// Adds the rows of a tick's stacks to its record. Returns the calls that the tick names.
    pub fn add_stacks(&mut self, datagram: &Datagram, record: &mut RecordWriter) -> Vec<Named> {
        let (mut named, mut numbers, mut times) = (Vec::new(), &[][..], &[][..]);
        self.ticks += 1;
        for (id, value) in datagram.fields() {
            match (id, value) {
                (id::CALLS, Value::Row(row)) if named.len() < MAX_NAMED => {
                    named.extend(self.learn(row));
                }
                (id::STACK_NUMBERS, Value::Counts(found)) => numbers = found,
                (id::STACK_TIMES, Value::Counts(found)) => times = found,
                _ => {}
            }
        }
        self.write_rows(numbers, times, record, [id::STACKS, id::STACK_ID, id::STACK_WAITED]);
        named
    }

    /// Adds the rows of the stacks for which event loops were late to the record of the tick that
    /// `add_stacks` got last.
    pub fn add_late_stacks(&mut self, datagram: &Datagram, record: &mut RecordWriter) {
        let list = |id| match datagram.get(id) {
            Some(Value::Counts(bytes)) => bytes,
            _ => &[],
        };
        let [numbers, times] = [id::LATE_STACK_NUMBERS, id::LATE_STACK_TIMES].map(list);
        let fields = [id::LATE_STACKS, id::LATE_STACK_ID, id::LATE_STACK_TIME];
        self.write_rows(numbers, times, record, fields);
    }

    /// `fields` are those of a row, of its identifier and of its time.
    fn write_rows(
        &mut self,
        numbers: &[u8],
        times: &[u8],
        record: &mut RecordWriter,
        fields: [u16; 3],
    ) {
        let mut row = RecordWriter::of_row();
        for (number, us) in counts(numbers).zip(counts(times)).take(MAX_ROWS) {
            let known = u32::try_from(number).ok().and_then(|number| self.ids.get_mut(&number));
            // The time of unknown stacks is in the rows of their lines.
            let Some(known) = known.filter(|_| us > 0) else { continue };
            known.used = self.ticks;
            row.begin_row();
            row.push(fields[1], Value::Text(&known.id));
            row.push(fields[2], Value::Seconds(i64::from(us) * 1_000));
            record.push(fields[0], Value::Row(row.bytes()));
        }
    }

    fn learn(&mut self, row: &[u8]) -> Option<Named> {
        let (mut number, mut caller, mut texts) = (None, None, <[Vec<u8>; 3]>::default());
        for (id, value) in entries(row).map_while(Result::ok) {
            match (id, value) {
                (id::CALL_NUMBER, Value::Count(found)) => number = u32::try_from(found).ok(),
                (id::CALL_PARENT, Value::Count(found)) => caller = Some(found),
                (id::LINE_FUNCTION..=id::LINE_ENDPOINT, Value::Text(text)) => {
                    let kept = &text[..text.len().min(MAX_NAME_BYTES)];
                    texts[usize::from(id - id::LINE_FUNCTION)] = kept.to_vec();
                }
                _ => {}
            }
        }
        let number = number?;
        let caller = match caller {
            None => None,
            // A call whose caller is not known gets no identifier, because that would differ.
            Some(caller) => Some(self.ids.get(&u32::try_from(caller).ok()?)?.id),
        };
        let named = Named { id: id_of(caller, &texts), caller, texts };
        if self.ids.len() >= MAX_CALLS && !self.ids.contains_key(&number) {
            self.forget_half();
        }
        self.ids.insert(number, Known { id: named.id, used: self.ticks });
        Some(named)
    }

    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.ids.values().map(|known| known.used).collect();
        used.sort_unstable();
        let middle = used[used.len() / 2];
        self.ids.retain(|_, known| known.used > middle);
    }
}

/// FNV-1a of all texts with their lengths. It is stored, so it never changes.
fn id_of(caller: Option<CallId>, texts: &[Vec<u8>; 3]) -> CallId {
    const CHARACTERS: &[u8; 64] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let caller = caller.unwrap_or_default();
    let parts = [&caller[..], &texts[0], &texts[1], &texts[2]];
    let bytes = parts
        .into_iter()
        .flat_map(|part| (part.len() as u32).to_le_bytes().into_iter().chain(part.iter().copied()));
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    // The upper bits of FNV depend on all bytes; the lowest depend on few.
    let mixed = hash ^ hash >> 32;
    std::array::from_fn(|place| CHARACTERS[(mixed >> (6 * place)) as usize & 63])
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Header, Writer};
    use super::super::record::{entries, row_entries};
    use super::super::{merge, tick};
    use super::*;

    /// Calls are (number, caller, name); rows are (number, microseconds).
    fn sent(calls: &[(u64, u64, &str)], rows: &[(i32, i32)]) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        for (number, caller, name) in calls {
            writer.row(id::CALLS, |row| {
                row.count(id::CALL_NUMBER, *number);
                if *caller != 0 {
                    row.count(id::CALL_PARENT, *caller);
                }
                row.text(id::LINE_FUNCTION, name);
            });
        }
        let column = |of: fn(&(i32, i32)) -> i32| rows.iter().map(of).collect::<Vec<_>>();
        writer.counts(id::STACK_NUMBERS, column(|row| row.0).into_iter());
        writer.counts(id::STACK_TIMES, column(|row| row.1).into_iter());
        writer.bytes().to_vec()
    }

    fn added(ids: &mut CallIds, datagram: &[u8]) -> (Vec<u8>, Vec<Named>) {
        let datagram = Datagram::parse(datagram).unwrap();
        let mut record = RecordWriter::after(tick::record(&datagram)).unwrap();
        let named = ids.add_stacks(&datagram, &mut record);
        (record.into_bytes(), named)
    }

    /// The rows of a record: the identifier and the microseconds.
    fn rows(record: &[u8]) -> Vec<(Vec<u8>, i64)> {
        let rows = entries(record).unwrap().filter_map(|entry| match entry.unwrap().1 {
            Value::Row(row) => Some(row_entries(row).map(Result::unwrap).collect::<Vec<_>>()),
            _ => None,
        });
        let read = rows.map(|row| match (row[0].1, row[1].1) {
            (Value::Text(id), Value::Seconds(ns)) => (id.to_vec(), ns / 1_000),
            other => panic!("{other:?}"),
        });
        read.collect()
    }

    #[test]
    fn equal_stacks_of_two_processes_are_one_row() {
        let (mut first, mut second) = (CallIds::default(), CallIds::default());
        let calls = [(1, 0, "main"), (2, 1, "work"), (3, 1, "rest")];
        let (one, named) = added(&mut first, &sent(&calls, &[(2, 5), (3, 1)]));
        assert_eq!(named[1].caller, Some(named[0].id));
        assert_eq!(
            named.iter().map(|call| call.id).collect::<std::collections::HashSet<_>>().len(),
            3
        );
        let (two, same) = added(&mut second, &sent(&[(7, 0, "main"), (9, 7, "work")], &[(9, 2)]));
        assert_eq!(same[..], named[..2]);
        let (three, none) = added(&mut first, &sent(&[], &[(2, 10)]));
        assert!(none.is_empty());
        let mut sum = rows(&merge::merge([&one[..], &two, &three]).unwrap());
        sum.sort_by_key(|(_, us)| *us);
        assert_eq!(sum, [(named[2].id.to_vec(), 1), (named[1].id.to_vec(), 17)]);
    }

    #[test]
    fn a_function_has_another_identifier_with_another_caller_and_as_an_endpoint() {
        let texts = [b"f".to_vec(), vec![], vec![]];
        let (alone, as_endpoint) =
            (id_of(None, &texts), id_of(None, &[vec![], vec![], b"f".to_vec()]));
        assert!(alone != as_endpoint && alone != id_of(Some(alone), &texts));
        // It is in stores.
        assert_eq!(&alone, b"ZEsEGkmwuP");
    }

    #[test]
    fn calls_without_a_known_caller_and_impossible_rows_are_left_out() {
        let mut ids = CallIds::default();
        let calls = [(2, 1, "no caller"), (3, 0, "yes"), (4, u64::MAX, "no")];
        let rows_sent = [(2, 1), (3, -5), (-1, 3), (4, 1), (3, 8)];
        let (record, named) = added(&mut ids, &sent(&calls, &rows_sent));
        assert_eq!(named.len(), 1);
        assert_eq!(rows(&record), [(named[0].id.to_vec(), 8)]);
    }

    #[test]
    fn calls_are_bounded_and_those_in_use_stay() {
        let mut ids = CallIds::default();
        let many: Vec<_> = (1..2_000).map(|number| (number, 0, "f")).collect();
        assert_eq!(added(&mut ids, &sent(&many, &[])).1.len(), MAX_NAMED);
        for number in 1..40_000 {
            added(&mut ids, &sent(&[(number, 0, "f")], &[(1, 1)]));
            assert!(ids.ids.len() <= MAX_CALLS);
        }
        assert!(ids.ids.contains_key(&1));
    }
}
