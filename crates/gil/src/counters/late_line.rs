//! A line of code that an event loop was late for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use headway_measure::add;

use super::text::Text;

/// Lines of a process; further ones are not kept.
pub const LATE_LINES: usize = 128;
const FILE_BYTES: usize = 160;

/// A line that late iterations of an event loop are charged to. All zero bytes are an unused entry.
///
/// Writer: the reader of stacks, and an install while it does not run. Readers: any thread or
/// process. The times are relaxed; `serial` is stored last, with release, and read first, with
/// acquire.
#[repr(C)]
pub struct LateLine {
    /// The number of the loop's counters; 0 in an unused entry.
    serial: AtomicU32,
    part: AtomicU32,
    line: AtomicU32,
    holder: AtomicU32,
    late_ns: AtomicU64,
    readings: AtomicU64,
    function: Text<96>,
    file: Text<FILE_BYTES>,
    callback: Text<96>,
}

/// An entry as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateLineRow {
    /// See `LoopCounters::serial`.
    pub serial: u32,
    /// 0 computed, 1 waited, 2 blocked.
    pub part: u32,
    /// The innermost function; for a wait, that of the thread that held the GIL. Empty if its stack
    /// could not be read.
    pub function: String,
    pub file: String,
    /// 0 if it is unknown.
    pub line: u32,
    /// The coroutine or callback that the loop ran; empty if it is unknown.
    pub callback: String,
    /// The kernel's ID of the thread that held the GIL; 0 if it is not known.
    pub holder: u32,
    pub late_ns: u64,
    pub readings: u64,
}

impl LateLine {
    pub fn row(&self) -> Option<LateLineRow> {
        let serial = self.serial.load(Acquire);
        (serial != 0).then(|| LateLineRow {
            serial,
            part: self.part.load(Relaxed),
            function: self.function.to_text(),
            file: self.file.to_text(),
            line: self.line.load(Relaxed),
            callback: self.callback.to_text(),
            holder: self.holder.load(Relaxed),
            late_ns: self.late_ns.load(Relaxed),
            readings: self.readings.load(Relaxed),
        })
    }

    /// Makes an unused entry one of this line, with nothing charged.
    pub fn begin(&self, row: &LateLineRow) {
        self.part.store(row.part, Relaxed);
        self.line.store(row.line, Relaxed);
        self.holder.store(row.holder, Relaxed);
        self.function.set(row.function.as_bytes());
        self.file.set(end_of(&row.file, FILE_BYTES).as_bytes());
        self.callback.set(row.callback.as_bytes());
        self.serial.store(row.serial, Release);
    }

    pub fn charge(&self, late_ns: u64) {
        add(&self.late_ns, late_ns);
        add(&self.readings, 1);
    }

    pub fn clear(&self) {
        self.serial.store(0, Relaxed);
        self.late_ns.store(0, Relaxed);
        self.readings.store(0, Relaxed);
    }
}

/// The last bytes of a path, which say more than the first.
fn end_of(path: &str, bytes: usize) -> &str {
    let mut start = path.len().saturating_sub(bytes);
    while !path.is_char_boundary(start) {
        start += 1;
    }
    path.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_kept_with_what_it_is_charged() {
        // SAFETY: all zero bytes are an unused entry.
        let line: Box<LateLine> = unsafe { Box::new(std::mem::zeroed()) };
        assert_eq!(line.row(), None);
        let file = format!("/{}é/app.py", "a".repeat(300));
        let row = LateLineRow {
            serial: 3,
            part: 2,
            function: "work".into(),
            line: 7,
            callback: "main".into(),
            file,
            ..LateLineRow::default()
        };
        line.begin(&row);
        line.charge(5);
        line.charge(6);
        let read = line.row().unwrap();
        assert_eq!((read.late_ns, read.readings, read.line, read.part), (11, 2, 7, 2));
        assert_eq!((read.function.as_str(), read.callback.as_str()), ("work", "main"));
        assert!(read.file.ends_with("aé/app.py") && read.file.len() <= 160);
        line.clear();
        assert_eq!(line.row(), None);
    }
}
