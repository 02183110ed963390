//! The description of one in-flight request for slow request reports: the request line, the client,
//! and the GIL and CPU times of its thread when the request began.
//!
//! If slow requests are reported (`slow_requests`), each worker thread keeps one of these and
//! reuses its memory for every request.

use headway_gil::ThreadTimes;
use headway_measure::clock::wall_coarse_ns;
use std::mem::zeroed;

/// Longer names are truncated, as mod_wsgi truncates them.
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 1_023;

/// The parts of the request line and the header fields that a report contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub method: Text,
    /// `http` or `https`. A trusted proxy's header fields override the connection's own scheme.
    pub scheme: &'static str,
    pub host: Text,
    /// The path at which the application is mounted.
    pub script_name: Text,
    /// The rest of the path, without the query.
    pub path_info: Text,
    pub protocol: &'static str,
    /// The address of the client. Behind trusted proxies, the address that they report.
    pub address: Text,
    /// Empty unless `ProcessLimits::user_agents` is set.
    pub user_agent: Text,
}

/// Bytes that a client sent, truncated to a maximum length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<u8>);

impl Text {
    pub fn set(&mut self, bytes: &[u8]) {
        self.set_up_to(MAX_NAME_BYTES, bytes);
    }

    pub fn set_path(&mut self, bytes: &[u8]) {
        self.set_up_to(MAX_PATH_BYTES, bytes);
    }

    fn set_up_to(&mut self, max_bytes: usize, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(&bytes[..bytes.len().min(max_bytes)]);
    }

    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// One in-flight request, and the state of its thread when the request began.
#[derive(Clone, Debug, Default)]
pub struct InFlightRequest {
    pub description: Description,
    /// The Unix time, in seconds, at which the request began.
    pub began_s: f64,
    pub queue_ns: u64,
    /// When a worker thread took the request from the queue.
    pub started_ns: u64,
    /// The number of in-flight requests when this one began, itself included.
    pub active_at_start: u64,
    pub gil: ThreadTimes,
    pub cpu: CpuTimes,
    /// The latest Python stack of the request, or why it could not be taken. `None`: no stack was
    /// requested.
    pub stack: Option<Result<String, &'static str>>,
}

impl InFlightRequest {
    pub fn begin(&mut self, active: u64) {
        self.began_s = wall_coarse_ns() as f64 / 1e9;
        self.active_at_start = active;
        self.gil = headway_gil::times_of_this_thread().unwrap_or_default();
        self.cpu = CpuTimes::of_this_thread();
        self.stack = None;
    }
}

/// The CPU time that a thread has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user_ns: u64,
    pub system_ns: u64,
}

impl CpuTimes {
    pub fn of_this_thread() -> Self {
        // SAFETY: all zero bytes are a valid `rusage`, and the call writes only to it.
        let used = unsafe {
            let mut used: libc::rusage = zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut used);
            used
        };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self { user_ns: ns(used.ru_utime), system_ns: ns(used.ru_stime) }
    }

    /// Reads the CPU time of another thread of this process. The resolution is the kernel's tick
    /// (10 ms).
    pub fn of_thread(native_id: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{native_id}/stat")).ok()?;
        // The thread name stands in parentheses and may contain any character. User time and system
        // time are the 14th and 15th fields.
        let mut after_name = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let per_second = rustix::param::clock_ticks_per_second();
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
    use headway_measure::clock;

    #[test]
    fn own_and_foreign_readings_of_cpu_time_agree() {
        let before = CpuTimes::of_this_thread();
        let end_ns = clock::thread_cpu_ns() + 60_000_000;
        while clock::thread_cpu_ns() < end_ns {}
        let own = CpuTimes::of_this_thread();
        let native_id = rustix::thread::gettid().as_raw_nonzero().get();
        let foreign = CpuTimes::of_thread(native_id).unwrap();
        let tick_ns = 10_000_000;
        assert!(own.user_ns.abs_diff(foreign.user_ns) <= 2 * tick_ns, "{own:?} {foreign:?}");
        assert!(own.since(before).user_ns + own.since(before).system_ns > tick_ns);
        assert_eq!(CpuTimes::of_thread(0), None);
    }

    #[test]
    fn long_text_is_truncated() {
        let mut text = Text::default();
        text.set_path(&[b'x'; 5_000]);
        text.set(&[b'y'; 5_000]);
        assert_eq!(text.to_text(), "y".repeat(MAX_NAME_BYTES));
    }
}
