//! Whether the program has forbidden itself system calls (seccomp) since the meter was installed.
//!
//! Such a filter is made for the calls of the program, and may end the process for one of
//! Headway's. So Headway starts no thread by itself afterwards. A filter that was there before, as
//! in a container, applied to the start of Headway, too.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The filters at the installation. Writer: `note`, with the main GIL. Readers: any thread.
static BEFORE: AtomicU32 = AtomicU32::new(0);

/// To be called before the meter is installed.
pub fn note() {
    BEFORE.store(count(), Relaxed);
}

pub fn were_added() -> bool {
    count() > BEFORE.load(Relaxed)
}

/// The filters of the calling thread; before Linux 5.9, whether it has any. 0 without /proc.
fn count() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse().ok())
    };
    field("Seccomp_filters:").or_else(|| field("Seccomp:")).unwrap_or(0)
}
