//! The prefix of a log line: its time and its process. `headway.server.stderr` writes the same
//! prefix; this one is for lines that are written without Python.

use std::ffi::OsString;
use std::fmt::{Display, Formatter, Result};
use std::io::IsTerminal;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// The device and inode of systemd's journal socket (`JOURNAL_STREAM`); the inner `None` without
/// one.
static JOURNAL: OnceLock<Option<OsString>> = OnceLock::new();

/// Reads `JOURNAL_STREAM`. Callers hold the GIL and call this before the first line is written:
/// without the GIL the application may be changing the environment, and `/proc/self/environ` is
/// unreadable after a change of user or without a free descriptor.
pub fn note_journal() {
    JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM"));
}

/// Formats the prefix. It is empty on a terminal, which shows lines at once, and in systemd's
/// journal, which records time and process itself.
pub struct Stamp;

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
