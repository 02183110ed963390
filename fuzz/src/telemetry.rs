//! Properties of telemetry's datagrams and records that must hold for any input. A violation
//! panics.
//!
//! The callers are the fuzz target and `cargo test` of headway-telemetry (`tests/fuzzed.rs`).

use headway_telemetry::datagram::Datagram;
use headway_telemetry::lines::LineNames;
use headway_telemetry::merge::merge;
use headway_telemetry::record::RecordWriter;
use headway_telemetry::stacks::CallIds;
use headway_telemetry::{record, tick};

/// `bytes` is the input of a receiver. Each valid datagram has a record; other bytes may be a
/// record. The sum of records is a valid record, and the sum of a sum alone is the sum itself.
pub fn datagram(bytes: &[u8]) {
    let Ok(datagram) = Datagram::parse(bytes) else {
        if let Ok(sum) = merge([bytes, bytes]) {
            must_be_whole(&sum);
        }
        return;
    };
    let tick = tick::record(&datagram);
    must_be_whole(&tick);
    must_be_whole(&with_lines(&datagram, tick.clone()));
    let one = merge([&tick[..]]).expect("a record that was just made");
    assert!(one.len() <= tick.len() + 200, "{} of {}", one.len(), tick.len());
    let two = merge([&tick[..], &tick]).expect("a record that was just made");
    must_be_whole(&two);
    assert_eq!(merge([&one[..]]).expect("a sum"), one, "a sum is its own sum");
}

/// The record with the rows that need names.
fn with_lines(datagram: &Datagram, tick: Vec<u8>) -> Vec<u8> {
    let (mut lines, mut calls) = (LineNames::default(), CallIds::default());
    let mut record = RecordWriter::after(tick).expect("a record that was just made");
    lines.add_lines(datagram, &mut record);
    calls.add_stacks(datagram, &mut record);
    lines.add_late_lines(datagram, &mut record);
    calls.add_late_stacks(datagram, &mut record);
    record.into_bytes()
}

fn must_be_whole(bytes: &[u8]) {
    for entry in record::entries(bytes).expect("a version") {
        entry.expect("what was written is read");
    }
}
