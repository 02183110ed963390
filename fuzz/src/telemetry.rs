//! Properties of telemetry's datagrams and records that must hold for any input. A violation
//! panics.
//!
//! The callers are the fuzz target and `cargo test` of headway-telemetry (`tests/fuzzed.rs`).

use headway_telemetry::datagram::Datagram;
use headway_telemetry::merge::merge;
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
