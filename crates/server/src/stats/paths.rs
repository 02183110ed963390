//! Requests by path: counts and distributions for the table at the end of a run, and for telemetry.
//!
//! The number of rows is bounded, whatever paths clients request: the first paths get rows of their
//! own, the other paths share one row, and paths that the application answers with 404 share
//! another. Each worker thread has one table, under a lock that only a reader of all threads
//! contends for. With telemetry a table is taken every interval, and a path without a row of its
//! own is counted by its endpoint.

use crate::stats::RequestRecord;
use crate::stats::endpoints::endpoint_of;
use crate::stats::routes::Route;
use headway_measure::AtomicHistogram as Histogram;
use rustc_hash::FxHashMap;

pub const MAX_PATHS: usize = 64;
/// Longer paths are truncated in the table.
const MAX_PATH_BYTES: usize = 200;
const OTHER: &[u8] = b"(other)";
const NOT_FOUND: &[u8] = b"(404)";

#[derive(Default)]
pub struct PathTable {
    entries: Vec<PathEntry>,
    /// The index of the row of each name. Bounded, so that clients cannot slow down a fast hash by
    /// collisions.
    indices: FxHashMap<Box<[u8]>, usize>,
}

/// A row, its name and the kind of its name.
pub struct PathEntry {
    pub name: Box<[u8]>,
    pub kind: RowKind,
    pub route: Route,
    pub row: PathRow,
    /// The index of the next row of the same path with another route, such as the route of another
    /// method.
    next: Option<usize>,
}

/// The meaning of a row's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    Path,
    /// An endpoint, which stands for paths without a row of their own.
    Endpoint,
    NotFound,
    Other,
}

/// The counters of one row, initially zero. `gil_wait` has an entry for each request whose wait is
/// known.
#[derive(Default)]
pub struct PathRow {
    pub requests: u64,
    /// Requests that were answered with status 500 or more, or that failed after their status was
    /// sent.
    pub errors: u64,
    pub response: Histogram,
    pub gil_wait: Histogram,
    pub gil_wait_count: u64,
    pub gil_held_ns: u64,
    pub application_ns: u64,
    pub cpu_ns: u64,
}

/// One table for each interpreter slot that has had requests.
#[derive(Default)]
pub struct PathTables(Vec<PathTable>);

impl PathTables {
    pub fn of_interpreter(&mut self, slot: usize) -> &mut PathTable {
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, PathTable::default);
        }
        &mut self.0[slot]
    }

    pub fn merge(&mut self, other: &Self) {
        for (slot, table) in other.0.iter().enumerate() {
            self.of_interpreter(slot).merge(table);
        }
    }

    /// All entries with their interpreter slots, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &PathEntry)> {
        let slots = self.0.iter().enumerate();
        slots.flat_map(|(slot, table)| table.entries.iter().map(move |entry| (slot, entry)))
    }

    /// All rows with their interpreter slots; within each slot the most requested row comes first.
    pub fn rows(&self) -> Vec<(&[u8], &PathRow, usize)> {
        let slots = self.0.iter().enumerate();
        slots
            .flat_map(|(slot, table)| table.rows().into_iter().map(move |row| (row.0, row.1, slot)))
            .collect()
    }
}

impl PathTable {
    /// Counts a request. With `by_endpoint`, paths beyond the bound are counted by endpoint instead
    /// of in one shared row.
    pub fn record(&mut self, target: &[u8], record: &RequestRecord, by_endpoint: bool) {
        if record.status == 404 {
            return self.row(NOT_FOUND, RowKind::NotFound, Route::NONE).record(record);
        }
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let path = &target[..end.min(MAX_PATH_BYTES)];
        let index = match self.find(path, record.route) {
            Some(index) => index,
            None if self.entries.len() < MAX_PATHS => self.add(path, RowKind::Path, record.route),
            None if by_endpoint => self.index_of_endpoint(target, record.route),
            None => self.index_of_others(),
        };
        self.entries[index].row.record(record);
    }

    /// Adds the counters of `other`. Its endpoints are added to the row of other paths.
    pub fn merge(&mut self, other: &Self) {
        for PathEntry { name, kind, row, .. } in &other.entries {
            let index = match (kind, self.find(name, Route::NONE)) {
                (RowKind::Endpoint | RowKind::Other, _) => self.index_of_others(),
                (RowKind::Path | RowKind::NotFound, Some(index)) => index,
                (RowKind::NotFound, None) => self.add(name, RowKind::NotFound, Route::NONE),
                (RowKind::Path, None) if self.entries.len() < MAX_PATHS => {
                    self.add(name, RowKind::Path, Route::NONE)
                }
                (RowKind::Path, None) => self.index_of_others(),
            };
            self.entries[index].row.merge(row);
        }
    }

    /// All rows, the most requested first.
    pub fn rows(&self) -> Vec<(&[u8], &PathRow)> {
        let mut rows: Vec<_> =
            self.entries.iter().map(|entry| (&entry.name[..], &entry.row)).collect();
        rows.sort_by(|a, b| b.1.requests.cmp(&a.1.requests).then(a.0.cmp(b.0)));
        rows
    }

