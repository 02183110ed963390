//! Clocks, and dates in the formats of HTTP and the access log.

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME_COARSE, CLOCK_THREAD_CPUTIME_ID, clockid_t, timespec};

fn read_ns(clock: clockid_t) -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is live and writable, and these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The monotonic clock, which all phases and the GIL meter use.
pub fn now_ns() -> u64 {
    read_ns(CLOCK_MONOTONIC)
}

/// The CPU time of the calling thread. Unlike the other clocks this needs a system call.
pub fn thread_cpu_ns() -> u64 {
    read_ns(CLOCK_THREAD_CPUTIME_ID)
}

/// The Unix time in nanoseconds, with a resolution of a few milliseconds.
pub fn wall_ns() -> u64 {
    read_ns(CLOCK_REALTIME_COARSE)
}

/// The CPU time of one thread, divided among the requests that it runs.
///
/// Reading the CPU clock needs a system call, which is expensive compared with a request of
/// microseconds. Therefore a short request is charged its elapsed time. After each long request,
/// and after a number of short ones, the clock is read and the difference is charged or credited.
/// All charges add up to the CPU time of the thread, polling included.
#[derive(Debug)]
pub struct CpuCharges {
    read_ns: u64,
    /// The charges since that reading, plus the excess of earlier charges that is not yet credited.
    charged_ns: u64,
    unread: u32,
}

impl CpuCharges {
    /// The elapsed time from which a request may have been waiting instead of computing.
    const LONG_NS: u64 = 200_000;
    const MAX_UNREAD: u32 = 16;

    /// Begins the account of the calling thread.
    pub fn of_this_thread() -> Self {
        Self { read_ns: thread_cpu_ns(), charged_ns: 0, unread: 0 }
    }

    /// Returns the CPU time charged to a request of this thread that has just ended after
    /// `elapsed_ns`.
    pub fn charge(&mut self, elapsed_ns: u64) -> u64 {
        self.unread += 1;
        if elapsed_ns < Self::LONG_NS && self.unread < Self::MAX_UNREAD {
            self.charged_ns += elapsed_ns;
            return elapsed_ns;
        }
        self.settle(thread_cpu_ns())
    }

    fn settle(&mut self, now_ns: u64) -> u64 {
        let used_ns = now_ns - std::mem::replace(&mut self.read_ns, now_ns);
        self.unread = 0;
        let charge_ns = used_ns.saturating_sub(self.charged_ns);
        self.charged_ns = self.charged_ns.saturating_sub(used_ns);
        charge_ns
    }
}

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The formatted current second; it is formatted again only when the second changes.
#[derive(Debug, Default)]
pub struct DateCache {
    second: u64,
    http: String,
    log: String,
}

impl DateCache {
    /// An IMF-fixdate (RFC 9110 section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn http(&mut self) -> &str {
        self.refresh(wall_ns() / 1_000_000_000);
        &self.http
    }

    /// A date in the common log format: `06/Nov/1994:08:49:37 +0000`.
    pub fn log(&mut self) -> &str {
        self.refresh(wall_ns() / 1_000_000_000);
        &self.log
    }

    fn refresh(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        self.second = second;
        let time = second as libc::time_t;
        // SAFETY: all zero bytes are a valid `tm`, and both pointers are valid for the call.
        let tm = unsafe {
            let mut tm: libc::tm = std::mem::zeroed();
            libc::gmtime_r(&time, &mut tm);
            tm
        };
        let (day, month) = (DAYS[tm.tm_wday as usize % 7], MONTHS[tm.tm_mon as usize % 12]);
        let (date, year) = (tm.tm_mday, tm.tm_year + 1900);
        let clock = format!("{:02}:{:02}:{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec);
        self.http = format!("{day}, {date:02} {month} {year} {clock} GMT");
        self.log = format!("{date:02}/{month}/{year}:{clock} +0000");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_to_the_cpu_time() {
        let mut charges = CpuCharges { read_ns: 1_000, charged_ns: 0, unread: 0 };
        let mut sum_ns = charges.charge(300) + charges.charge(500);
        assert_eq!(sum_ns, 800);
        sum_ns += charges.settle(2_500);
        assert_eq!(sum_ns, 1_500, "polling between requests is charged too");
        // Ten times as much time passed as CPU time was used: the thread was preempted.
        sum_ns += charges.charge(1_000);
        sum_ns += charges.settle(2_600);
        sum_ns += charges.settle(4_000);
        assert_eq!(sum_ns, 3_000);
    }

    #[test]
    fn the_example_of_rfc_9110_is_reproduced() {
        let mut cache = DateCache::default();
        cache.refresh(784_111_777);
        assert_eq!(cache.http, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(cache.log, "06/Nov/1994:08:49:37 +0000");
    }
}
