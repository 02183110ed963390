//! When a line of the log was said, and by which process: as `headway.server.stderr` has it, for lines
//! that cannot wait for Python.

use std::ffi::OsString;
use std::fmt::{Display, Formatter, Result};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Where the journal of systemd listens, by the environment; `None` within for nowhere.
static JOURNAL: OnceLock<Option<OsString>> = OnceLock::new();

/// Looks whether there is a journal. Called with the GIL held, before anything is said: without it the
/// application may be changing the environment just now. And `/proc/self/environ` is not to be read by
/// who has changed its user, or has no descriptor left.
pub fn note_journal() {
    JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM"));
}

/// Nothing on a terminal, which is read at once, nor in the journal of systemd, which keeps both itself.
pub struct Stamp;

impl Display for Stamp {
    fn fmt(&self, out: &mut Formatter) -> Result {
        if is_read_at_once() {
            return Ok(());
        }
        let (mut now, mut local) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both calls fill what they are given; neither fails for the present.
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

fn is_read_at_once() -> bool {
    let mut stderr = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` fills what it is given where it returns 0.
    let stderr = unsafe {
        if libc::isatty(2) == 1 || libc::fstat(2, stderr.as_mut_ptr()) != 0 {
            return true;
        }
        stderr.assume_init()
    };
    let found = format!("{}:{}", stderr.st_dev, stderr.st_ino);
    JOURNAL.get().is_some_and(|journal| journal.as_deref().is_some_and(|it| it == &*found))
}
