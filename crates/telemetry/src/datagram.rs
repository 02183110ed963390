//! Datagrams: a header of 24 bytes, then fields until the end. All numbers little-endian.
//!
//! ```text
//! "WSGI"  version u8 = 1  kind u8  flags u16 = 0  pid u32  seq u32  stamp f64, seconds since 1970
//! id u16  tag u8  [length u16: bytes, or items of an array]  value
//! ```

use super::fields::{self, FieldSet, Type};
use headway_measure::Histogram;

use super::histogram;
use super::{Malformed, Value, malformed, nanoseconds};

/// The longest datagram that is parsed; mod_wsgi's own senders stop at 8,192.
pub const MAX_BYTES: usize = 65_536;
/// The longest datagram that is sent; the caller of the writer keeps rows without room.
pub const MAX_SENT_BYTES: usize = 60_000;

const MAGIC: [u8; 4] = *b"WSGI";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;

mod tag {
    pub const U64: u8 = 1;
    pub const F64: u8 = 2;
    pub const I64: u8 = 3;
    pub const BYTES: u8 = 4;
    pub const I32_ARRAY: u8 = 5;
    pub const F64_ARRAY: u8 = 6;
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// One of `fields::kind`.
    pub kind: u8,
    pub pid: u32,
    /// One more than that of the process's last datagram of any kind.
    pub seq: u32,
    /// Seconds since 1970.
    pub stamp_s: f64,
}

/// Writes one datagram after another into the same memory.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Bytes that rows leave free for later fields.
    held_back: usize,
}

impl Writer {
    /// Begins a datagram, and discards the one before.
    pub fn begin(&mut self, header: &Header) {
        self.bytes.clear();
        self.held_back = 0;
        self.bytes.extend_from_slice(&MAGIC);
        self.bytes.extend_from_slice(&[VERSION, header.kind, 0, 0]);
        self.bytes.extend_from_slice(&header.pid.to_le_bytes());
        self.bytes.extend_from_slice(&header.seq.to_le_bytes());
        self.bytes.extend_from_slice(&header.stamp_s.to_le_bytes());
    }

    /// From now on rows leave this many bytes free for later fields.
    pub fn hold_back(&mut self, bytes: usize) {
        self.held_back = bytes;
    }

