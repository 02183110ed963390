//! The code of records: fields in ascending order, each as the distance of its number from the one
//! before and its value, in numbers of variable length. Seconds are nanoseconds here. An empty
//! record is the version alone.

use super::fields::{self, Field, Kept, Type};
use super::{Malformed, Value, malformed, varint};

const VERSION: u8 = 1;

/// The work of one worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub completed: u64,
    pub busy_us: u64,
    pub cpu_us: u64,
    /// The longest request, including one that still runs.
    pub longest_us: u64,
}

/// Writes a record, or a row of one.
#[derive(Debug)]
pub struct RecordWriter {
    bytes: Vec<u8>,
    last: u16,
}

impl RecordWriter {
    pub fn new() -> Self {
        Self { bytes: vec![VERSION], last: 0 }
    }

    /// A writer for the fields of a row.
    pub fn of_row() -> Self {
        Self { bytes: Vec::new(), last: 0 }
    }

    /// A writer that continues a record.
    pub fn after(record: Vec<u8>) -> Result<Self, Malformed> {
        let mut last = 0;
        for entry in entries(&record)? {
            last = entry?.0.id;
        }
        Ok(Self { bytes: record, last })
    }

    /// Writes one more row into the memory of the row before.
    pub fn begin_row(&mut self) {
        self.bytes.clear();
        self.last = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes a field. Fields come in ascending order; the same one may come several times. A field
    /// that is not in the table, a value of another type than the field's, and a field behind which
    /// a sender has put a later one are left out.
    pub fn push(&mut self, id: u16, value: Value) {
        let is_field = fields::field(id).is_some_and(|field| is_of_type(field.kind, value));
        if id < self.last || !is_field {
            return;
        }
        varint::push(&mut self.bytes, u64::from(id - self.last));
        self.last = id;
        match value {
            Value::Count(number) => varint::push(&mut self.bytes, number),
            Value::Integer(number) | Value::Seconds(number) => {
                varint::push_signed(&mut self.bytes, number);
            }
            Value::Number(number) => self.bytes.extend_from_slice(&number.to_le_bytes()),
            Value::Text(bytes)
            | Value::Histogram(bytes)
            | Value::Row(bytes)
            | Value::Slots(bytes)
            | Value::Counts(bytes)
            | Value::SecondsList(bytes) => {
                varint::push(&mut self.bytes, bytes.len() as u64);
                self.bytes.extend_from_slice(bytes);
            }
        }
    }
}

impl Default for RecordWriter {
    fn default() -> Self {
        Self::new()
    }
}

fn is_of_type(kind: Type, value: Value) -> bool {
    matches!(
        (kind, value),
        (Type::Count, Value::Count(_))
            | (Type::Integer, Value::Integer(_))
            | (Type::Seconds, Value::Seconds(_))
            | (Type::Number, Value::Number(_))
            | (Type::Text, Value::Text(_))
            | (Type::Histogram, Value::Histogram(_))
            | (Type::Row, Value::Row(_))
            | (Type::Slots, Value::Slots(_))
    )
}

/// The fields of a record, until the first error.
pub fn entries(
    record: &[u8],
) -> Result<impl Iterator<Item = Result<(&'static Field, Value<'_>), Malformed>>, Malformed> {
    match record.split_first() {
        Some((&VERSION, fields)) => Ok(row_entries(fields)),
        Some((version, _)) => {
            malformed(format!("a record of version {version}; {VERSION} is known"))
        }
        None => malformed("a record without a byte"),
    }
}

/// The fields of a row of a record.
pub fn row_entries(
    mut row: &[u8],
) -> impl Iterator<Item = Result<(&'static Field, Value<'_>), Malformed>> {
    let mut last = 0_u64;
    std::iter::from_fn(move || {
        if row.is_empty() {
            return None;
        }
        let entry = take_entry(&mut row, &mut last);
        if entry.is_err() {
            row = &[];
        }
        Some(entry)
    })
}

fn take_entry<'a>(
    bytes: &mut &'a [u8],
    last: &mut u64,
) -> Result<(&'static Field, Value<'a>), Malformed> {
    *last = last.saturating_add(varint::take(bytes)?);
    let field = u16::try_from(*last).ok().and_then(fields::field);
    let Some(field) = field.filter(|field| field.kept != Kept::No) else {
        return malformed(format!("no record has a field {last}"));
    };
    let mut take_list = || {
        let length = varint::take(bytes)?;
        varint::take_bytes(bytes, length)
    };
    let value = match field.kind {
        Type::Text => Value::Text(take_list()?),
        Type::Histogram => Value::Histogram(take_list()?),
        Type::Row => Value::Row(take_list()?),
        Type::Slots => Value::Slots(take_list()?),
        Type::Count => Value::Count(varint::take(bytes)?),
        Type::Integer => Value::Integer(varint::take_signed(bytes)?),
        Type::Seconds => Value::Seconds(varint::take_signed(bytes)?),
        Type::Number => {
            let number = varint::take_bytes(bytes, 8)?.try_into().expect("eight bytes");
            let number = f64::from_le_bytes(number);
            if !number.is_finite() {
                return malformed(format!("field {} is no number", field.name));
            }
            Value::Number(number)
        }
        Type::Counts | Type::SecondsList => return malformed("no record has lists"),
    };
    Ok((field, value))
}

pub fn push_slots(out: &mut Vec<u8>, slots: &[Slot]) {
    for slot in slots {
        for number in [slot.completed, slot.busy_us, slot.cpu_us, slot.longest_us] {
            varint::push(out, number);
        }
    }
}

pub fn parse_slots(mut bytes: &[u8]) -> Result<Vec<Slot>, Malformed> {
    let mut slots = Vec::new();
    while !bytes.is_empty() {
        let mut next = || varint::take(&mut bytes);
        slots.push(Slot {
            completed: next()?,
            busy_us: next()?,
            cpu_us: next()?,
            longest_us: next()?,
        });
    }
    Ok(slots)
}
