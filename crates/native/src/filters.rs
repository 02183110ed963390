//! Whether the program has forbidden itself system calls (seccomp) since the meter was installed.
//!
//! Such a filter is made for the calls of the program, and may end the process for one of
//! Headway's. So Headway starts no thread afterwards. A filter that was there before, as
//! in a container, applied to the start of Headway, too.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of filters at the installation, or UNKNOWN. Writer: `note`, with the main GIL.
/// Readers: any thread.
static BEFORE: AtomicU32 = AtomicU32::new(0);
const UNKNOWN: u32 = u32::MAX;

/// To be called before the meter is installed.
pub fn note() {
    BEFORE.store(count().unwrap_or(UNKNOWN), Relaxed);
}

/// Makes one call, prctl, where there was no filter at the installation.
pub fn were_added() -> bool {
    match BEFORE.load(Relaxed) {
        UNKNOWN => false,
        0 => has_any(),
        // A filter, or a new root, may hide what could be read then.
        before => count().is_none_or(|now| now > before),
    }
}

/// The filters of the calling thread; before Linux 5.9, whether it has any. `None` where that
/// cannot be read.
fn count() -> Option<u32> {
    if !has_any() {
        return Some(0);
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse().ok())
    };
    field("Seccomp_filters:").or_else(|| field("Seccomp:"))
}

/// Whether the calling thread has a filter. A filter that forbids the question is one.
fn has_any() -> bool {
    // SAFETY: PR_GET_SECCOMP takes no arguments; the kernel ignores the others.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) != 0 }
}
