//! What one worker thread runs, as the monitor sees it.

use crate::record::clock::now_ns;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// As much of `METHOD target` as a message needs.
const LINE_BYTES: usize = 200;

pub struct Activity {
    /// The kernel's id of the thread.
    pub native_id: i32,
    /// Whether a limit needs any of this.
    wanted: bool,
    /// When the request that the thread runs began; 0 while it runs none. Written by the thread,
    /// read by the monitor; relaxed, since `line` orders what belongs together.
    begun_ns: AtomicU64,
    /// When its last request ended; 0 before the first. Likewise.
    ended_ns: AtomicU64,
    /// The beginning of the request that the monitor has told of last. The monitor's own.
    told_ns: AtomicU64,
    /// The request. Locked by the thread for the time of a copy, by the monitor likewise.
    line: Mutex<Vec<u8>>,
}

/// A request that runs for too long.
pub struct Overdue {
    pub line: String,
    pub run_ns: u64,
}

impl Activity {
    pub fn of_this_thread(wanted: bool) -> Self {
        Self {
            // SAFETY: no preconditions.
            native_id: unsafe { libc::gettid() },
            wanted,
            begun_ns: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            told_ns: AtomicU64::new(0),
            line: Mutex::default(),
        }
    }

    pub fn begin_request(&self, method: &[u8], target: &[u8]) {
        if self.wanted {
            let mut line = self.line.lock().expect("no panic under this lock");
            line.clear();
            line.extend_from_slice(method);
            line.push(b' ');
            line.extend_from_slice(&target[..target.len().min(LINE_BYTES)]);
            self.begun_ns.store(now_ns(), Relaxed);
        }
    }

    pub fn end_request(&self, now_ns: u64) {
        if self.wanted {
            self.ended_ns.store(now_ns, Relaxed);
            self.begun_ns.store(0, Relaxed);
        }
    }

    pub fn begun_ns(&self) -> Option<u64> {
        Some(self.begun_ns.load(Relaxed)).filter(|ns| *ns != 0)
    }

    pub fn ended_ns(&self) -> Option<u64> {
        Some(self.ended_ns.load(Relaxed)).filter(|ns| *ns != 0)
    }

    /// The request, if it has run for longer than `limit_ns` and was not told of.
    pub fn overdue(&self, now_ns: u64, limit_ns: u64) -> Option<Overdue> {
        let line = self.line.lock().expect("no panic under this lock");
        // Under the lock no other request begins, so this is the one that `line` says.
        let begun_ns = self.begun_ns()?;
        let run_ns = now_ns.saturating_sub(begun_ns);
        if run_ns <= limit_ns || self.told_ns.swap(begun_ns, Relaxed) == begun_ns {
            return None;
        }
        let graphic =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { *byte } else { b'?' };
        Some(Overdue { line: line.iter().map(graphic).map(char::from).collect(), run_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_overdue_once() {
        let activity = Activity::of_this_thread(true);
        assert!(activity.overdue(u64::MAX, 5).is_none(), "none runs");
        activity.begin_request(b"GET", b"/slow\n");
        let begun_ns = activity.begun_ns().unwrap();
        assert!(activity.overdue(begun_ns + 5, 5).is_none());
        let overdue = activity.overdue(begun_ns + 6, 5).unwrap();
        assert_eq!((&*overdue.line, overdue.run_ns), ("GET /slow?", 6));
        assert!(activity.overdue(begun_ns + 7, 5).is_none());
        activity.end_request(begun_ns + 8);
        assert!(activity.overdue(u64::MAX, 5).is_none());
        activity.begin_request(b"GET", &[b'x'; 1_000]);
        assert_eq!(activity.overdue(u64::MAX, 5).unwrap().line.len(), 4 + LINE_BYTES);
    }

    #[test]
    fn nothing_is_kept_that_no_limit_needs() {
        let activity = Activity::of_this_thread(false);
        activity.begin_request(b"GET", b"/");
        assert!(activity.begun_ns().is_none() && activity.ended_ns().is_none());
    }
}
