//! The resources of the process: CPU time, memory and cores, and the limits of its cgroups.

use super::cgroup::{Cgroups, Throttling};
use super::source::{Source, Tick};
use headway_telemetry::id;
use headway_threads::lock::Lock;
use rustix::thread::{CpuSet, sched_getaffinity};

pub struct Resources {
    cgroups: Cgroups,
    readings: Lock<Readings>,
}

#[derive(Default)]
struct Readings {
    reported: Used,
    latest: Used,
}

/// Sums since the process started; throttling since its cgroup was made, and the cores since the
/// machine was started.
#[derive(Clone, Copy, Default)]
struct Used {
    user_s: f64,
    system_s: f64,
    throttling: Option<Throttling>,
    cores_busy_ns: Option<u64>,
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
            out.number(id::CPU_CORES, f64::from(cores.count()));
        }
        if let (Some(now_ns), Some(then_ns)) = (used.cores_busy_ns, reported.cores_busy_ns) {
            // It falls where the process has got other cores.
            out.seconds_of_ns(id::CORES_BUSY, now_ns.saturating_sub(then_ns));
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
        let cores_busy_ns = cores_busy_ns();
        (Self { user_s, system_s, throttling, cores_busy_ns }, usage.ru_maxrss as u64 * 1024)
    }
}

/// The resident set size in bytes; `None` without /proc.
fn rss_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The cores that the process may run on.
fn cores() -> Option<CpuSet> {
    sched_getaffinity(Some(rustix::process::getpid())).ok()
}

/// The CPU time that all programs used on these cores; `None` where /proc/stat cannot be read, as in
/// some containers.
fn cores_busy_ns() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let cores = cores()?;
    let ticks = busy_ticks(&stat, |core| core < CpuSet::MAX_CPU && cores.is_set(core));
    Some(ticks? * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// The ticks in which the cores were not idle. `stat` has a line for each core, `cpuN` and eight
/// columns or more (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq and steal. Guests
/// are part of user. `None` without any of these cores.
fn busy_ticks(stat: &str, is_ours: impl Fn(usize) -> bool) -> Option<u64> {
    let mut busy = None;
    for line in stat.lines() {
        let mut columns = line.split_ascii_whitespace();
        let core = columns.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if core.is_none_or(|core| !is_ours(core)) {
            continue;
        }
        for (column, ticks) in columns.take(8).enumerate() {
            if column != 3 && column != 4 {
                *busy.get_or_insert(0) += ticks.parse::<u64>().ok()?;
            }
        }
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_cores() {
        assert!(rss_bytes().unwrap() > 100_000);
        assert!(cores().unwrap().count() >= 1);
        assert!(cores_busy_ns().is_none_or(|ns| ns > 0));
        let (used, max_rss_bytes) = Used::now(None);
        assert!(used.user_s + used.system_s > 0.0 && max_rss_bytes > 100_000);
    }

    #[test]
    fn the_columns_of_the_own_cores_are_added_up_without_idle_and_iowait() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\n\
            cpu0 1 2 4 1000 1000 8 16 32 64 64\n\
            cpu1 7 7 7 7 7 7 7 7 7 7\n\
            cpu2 100 0 0 5 5 0 0\n\
            intr 5 cpu\n";
        assert_eq!(busy_ticks(stat, |core| core == 0), Some(63));
        assert_eq!(busy_ticks(stat, |core| core != 1), Some(163));
        assert_eq!(busy_ticks(stat, |core| core == 9), None);
        assert_eq!(busy_ticks("cpu0 1 x", |_| true), None);
    }
}
