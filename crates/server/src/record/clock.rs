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
    fn the_example_of_rfc_9110_comes_out() {
        let mut cache = DateCache::default();
        cache.refresh(784_111_777);
        assert_eq!(cache.http, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(cache.log, "06/Nov/1994:08:49:37 +0000");
    }
}