    fn row(&mut self, name: &[u8], kind: RowKind, route: Route) -> &mut PathRow {
        let index = self.find(name, route).unwrap_or_else(|| self.add(name, kind, route));
        &mut self.entries[index].row
    }

    #[inline]
    fn find(&self, name: &[u8], route: Route) -> Option<usize> {
        let mut index = *self.indices.get(name)?;
        while self.entries[index].route != route {
            index = self.entries[index].next?;
        }
        Some(index)
    }

    #[cold]
    fn add(&mut self, name: &[u8], kind: RowKind, route: Route) -> usize {
        let index = self.entries.len();
        let next = self.indices.insert(name.into(), index);
        self.entries.push(PathEntry {
            name: name.into(),
            kind,
            route,
            row: PathRow::default(),
            next,
        });
        index
    }

    fn index_of_endpoint(&mut self, target: &[u8], route: Route) -> usize {
        // A route already names the endpoint, so the row needs no name. No path has the empty name.
        let name = match route {
            Route::NONE => endpoint_of(target),
            _ => String::new(),
        };
        match self.find(name.as_bytes(), route) {
            Some(index) => index,
            None if self.entries.len() < 2 * MAX_PATHS => {
                self.add(name.as_bytes(), RowKind::Endpoint, route)
            }
            None => self.index_of_others(),
        }
    }

    fn index_of_others(&mut self) -> usize {
        let found = self.find(OTHER, Route::NONE);
        found.unwrap_or_else(|| self.add(OTHER, RowKind::Other, Route::NONE))
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
        self.gil_held_ns += record.gil_held_ns.unwrap_or(0);
        self.application_ns += record.application_ns;
        self.cpu_ns += record.cpu_ns;
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.response.merge(&other.response);
        self.gil_wait.merge(&other.gil_wait);
        self.gil_wait_count += other.gil_wait_count;
        self.gil_held_ns += other.gil_held_ns;
        self.application_ns += other.application_ns;
        self.cpu_ns += other.cpu_ns;
    }
}

/// The smallest recorded duration that at least `share` of all durations do not exceed,
/// interpolated within its bucket; `None` if nothing was recorded.
pub fn percentile_ns(recorded: &Histogram, share: f64) -> Option<u64> {
    recorded.read().percentile_ns(share)
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
            table.record(format!("/{number}?x").as_bytes(), &answered(200), false);
            table.record(format!("/missing/{number}").as_bytes(), &answered(404), false);
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
        one.record(b"/a?q=1", &answered(200), false);
        two.record(b"/a", &answered(500), false);
        one.merge(&two);
        let rows = one.rows();
        assert_eq!((rows[0].0, rows[0].1.requests, rows[0].1.errors), (&b"/a"[..], 2, 1));
        assert_eq!(percentile_ns(&rows[0].1.response, 0.99), Some(1_000_000));
        assert_eq!(percentile_ns(&rows[0].1.gil_wait, 0.99), None);
    }

    #[test]
    fn paths_beyond_the_bound_are_counted_by_endpoint_until_tables_are_merged() {
        let mut table = PathTable::default();
        let routed = RequestRecord { route: Route(3), ..answered(200) };
        for number in 0..1_000 {
            table.record(format!("/item/{number}").as_bytes(), &answered(200), true);
            table.record(format!("/order/{number}").as_bytes(), &routed, true);
        }
        for number in 0..300 {
            table.record(format!("/{}", "x".repeat(number % 30)).as_bytes(), &answered(200), true);
        }
        assert!(table.entries.len() <= 2 * MAX_PATHS + 1);
        let is_endpoint =
            |entry: &&PathEntry| entry.kind == RowKind::Endpoint && entry.route == Route::NONE;
        let named =
            table.entries.iter().filter(is_endpoint).find(|entry| &*entry.name == b"/item/*");
        assert!(named.unwrap().row.requests > 900);
        let by_route: u64 =
            table.entries.iter().filter(|it| it.route == Route(3)).map(|it| it.row.requests).sum();
        assert_eq!(by_route, 1_000);
        let mut all = PathTable::default();
        all.merge(&table);
        all.merge(&table);
        assert!(all.entries.len() <= MAX_PATHS + 1);
        assert_eq!(all.rows().iter().map(|row| row.1.requests).sum::<u64>(), 2 * 2_300);
        assert!(all.rows().iter().all(|row| row.0 != b"/item/*"));
    }

    #[test]
    fn one_path_may_have_several_routes() {
        let mut table = PathTable::default();
        for route in [Route(1), Route(2), Route::NONE, Route(2)] {
            table.record(b"/a", &RequestRecord { route, ..answered(200) }, true);
        }
        let counts: Vec<_> = table.entries.iter().map(|it| (it.route.0, it.row.requests)).collect();
        assert_eq!(counts, [(1, 1), (2, 2), (0, 1)]);
    }
}
