//! Clocks, and dates as HTTP and the access log write them.

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME_COARSE, CLOCK_THREAD_CPUTIME_ID, clockid_t, timespec};

fn read_ns(clock: clockid_t) -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The clock of all phases, and of the GIL meter.
pub fn now_ns() -> u64 {
    read_ns(CLOCK_MONOTONIC)
}

/// CPU time of the calling thread. A system call, unlike the others.
pub fn thread_cpu_ns() -> u64 {
    read_ns(CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds since 1970, to a few milliseconds.
pub fn wall_ns() -> u64 {
    read_ns(CLOCK_REALTIME_COARSE)
}

/// CPU time of one thread, charged to the requests that it runs.
///
/// Reading that clock is a system call, dear beside a request of microseconds. So a short request
/// is charged the time that passed, and every so often, and after each long one, the clock is read
/// and the difference settled. All charges add up to what the thread used, polling included.
#[derive(Debug)]
pub struct CpuCharges {
    read_ns: u64,
    /// Charged since then, beyond what an earlier reading had to give back.
    charged_ns: u64,
    unread: u32,
}

impl CpuCharges {
    /// A request that took this long may have waited for something.
    const LONG_NS: u64 = 200_000;
    const MAX_UNREAD: u32 = 16;

    /// For the calling thread, from now on.
    pub fn of_this_thread() -> Self {
        Self { read_ns: thread_cpu_ns(), charged_ns: 0, unread: 0 }
    }

    /// The CPU time of a request of this thread that has just ended after `elapsed_ns`.
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

/// The current second in writing; formatted again only when the second changes.
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

    /// The common log format's: `06/Nov/1994:08:49:37 +0000`.
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
        assert_eq!(sum_ns, 1_500, "polling in between is charged too");
        // Ten times as much time passed as was used: the thread was kept from running.
        sum_ns += charges.charge(1_000);
        sum_ns += charges.settle(2_600);
        sum_ns += charges.settle(4_000);
        assert_eq!(sum_ns, 3_000);
    }

    #[test]
    fn the_example_of_rfc_9110_comes_out() {
        let mut cache = DateCache::default();
        cache.refresh(784_111_777);
        assert_eq!(cache.http, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(cache.log, "06/Nov/1994:08:49:37 +0000");
    }
}
