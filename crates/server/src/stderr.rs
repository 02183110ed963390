//! Lines on stderr that cannot wait for Python, in the form of `headway.server.stderr`.

use crate::net::socket::polled_events;
use rustix::event::PollFlags;
use std::ffi::OsString;
use std::fmt::{Display, Formatter, Result};
use std::io::IsTerminal;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The device and inode of systemd's journal socket (`JOURNAL_STREAM`); the inner `None` without
/// one.
static JOURNAL: OnceLock<Option<OsString>> = OnceLock::new();

/// Reads `JOURNAL_STREAM`. Callers hold the GIL and call this before the first line is written:
/// without the GIL the application may be changing the environment, and `/proc/self/environ` is
/// unreadable after a change of user or without a free descriptor.
pub fn note_journal() {
    JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM"));
}

/// Writes lines to stderr. Lines of several threads and processes do not mix as long as each text
/// fits into one write of `PIPE_BUF` bytes. This does not use Python's `sys.stderr`, which needs
/// the GIL. If stderr is a full pipe, the rest of the text is dropped, so that the monitor never
/// blocks.
pub fn log_to_stderr(text: &str) {
    let text = format!("{Stamp}headway serve: process {}: {text}\n", std::process::id());
    let mut rest = text.as_bytes();
    let stderr = std::io::stderr();
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(rest.len().min(libc::PIPE_BUF));
        // A pipe that polls as writable has room for PIPE_BUF bytes, so the write does not block.
        if polled_events(stderr.as_fd(), PollFlags::OUT).is_empty()
            || rustix::io::write(&stderr, piece) != Ok(piece.len())
        {
            return;
        }
        rest = others;
    }
}

/// Nanoseconds, written as seconds with one digit after the point.
pub struct Seconds(pub u64);

impl Display for Seconds {
    fn fmt(&self, out: &mut Formatter) -> Result {
        write!(out, "{:.1}", self.0 as f64 / 1e9)
    }
}

/// Lets a line be written once a minute.
#[derive(Default)]
pub struct OncePerMinute {
    /// When the last line was written; 0 before the first. Written by the threads that report,
    /// relaxed: the exchange lets one of two write the line.
    last_ns: AtomicU64,
}

impl OncePerMinute {
    const PERIOD_NS: u64 = 60_000_000_000;

    /// True if the caller is to write the line now.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let last_ns = self.last_ns.load(Relaxed);
        let is_due = last_ns == 0 || now_ns.saturating_sub(last_ns) >= Self::PERIOD_NS;
        is_due && self.last_ns.compare_exchange(last_ns, now_ns, Relaxed, Relaxed).is_ok()
    }
}

/// The prefix of a line: its time and its process. It is empty on a terminal, which shows lines at
/// once, and in systemd's journal, which records time and process itself.
struct Stamp;

impl Display for Stamp {
    fn fmt(&self, out: &mut Formatter) -> Result {
        if needs_no_prefix() {
            return Ok(());
        }
        let (mut now, mut local) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both calls write to the live values that they are given, and neither fails for
        // the current time, so both values are initialized.
        let (now, local): (libc::timespec, libc::tm) = unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, now.as_mut_ptr());
            let now = now.assume_init();
            libc::localtime_r(&now.tv_sec, local.as_mut_ptr());
            (now, local.assume_init())
        };
        let (sign, east_s) = (if local.tm_gmtoff < 0 { '-' } else { '+' }, local.tm_gmtoff.abs());
        write!(
            out,
            "{}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}{sign}{:02}:{:02} [{}] ",
            local.tm_year + 1900,
            local.tm_mon + 1,
            local.tm_mday,
            local.tm_hour,
            local.tm_min,
            local.tm_sec,
            now.tv_nsec / 1_000_000,
            east_s / 3600,
            east_s / 60 % 60,
            std::process::id()
        )
    }
}

fn needs_no_prefix() -> bool {
    let stderr = std::io::stderr();
    let Ok(stat) = rustix::fs::fstat(&stderr) else { return true };
    if stderr.is_terminal() {
        return true;
    }
    let found = format!("{}:{}", stat.st_dev, stat.st_ino);
    JOURNAL
        .get()
        .is_some_and(|journal| journal.as_deref().is_some_and(|expected| expected == &*found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_a_minute() {
        let period = OncePerMinute::default();
        assert!(period.is_due(5));
        assert!(!period.is_due(5 + OncePerMinute::PERIOD_NS - 1));
        assert!(period.is_due(5 + OncePerMinute::PERIOD_NS));
    }
}
