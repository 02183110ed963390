//! What is told of one request that runs for long, besides its times: who asked for what, and what its thread had
//! used before.
//!
//! Kept for each request where slow ones are told of (`slow_requests`), in memory that its thread uses again.

use crate::stats::clock::wall_ns;
use headway_gil::ThreadTimes;
use std::mem::zeroed;

/// Longer names are cut, as mod_wsgi cuts them.
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 1_023;

/// What the request line and the fields say of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub method: Text,
    /// http or https, by a trusted proxy's word if need be.
    pub scheme: &'static str,
    pub host: Text,
    /// The path that the application lives under.
    pub script_name: Text,
    /// The rest of it. Never the query.
    pub path_info: Text,
    pub protocol: &'static str,
    /// Of the client, behind trusted proxies.
    pub address: Text,
    /// Only if it is wanted.
    pub user_agent: Text,
}

/// Bytes that a client sent, up to some number of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<u8>);

impl Text {
    pub fn set(&mut self, bytes: &[u8]) {
        self.set_up_to(MAX_NAME_BYTES, bytes);
    }

    pub fn set_path(&mut self, bytes: &[u8]) {
        self.set_up_to(MAX_PATH_BYTES, bytes);
    }

    fn set_up_to(&mut self, most: usize, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(&bytes[..bytes.len().min(most)]);
    }

    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// One request under way, and its thread as it was when it began.
#[derive(Clone, Debug, Default)]
pub struct InFlightRequest {
    pub description: Description,
    /// Seconds since 1970.
    pub began_s: f64,
    pub queue_ns: u64,
    /// When a thread took it up.
    pub started_ns: u64,
    /// Requests under way when it began, itself included.
    pub active_at_start: u64,
    pub gil: ThreadTimes,
    pub cpu: CpuTimes,
    /// What of Python it ran when it was looked at. `None`: it was not.
    pub stack: Option<Result<String, &'static str>>,
}

impl InFlightRequest {
    pub fn begin(&mut self, active: u64) {
        self.began_s = wall_ns() as f64 / 1e9;
        self.active_at_start = active;
        self.gil = headway_gil::times_of_this_thread().unwrap_or_default();
        self.cpu = CpuTimes::of_this_thread();
        self.stack = None;
    }
}

/// CPU time of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user_ns: u64,
    pub system_ns: u64,
}

impl CpuTimes {
    pub fn of_this_thread() -> Self {
        // SAFETY: all zero bytes are a valid `rusage`, which the call only writes to.
        let used = unsafe {
            let mut used: libc::rusage = zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut used);
            used
        };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self { user_ns: ns(used.ru_utime), system_ns: ns(used.ru_stime) }
    }

    /// Of another thread of this process, to a tick of the kernel's (10 ms).
    pub fn of_thread(native_id: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{native_id}/stat")).ok()?;
        // The name, in parentheses, may hold anything; user and system time are the 14th and 15th.
        let mut after_name = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        // SAFETY: no preconditions.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        let mut next_ns =
            || Some(after_name.next()?.parse::<u64>().ok()? * (1_000_000_000 / per_second));
        Some(Self { user_ns: next_ns()?, system_ns: next_ns()? })
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_kernel_says_the_same_of_a_thread_from_inside_and_outside() {
        let before = CpuTimes::of_this_thread();
        let end = Instant::now() + Duration::from_millis(60);
        while Instant::now() < end {}
        let inside = CpuTimes::of_this_thread();
        // SAFETY: no preconditions.
        let outside = CpuTimes::of_thread(unsafe { libc::gettid() }).unwrap();
        let tick_ns = 10_000_000;
        assert!(inside.user_ns.abs_diff(outside.user_ns) <= 2 * tick_ns, "{inside:?} {outside:?}");
        assert!(inside.since(before).user_ns + inside.since(before).system_ns > tick_ns);
        assert_eq!(CpuTimes::of_thread(0), None);
    }

    #[test]
    fn what_is_long_is_cut() {
        let mut text = Text::default();
        text.set_path(&[b'x'; 5_000]);
        text.set(&[b'y'; 5_000]);
        assert_eq!(text.to_text(), "y".repeat(MAX_NAME_BYTES));
    }
}
