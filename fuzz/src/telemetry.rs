//! What must be true of telemetry's datagrams and records whatever bytes come. Panics where it is not.
//!
//! Two callers: the fuzz target, and `cargo test` of headway-telemetry (`tests/fuzzed.rs`).

use headway_telemetry::datagram::Datagram;
use headway_telemetry::merge::merge;
use headway_telemetry::{record, tick};

/// `bytes`: what a receiver may get. What is a datagram has a record; what is not, but follows a record's first byte,
/// may be one. Records add up to records that are read again, and a sum with nothing is the same.
pub fn datagram(bytes: &[u8]) {
    let Ok(datagram) = Datagram::parse(bytes) else {
        if let Ok(sum) = merge([bytes, bytes]) {
            must_be_whole(&sum);
        }
        return;
    };
    let tick = tick::record(&datagram);
    must_be_whole(&tick);
    let one = merge([&tick[..]]).expect("a record that was just made");
    assert!(one.len() <= tick.len() + 200, "{} of {}", one.len(), tick.len());
    let two = merge([&tick[..], &tick]).expect("a record that was just made");
    must_be_whole(&two);
    assert_eq!(merge([&one[..]]).expect("a sum"), one, "a sum is its own sum");
}

fn must_be_whole(bytes: &[u8]) {
    for entry in record::entries(bytes).expect("a version") {
        entry.expect("what was written is read");
    }
}
