//! Requests by path: counts and distributions for the table at the end of a run.
//!
//! The number of rows is bounded, whatever paths clients think of: the first ones get rows, the
//! rest share one, and paths that the application does not know share another. One table per
//! worker thread, behind a lock that only a reader of the whole ever contends for.

use super::RequestRecord;
use headway_gil::histogram::{self, Histogram};
use rustc_hash::FxHashMap;

pub const MAX_PATHS: usize = 64;
/// Longer paths are cut in the table.
const MAX_PATH_BYTES: usize = 200;
const OTHER: &[u8] = b"(other)";
const NOT_FOUND: &[u8] = b"(404)";

#[derive(Default)]
pub struct PathTable {
    rows: Vec<(Box<[u8]>, PathRow)>,
    /// Where a path's row is. Bounded, so that clients cannot make a quick hash slow.
    places: FxHashMap<Box<[u8]>, usize>,
}

/// All zero at first. `gil_wait` has an entry for each request of which the wait is known.
#[derive(Default)]
pub struct PathRow {
    pub requests: u64,
    /// Of those, how many were answered with 500 or more or failed after their status was sent.
    pub errors: u64,
    pub response: Histogram,
    pub gil_wait: Histogram,
    pub gil_wait_count: u64,
    pub application_ns: u64,
    pub cpu_ns: u64,
}

/// A table for each of the application's places, as far as there were requests.
#[derive(Default)]
pub struct PathTables(Vec<PathTable>);

impl PathTables {
    pub fn of_place(&mut self, place: usize) -> &mut PathTable {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, PathTable::default);
        }
        &mut self.0[place]
    }

    pub fn merge(&mut self, other: &Self) {
        for (place, table) in other.0.iter().enumerate() {
            self.of_place(place).merge(table);
        }
    }

    /// All rows with their places, the most requested first in each.
    pub fn rows(&self) -> Vec<(&[u8], &PathRow, usize)> {
        let places = self.0.iter().enumerate();
        places
            .flat_map(|(place, table)| {
                table.rows().into_iter().map(move |row| (row.0, row.1, place))
            })
            .collect()
    }
}

impl PathTable {
    pub fn record(&mut self, target: &[u8], record: &RequestRecord) {
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let path = match record.status {
            404 => NOT_FOUND,
            _ => &target[..end.min(MAX_PATH_BYTES)],
        };
        self.row(path).record(record);
    }

    pub fn merge(&mut self, other: &Self) {
        for (path, row) in &other.rows {
            self.row(path).merge(row);
        }
    }

    /// All rows, the most requested first.
    pub fn rows(&self) -> Vec<(&[u8], &PathRow)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(path, row)| (&path[..], row)).collect();
        rows.sort_by(|a, b| b.1.requests.cmp(&a.1.requests).then(a.0.cmp(b.0)));
        rows
    }

    fn row(&mut self, path: &[u8]) -> &mut PathRow {
        let place = match self.places.get(path) {
            Some(place) => *place,
            None if self.rows.len() < MAX_PATHS => self.add(path),
            None => match self.places.get(OTHER) {
                Some(place) => *place,
                None => self.add(OTHER),
            },
        };
        &mut self.rows[place].1
    }

    fn add(&mut self, path: &[u8]) -> usize {
        let place = self.rows.len();
        self.rows.push((path.into(), PathRow::default()));
        self.places.insert(path.into(), place);
        place
    }
}

impl PathRow {
    fn record(&mut self, record: &RequestRecord) {
        self.requests += 1;
        self.errors += u64::from(record.failed || record.status >= 500);
        self.response.record(record.response_ns);
        if let Some(ns) = record.gil_wait_ns {
            self.gil_wait.record(ns);
            self.gil_wait_count += 1;
        }
        self.application_ns += record.application_ns;
        self.cpu_ns += record.cpu_ns;
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.response.merge(&other.response);
        self.gil_wait.merge(&other.gil_wait);
        self.gil_wait_count += other.gil_wait_count;
        self.application_ns += other.application_ns;
        self.cpu_ns += other.cpu_ns;
    }
}

/// The smallest recorded duration that at least `share` of all are not above, to the width of a
/// bucket; `None` while nothing was recorded.
pub fn percentile_ns(recorded: &Histogram, share: f64) -> Option<u64> {
    let distribution = recorded.read();
    let max_ns = distribution.max_ns?;
    let rank = (distribution.count as f64 * share).ceil().max(1.0) as u64;
    let upper_bound_of_first_bucket_ns = histogram::upper_bound_ns(0);
    let mut below = 0;
    for (upper_bound_ns, count) in distribution.buckets {
        below += count;
        if below >= rank && upper_bound_ns <= upper_bound_of_first_bucket_ns {
            // All that is shorter than the histogram resolves, zero included.
            return distribution.min_ns;
        }
        if below >= rank {
            return Some(upper_bound_ns.min(max_ns));
        }
    }
    Some(max_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16) -> RequestRecord {
        RequestRecord { status, response_ns: 1_000_000, ..Default::default() }
    }

    #[test]
    fn rows_are_bounded() {
        let mut table = PathTable::default();
        for number in 0..10_000 {
            table.record(format!("/{number}?x").as_bytes(), &answered(200));
            table.record(format!("/missing/{number}").as_bytes(), &answered(404));
        }
        let rows = table.rows();
        assert!(rows.len() <= MAX_PATHS + 1);
        assert_eq!(rows.iter().map(|row| row.1.requests).sum::<u64>(), 20_000);
        assert_eq!(rows[0].0, NOT_FOUND);
        assert_eq!(rows[1].0, OTHER);
    }

    #[test]
    fn tables_of_threads_add_up() {
        let mut one = PathTable::default();
        let mut two = PathTable::default();
        one.record(b"/a?q=1", &answered(200));
        two.record(b"/a", &answered(500));
        one.merge(&two);
        let rows = one.rows();
        assert_eq!((rows[0].0, rows[0].1.requests, rows[0].1.errors), (&b"/a"[..], 2, 1));
        assert_eq!(percentile_ns(&rows[0].1.response, 0.99), Some(1_000_000));
        assert_eq!(percentile_ns(&rows[0].1.gil_wait, 0.99), None);
    }
}
