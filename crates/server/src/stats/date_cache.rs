//! Dates in the formats of HTTP and the access log.

use headway_measure::clock::wall_coarse_ns;

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
        self.refresh(wall_coarse_ns() / 1_000_000_000);
        &self.http
    }

    /// A date in the common log format: `06/Nov/1994:08:49:37 +0000`.
    pub fn log(&mut self) -> &str {
        self.refresh(wall_coarse_ns() / 1_000_000_000);
        &self.log
    }

    fn refresh(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        self.second = second;
        let time = second as _;
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
    fn the_example_of_rfc_9110_is_reproduced() {
        let mut cache = DateCache::default();
        cache.refresh(784_111_777);
        assert_eq!(cache.http, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(cache.log, "06/Nov/1994:08:49:37 +0000");
    }
}
