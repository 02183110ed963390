//! The resources of the process: CPU time, memory and cores, and the limits of its cgroups.

use super::cgroup::{Cgroups, Throttling};
use super::source::{Source, Tick};
use headway_telemetry::id;
use headway_threads::lock::Lock;
use rustix::thread::sched_getaffinity;

pub struct Resources {
    cgroups: Cgroups,
    readings: Lock<Readings>,
}

#[derive(Default)]
struct Readings {
    reported: Used,
    latest: Used,
}

/// Sums since the process started; throttling since its cgroup was made.
#[derive(Clone, Copy, Default)]
struct Used {
    user_s: f64,
    system_s: f64,
    throttling: Option<Throttling>,
}

impl Resources {
    /// Reports only the usage from now on.
    pub fn from_now() -> Self {
        let cgroups = Cgroups::of_this_process();
        let reported = Used::now(cgroups.limits().throttling).0;
        Self { cgroups, readings: Lock::new(Readings { reported, latest: reported }) }
    }
}

impl Source for Resources {
    fn collect(&self, tick: &mut Tick) {
        let limits = self.cgroups.limits();
        let (used, max_rss_bytes) = Used::now(limits.throttling);
        let mut readings = self.readings.lock();
        readings.latest = used;
        let reported = readings.reported;
        drop(readings);
        let out = &mut *tick.fields;
        let share = |now_s: f64, then_s: f64| (now_s - then_s).max(0.0) / tick.period_s.max(1e-9);
        let user = share(used.user_s, reported.user_s);
        let system = share(used.system_s, reported.system_s);
        out.number(id::CPU_USER_UTILIZATION, user);
        out.number(id::CPU_SYSTEM_UTILIZATION, system);
        out.number(id::CPU_UTILIZATION, user + system);
        if let Some(bytes) = rss_bytes() {
            out.count(id::MEMORY_RSS, bytes);
        }
        out.count(id::MEMORY_MAX_RSS, max_rss_bytes);
        if let Some(cores) = cores() {
            out.number(id::CPU_CORES, f64::from(cores));
        }
        if let Some(cores) = limits.cpu_cores {
            out.number(id::CGROUP_CPU_LIMIT, cores);
        }
        if let Some(bytes) = limits.memory_bytes {
            out.count(id::CGROUP_MEMORY_LIMIT, bytes);
        }
        if let (Some(now), Some(then)) = (used.throttling, reported.throttling) {
            let since = now.since(then);
            out.seconds_of_ns(id::CGROUP_THROTTLED_TIME, since.throttled_ns);
            out.count(id::CGROUP_THROTTLED_PERIODS, since.throttled_periods);
            out.count(id::CGROUP_PERIODS, since.periods);
        }
    }

    fn sent(&self) {
        let mut readings = self.readings.lock();
        readings.reported = readings.latest;
    }
}

impl Used {
    /// The usage, and the largest resident set so far, in bytes.
    fn now(throttling: Option<Throttling>) -> (Self, u64) {
        // SAFETY: all zero bytes are a valid `rusage`, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let (user_s, system_s) = (seconds(usage.ru_utime), seconds(usage.ru_stime));
        (Self { user_s, system_s, throttling }, usage.ru_maxrss as u64 * 1024)
    }
}

/// The resident set size in bytes; `None` without /proc.
fn rss_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The number of cores that the process may run on.
fn cores() -> Option<u32> {
    Some(sched_getaffinity(Some(rustix::process::getpid())).ok()?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_cores() {
        assert!(rss_bytes().unwrap() > 100_000);
        assert!(cores().unwrap() >= 1);
        let (used, max_rss_bytes) = Used::now(None);
        assert!(used.user_s + used.system_s > 0.0 && max_rss_bytes > 100_000);
    }
}