    /// The bytes that rows may still use.
    pub fn room(&self) -> usize {
        MAX_SENT_BYTES.saturating_sub(self.bytes.len() + self.held_back)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn count(&mut self, id: u16, value: u64) {
        self.tag(id, tag::U64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn integer(&mut self, id: u16, value: i64) {
        self.tag(id, tag::I64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes seconds or another number; one that is not finite is left out.
    pub fn number(&mut self, id: u16, value: f64) {
        if value.is_finite() {
            self.tag(id, tag::F64);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub fn seconds_of_ns(&mut self, id: u16, ns: u64) {
        self.number(id, ns as f64 / 1e9);
    }

    /// Writes text; a longer one is cut between two characters.
    pub fn text(&mut self, id: u16, value: &str) {
        let mut end = value.len().min(usize::from(u16::MAX));
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.octets(id, |bytes| bytes.extend_from_slice(&value.as_bytes()[..end]));
    }

    pub fn histogram(&mut self, id: u16, value: &Histogram) {
        self.octets(id, |bytes| histogram::encode(value, bytes));
    }

    pub fn counts(&mut self, id: u16, values: impl ExactSizeIterator<Item = i32>) {
        self.tag(id, tag::I32_ARRAY);
        self.bytes.extend_from_slice(&(values.len() as u16).to_le_bytes());
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    pub fn seconds_list(&mut self, id: u16, values: impl ExactSizeIterator<Item = f64>) {
        self.tag(id, tag::F64_ARRAY);
        self.bytes.extend_from_slice(&(values.len() as u16).to_le_bytes());
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    /// Writes a row with the fields that `write` writes. Returns false, and writes nothing, if the
    /// datagram has no room for it.
    pub fn row(&mut self, id: u16, write: impl FnOnce(&mut Self)) -> bool {
        let before = self.bytes.len();
        self.tag(id, tag::BYTES);
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        write(self);
        let length = self.bytes.len() - length_at - 2;
        if length > usize::from(u16::MAX) || self.bytes.len() + self.held_back > MAX_SENT_BYTES {
            self.bytes.truncate(before);
            return false;
        }
        self.bytes[length_at..length_at + 2].copy_from_slice(&(length as u16).to_le_bytes());
        true
    }

    fn tag(&mut self, id: u16, tag: u8) {
        self.bytes.extend_from_slice(&id.to_le_bytes());
        self.bytes.push(tag);
    }

    fn octets(&mut self, id: u16, write: impl FnOnce(&mut Vec<u8>)) {
        self.tag(id, tag::BYTES);
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        write(&mut self.bytes);
        let length = self.bytes.len() - length_at - 2;
        debug_assert!(length <= usize::from(u16::MAX));
        self.bytes[length_at..length_at + 2].copy_from_slice(&(length as u16).to_le_bytes());
    }
}

/// The kind and the pid in the header of a datagram, if it has one. The rest is not parsed.
pub fn peek(bytes: &[u8]) -> Option<(u8, u32)> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let pid = u32::from_le_bytes(header[8..12].try_into().expect("four"));
    (header[..4] == MAGIC).then_some((header[5], pid))
}

/// A datagram whose fields and rows were all checked, so that reading them cannot fail.
#[derive(Clone, Debug, PartialEq)]
pub struct Datagram<'a> {
    pub header: Header,
    fields: Vec<(u16, Value<'a>)>,
}

impl<'a> Datagram<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_BYTES {
            return malformed(format!("it has {} bytes, and {MAX_BYTES} are allowed", bytes.len()));
        }
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return malformed(format!("it has {} bytes, less than a header", bytes.len()));
        };
        if header[..4] != MAGIC {
            return malformed("it does not begin with \"WSGI\"");
        }
        if header[4] != VERSION {
            return malformed(format!("it is of version {}, and {VERSION} is known", header[4]));
        }
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let stamp_s = f64::from_le_bytes(header[16..].try_into().expect("eight"));
        if !stamp_s.is_finite() {
            return malformed("its time is no number");
        }
        let header = Header { kind: header[5], pid: word(8), seq: word(12), stamp_s };
        let fields: Vec<_> = entries(body).collect::<Result<_, _>>()?;
        let mut found = FieldSet::default();
        for (id, value) in &fields {
            if let Value::Row(row) = value {
                check_row(row).map_err(|error| within(*id, error))?;
            } else {
                check_once(*id, &mut found)?;
            }
            check_histogram(*id, value)?;
        }
        Ok(Self { header, fields })
    }

    pub fn fields(&self) -> impl Iterator<Item = (u16, Value<'a>)> + '_ {
        self.fields.iter().copied()
    }

    /// The value of a field.
    pub fn get(&self, id: u16) -> Option<Value<'a>> {
        self.fields.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }
}

fn check_row(row: &[u8]) -> Result<(), Malformed> {
    let mut found = FieldSet::default();
    for entry in entries(row) {
        let (id, value) = entry?;
        if matches!(value, Value::Row(_)) {
            return malformed(format!("field {id}: a row in a row"));
        }
        check_once(id, &mut found)?;
        check_histogram(id, &value)?;
    }
    Ok(())
}

/// Only rows may repeat: a field has one value, however long the datagram.
fn check_once(id: u16, found: &mut FieldSet) -> Result<(), Malformed> {
    match fields::field(id).is_none() || found.insert(id) {
        true => Ok(()),
        false => malformed(format!("field {id} comes twice")),
    }
}

fn check_histogram(id: u16, value: &Value) -> Result<(), Malformed> {
    match value {
        Value::Histogram(bytes) => {
            histogram::summary(bytes).map(drop).map_err(|error| within(id, error))
        }
        _ => Ok(()),
    }
}

fn within(id: u16, Malformed(text): Malformed) -> Malformed {
    Malformed(format!("field {id}: {text}"))
}

/// The fields of a datagram's body or of a row, until the first error.
pub fn entries(mut body: &[u8]) -> impl Iterator<Item = Result<(u16, Value<'_>), Malformed>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let entry = take_entry(&mut body);
        if entry.is_err() {
            body = &[];
        }
        Some(entry)
    })
}

fn take_entry<'a>(body: &mut &'a [u8]) -> Result<(u16, Value<'a>), Malformed> {
    let header = take(body, 3)?;
    let id = u16::from_le_bytes([header[0], header[1]]);
    let mut take_list = |item_bytes: usize| {
        let length = take(body, 2)?;
        take(body, usize::from(u16::from_le_bytes([length[0], length[1]])) * item_bytes)
    };
    let value = match header[2] {
        tag::BYTES => Value::Text(take_list(1)?),
        tag::I32_ARRAY => Value::Counts(take_list(4)?),
        tag::F64_ARRAY => {
            let bytes = take_list(8)?;
            if super::seconds_list(bytes).any(|item| !item.is_finite()) {
                return malformed(format!("field {id} has an item that is no number"));
            }
            Value::SecondsList(bytes)
        }
        tag::U64 => Value::Count(u64::from_le_bytes(take_eight(body)?)),
        tag::I64 => Value::Integer(i64::from_le_bytes(take_eight(body)?)),
        tag::F64 => Value::Number(f64::from_le_bytes(take_eight(body)?)),
        other => return malformed(format!("field {id} has the unknown type {other}")),
    };
    match as_declared(id, value) {
        Some(value) => Ok((id, value)),
        None => malformed(format!("field {id} is not of its type, or no number")),
    }
}

/// The value as the table has it. A sender in Python may write 0 for 0.0, so whole numbers do for
/// others, and a list of seconds may be one of whole numbers.
fn as_declared(id: u16, value: Value<'_>) -> Option<Value<'_>> {
    if matches!(value, Value::Number(number) if !number.is_finite()) {
        return None;
    }
    let Some(field) = fields::field(id) else { return Some(value) };
    Some(match (field.kind, value) {
        (Type::Count, Value::Count(_)) | (Type::Integer, Value::Integer(_)) => value,
        (Type::Count, Value::Integer(number)) => Value::Count(number.try_into().ok()?),
        (Type::Integer, Value::Count(number)) => Value::Integer(number.try_into().ok()?),
        (Type::Seconds, Value::Number(number)) => Value::Seconds(nanoseconds(number)),
        (Type::Seconds, Value::Count(number)) => Value::Seconds(nanoseconds(number as f64)),
        (Type::Seconds, Value::Integer(number)) => Value::Seconds(nanoseconds(number as f64)),
        (Type::Number, Value::Number(_)) => value,
        (Type::Number, Value::Count(number)) => Value::Number(number as f64),
        (Type::Number, Value::Integer(number)) => Value::Number(number as f64),
        (Type::Text, Value::Text(_)) => value,
        (Type::Histogram, Value::Text(bytes)) => Value::Histogram(bytes),
        (Type::Row, Value::Text(bytes)) => Value::Row(bytes),
        (Type::Counts | Type::SecondsList, Value::Counts(_)) => value,
        (Type::SecondsList, Value::SecondsList(_)) => value,
        _ => return None,
    })
}

fn take<'a>(body: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    super::varint::take_bytes(body, length as u64)
}

fn take_eight(body: &mut &[u8]) -> Result<[u8; 8], Malformed> {
    Ok(take(body, 8)?.try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::id;
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header { kind: 2, pid: 42, seq: 7, stamp_s: 1.5 }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        let mut wait = Histogram::default();
        wait.record(5_000_000);
        writer.begin(&header());
        writer.text(id::HOSTNAME, "host\u{e9}");
        writer.number(id::SAMPLE_PERIOD, 1.25);
        writer.number(id::CPU_UTILIZATION, f64::NAN);
        writer.counts(id::GIL_WAIT_TIME_BUCKETS, [1, 2].into_iter());
        writer.seconds_list(id::REQUEST_THREADS_BUSY_TIME, [0.5].into_iter());
        assert!(writer.row(id::GILS, |row| {
            row.text(id::GIL_NAME, "main");
            row.integer(id::GIL_INTERPRETER, 0);
            row.histogram(id::GIL_WAIT, &wait);
        }));
        assert!(!writer.row(id::GILS, |row| row.text(id::GIL_NAME, &"x".repeat(60_000))));
        let datagram = Datagram::parse(writer.bytes()).unwrap();
        assert_eq!(datagram.header, header());
        let values: Vec<_> = datagram.fields().collect();
        assert_eq!(values[0], (id::HOSTNAME, Value::Text("host\u{e9}".as_bytes())));
        assert_eq!(values[1], (id::SAMPLE_PERIOD, Value::Seconds(1_250_000_000)));
        assert_eq!(values[2].1, Value::Counts(&[1, 0, 0, 0, 2, 0, 0, 0]));
        let Value::Row(row) = values[4].1 else { panic!("{values:?}") };
        let row: Vec<_> = entries(row).map(Result::unwrap).collect();
        assert_eq!(row[1], (id::GIL_INTERPRETER, Value::Integer(0)));
        let Value::Histogram(bytes) = row[2].1 else { panic!("{row:?}") };
        assert_eq!(histogram::decode(bytes), Ok(wait));
        assert_eq!(values.len(), 5);
    }

    #[test]
    fn what_is_malformed_is_named() {
        let mut writer = Writer::default();
        writer.begin(&header());
        let empty = writer.bytes().to_vec();
        let with = |more: &[u8]| [&empty[..], more].concat();
        let row_in_row = {
            writer.row(id::GILS, |row| {
                row.row(id::THREADS, |_| ());
            });
            writer.bytes().to_vec()
        };
        let twice_in_row = {
            writer.begin(&header());
            writer.row(id::GILS, |row| {
                row.text(id::GIL_NAME, "main");
                row.text(id::GIL_NAME, "main");
            });
            writer.bytes().to_vec()
        };
        let twice = {
            writer.begin(&header());
            writer.text(id::POLICY, "priority");
            writer.text(id::HOSTNAME, "host");
            writer.text(id::POLICY, "deadline");
            writer.bytes().to_vec()
        };
        for (bytes, what) in [
            (twice, "field 1002 comes twice"),
            (twice_in_row, "field 1100: field 1101 comes twice"),
            (empty[..23].to_vec(), "less than a header"),
            ([b"WSGJ", &empty[4..]].concat(), "does not begin"),
            ([b"WSGI\x02", &empty[5..]].concat(), "version 2"),
            (with(&[13]), "3 bytes are announced"),
            (with(&[13, 0, 2, 0]), "8 bytes are announced"),
            (with(&[13, 0, 9]), "unknown type 9"),
            (with(&[13, 0, 4, 0, 0]), "field 13 is not of its type"),
            (with(&[[13, 0, 2].as_slice(), &f64::NAN.to_le_bytes()].concat()), "field 13"),
            (with(&[5, 0, 4, 255, 255]), "65535 bytes are announced"),
            (with(&[0x59, 0x04, 4, 1, 0, 0x80]), "field 1113"),
            (row_in_row, "a row in a row"),
            (with(&[0; MAX_BYTES]), "are allowed"),
        ] {
            let Malformed(text) = Datagram::parse(&bytes).unwrap_err();
            assert!(text.contains(what), "{text:?} should say {what:?}");
        }
        assert!(
            Datagram::parse(&with(&[0, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0])).is_ok(),
            "an unknown field"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_datagram_or_an_error(body: Vec<u8>) {
            let mut writer = Writer::default();
            writer.begin(&header());
            let bytes = [writer.bytes(), &body].concat();
            if let Ok(datagram) = Datagram::parse(&bytes) {
                datagram.fields().for_each(drop);
            }
            let _ = Datagram::parse(&body);
        }
    }
}
