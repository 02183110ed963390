//! Requests by path: counts and distributions for the table at the end of a run, and for telemetry.
//!
//! The number of rows is bounded, whatever paths clients think of: the first ones get rows, the
//! rest share one, and paths that the application does not know share another. One table per
//! worker thread, behind a lock that only a reader of the whole ever contends for. For telemetry a
//! table is taken every interval, and what has no row of its own is told apart by its endpoint.

use crate::stats::RequestRecord;
use crate::stats::endpoints::endpoint_of;
use crate::stats::routes::Route;
use headway_measure::AtomicHistogram as Histogram;
use rustc_hash::FxHashMap;

pub const MAX_PATHS: usize = 64;
/// Longer paths are cut in the table.
const MAX_PATH_BYTES: usize = 200;
const OTHER: &[u8] = b"(other)";
const NOT_FOUND: &[u8] = b"(404)";

#[derive(Default)]
pub struct PathTable {
    entries: Vec<Entry>,
    /// Where a path's row is. Bounded, so that clients cannot make a quick hash slow.
    places: FxHashMap<Box<[u8]>, usize>,
}

/// A row, and what it is of.
pub struct Entry {
    pub name: Box<[u8]>,
    pub of: Of,
    pub route: Route,
    pub row: PathRow,
    /// Where the next one is of the same path, by another route: by another method, say.
    next: Option<usize>,
}

/// What the name of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Path,
    /// An endpoint, of paths that have no row of their own.
    Endpoint,
    NotFound,
    Other,
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
    pub gil_held_ns: u64,
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

    /// All of them, with their places, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let places = self.0.iter().enumerate();
        places.flat_map(|(place, table)| table.entries.iter().map(move |entry| (place, entry)))
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
    /// `by_endpoint`: paths beyond the bound are told apart by what is asked for.
    pub fn record(&mut self, target: &[u8], record: &RequestRecord, by_endpoint: bool) {
        if record.status == 404 {
            return self.row(NOT_FOUND, Of::NotFound, Route::NONE).record(record);
        }
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let path = &target[..end.min(MAX_PATH_BYTES)];
        let place = match self.find(path, record.route) {
            Some(place) => place,
            None if self.entries.len() < MAX_PATHS => self.add(path, Of::Path, record.route),
            None if by_endpoint => self.place_of_endpoint(target, record.route),
            None => self.place_of_others(),
        };
        self.entries[place].row.record(record);
    }

    /// Adds what is kept of requests for good.
    pub fn merge(&mut self, other: &Self) {
        for Entry { name, of, row, .. } in &other.entries {
            let place = match (of, self.find(name, Route::NONE)) {
                (Of::Endpoint | Of::Other, _) => self.place_of_others(),
                (Of::Path | Of::NotFound, Some(place)) => place,
                (Of::NotFound, None) => self.add(name, Of::NotFound, Route::NONE),
                (Of::Path, None) if self.entries.len() < MAX_PATHS => {
                    self.add(name, Of::Path, Route::NONE)
                }
                (Of::Path, None) => self.place_of_others(),
            };
            self.entries[place].row.merge(row);
        }
    }

    /// All rows, the most requested first.
    pub fn rows(&self) -> Vec<(&[u8], &PathRow)> {
        let mut rows: Vec<_> =
            self.entries.iter().map(|entry| (&entry.name[..], &entry.row)).collect();
        rows.sort_by(|a, b| b.1.requests.cmp(&a.1.requests).then(a.0.cmp(b.0)));
        rows
    }

    fn row(&mut self, name: &[u8], of: Of, route: Route) -> &mut PathRow {
        let place = self.find(name, route).unwrap_or_else(|| self.add(name, of, route));
        &mut self.entries[place].row
    }

    #[inline]
    fn find(&self, name: &[u8], route: Route) -> Option<usize> {
        let mut place = *self.places.get(name)?;
        while self.entries[place].route != route {
            place = self.entries[place].next?;
        }
        Some(place)
    }

    #[cold]
    fn add(&mut self, name: &[u8], of: Of, route: Route) -> usize {
        let place = self.entries.len();
        let next = self.places.insert(name.into(), place);
        self.entries.push(Entry { name: name.into(), of, route, row: PathRow::default(), next });
        place
    }

    fn place_of_endpoint(&mut self, target: &[u8], route: Route) -> usize {
        // A route is a name already. No path looks like this one.
        let name = match route {
            Route::NONE => endpoint_of(target),
            _ => String::new(),
        };
        match self.find(name.as_bytes(), route) {
            Some(place) => place,
            None if self.entries.len() < 2 * MAX_PATHS => {
                self.add(name.as_bytes(), Of::Endpoint, route)
            }
            None => self.place_of_others(),
        }
    }

    fn place_of_others(&mut self) -> usize {
        let found = self.find(OTHER, Route::NONE);
        found.unwrap_or_else(|| self.add(OTHER, Of::Other, Route::NONE))
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

/// The smallest recorded duration that at least `share` of all do not exceed, interpolated within its bucket; `None`
/// while nothing was recorded.
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
    fn paths_beyond_the_bound_are_told_apart_by_endpoint_and_summed_up_for_good() {
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
        let of = |entry: &&Entry| entry.of == Of::Endpoint && entry.route == Route::NONE;
        let named = table.entries.iter().filter(of).find(|entry| &*entry.name == b"/item/*");
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
