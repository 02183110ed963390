//! The format of telemetry: the datagrams that processes send, and the records that are stored.
//!
//! A process sends datagrams in mod_wsgi's wire format (its `wsgi_telemetry.h`): a header and
//! fields. Once an interval it sends a *tick* with the events since the last one. A tick is stored
//! as a *record*: the same fields, in a form in which any number of records, of one process over
//! time or of several processes, add up to one record.
//!
//! - `fields`: the table of all fields, with their types and how they add up.
//! - `datagram`: writing and parsing datagrams.
//! - `histogram`: the code of a histogram.
//! - `record`, `tick`, `merge`: the code of records, records of ticks, sums of records.
//! - `spread`: the parts of the record of a late tick.
//! - `lines`, `stacks`: lines of code and their callers, whose names a tick has only once.
//! - `plausible`: bounds on the values of a tick.
//!
//! The crate knows no operating system, no Python, no sender and no receiver. It parses input from
//! anywhere: every error is a value, and no input decides how much memory is used.

pub mod datagram;
pub mod fields;
pub mod histogram;
pub mod lines;
pub mod merge;
pub mod plausible;
pub mod record;
pub mod spread;
pub mod stacks;
pub mod tick;
mod varint;

pub use fields::{Field, field, id, kind};

/// The reason why bytes are malformed, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn malformed<T>(text: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(text.into()))
}

/// The value of a field, which borrows the bytes of its datagram or record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Count(u64),
    Integer(i64),
    /// Nanoseconds; seconds on the wire.
    Seconds(i64),
    Number(f64),
    /// UTF-8 if Headway wrote it. A reader that shows it replaces other bytes.
    Text(&'a [u8]),
    /// Little-endian i32s, mod_wsgi's histograms and counts.
    Counts(&'a [u8]),
    /// Little-endian f64s, seconds.
    SecondsList(&'a [u8]),
    /// See `histogram`.
    Histogram(&'a [u8]),
    /// Fields, in the code of the datagram or record that contains them.
    Row(&'a [u8]),
    /// See `record::Slot`.
    Slots(&'a [u8]),
}

/// The items of `Value::Counts`.
pub fn counts(bytes: &[u8]) -> impl Iterator<Item = i32> + '_ {
    bytes.chunks_exact(4).map(|item| i32::from_le_bytes(item.try_into().expect("four bytes")))
}

/// The items of `Value::SecondsList`.
pub fn seconds_list(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(8).map(|item| f64::from_le_bytes(item.try_into().expect("eight bytes")))
}

/// Converts seconds to nanoseconds, clamped to a century in both directions.
pub fn nanoseconds(seconds: f64) -> i64 {
    const CENTURY_S: f64 = 3.2e9;
    (seconds.clamp(-CENTURY_S, CENTURY_S) * 1e9).round() as i64
}
