//! The fuzz target's properties on datagrams that a real mod_wsgi has sent, and on everything one
//! byte away from them.

#[path = "../../../fuzz/src/telemetry.rs"]
mod telemetry;

use std::path::PathBuf;

fn datagrams() -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorder/datagrams");
    let files = std::fs::read_dir(folder).expect("the folder of real datagrams");
    let paths = files.map(|file| file.expect("a file").path());
    let datagrams = paths.filter(|path| path.extension().is_some_and(|end| end == "bin"));
    datagrams.map(|path| std::fs::read(path).expect("a datagram")).collect()
}

#[test]
fn real_datagrams_and_their_neighbours() {
    let datagrams = datagrams();
    assert!(datagrams.len() > 10);
    for datagram in &datagrams {
        telemetry::datagram(datagram);
        let mut changed = datagram.clone();
        for place in 0..changed.len() {
            for byte in [0, 0x7f, 0xff] {
                changed[place] = byte;
                telemetry::datagram(&changed);
            }
            changed[place] = datagram[place];
        }
    }
}
