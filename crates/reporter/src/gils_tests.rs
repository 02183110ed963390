use super::*;

fn histogram(durations_ns: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    durations_ns.iter().for_each(|ns| histogram.record(*ns));
    histogram
}

fn gil(id: u32, opened_ns: u64, takes: u64, waits_ns: &[u64]) -> GilTotals {
    let row = GilRow { id, takes, wall_ns: takes * 10, interpreter: Some(0), ..GilRow::default() };
    GilTotals { row, opened_ns, wait: histogram(waits_ns), ..GilTotals::default() }
}

fn thread(row: u32, native_id: u32, gil: u32, held_ns: u64) -> ThreadTotals {
    let takes = held_ns / 10;
    ThreadTotals { row, native_id, gil: Some(gil), held_ns, takes, ..ThreadTotals::default() }
}

fn held_by_name(reported: &Totals, latest: &Totals) -> Vec<(u32, u64)> {
    let mut rows: Vec<_> = thread_rows(reported, latest)
        .iter()
        .map(|row| (row.since.native_id, row.since.held_ns))
        .collect();
    rows.sort_unstable();
    rows
}

#[test]
fn an_interval_is_what_was_added() {
    let reported = Totals { gils: vec![gil(0, 5, 10, &[1_000, 90_000_000])], ..Totals::default() };
    let waits_ns = [1_000, 90_000_000, 5_100_000, 5_200_000, 10_000_000];
    let latest = Totals { gils: vec![gil(0, 5, 14, &waits_ns)], ..Totals::default() };
    let rows = gil_rows(&reported, &latest);
    assert_eq!((rows.len(), rows[0].since.takes, &*rows[0].name), (1, 4, "main"));
    let wait = &rows[0].wait;
    assert_eq!((wait.count(), wait.sum_ns), (3, 20_300_000));
    assert!(wait.min_ns <= 5_100_000 && wait.min_ns > 4_700_000, "{wait:?}");
    assert!(wait.max_ns >= 10_000_000 && wait.max_ns < 10_700_000, "{wait:?}");
    assert!(gil_rows(&latest, &latest).is_empty());
}

#[test]
fn a_gil_that_ended_is_told_once() {
    let reported = Totals {
        gils: vec![gil(0, 5, 1, &[]), gil(1, 7, 100, &[2_000, 2_000])],
        threads: vec![thread(0, 11, 1, 1_000)],
        ..Totals::default()
    };
    let mut sum = gil(63, 0, 130, &[2_000, 2_000, 2_000]);
    (sum.row.folded, sum.row.interpreter) = (1, None);
    // Another GIL already uses its row.
    let latest = Totals {
        gils: vec![gil(0, 5, 1, &[]), gil(1, 9, 4, &[]), sum],
        threads: vec![thread(0, 12, 1, 40), thread(1, 0, 63, 1_300)],
        ..Totals::default()
    };
    let mut takes: Vec<_> = gil_rows(&reported, &latest)
        .iter()
        .map(|row| (row.name.clone(), row.since.takes))
        .collect();
    takes.sort();
    assert_eq!(takes, [("(ended)".into(), 30), ("main".into(), 4)]);
    let ended = gil_rows(&reported, &latest).into_iter().find(|row| row.name == ENDED).unwrap();
    assert_eq!((ended.wait.count(), ended.wait.sum_ns), (1, 2_000));
    assert_eq!(held_by_name(&reported, &latest), [(0, 300), (12, 40)]);
}

#[test]
fn threads_that_ended_and_were_folded_are_told_once() {
    let reported = Totals {
        gils: vec![gil(0, 5, 1, &[])],
        threads: vec![thread(0, 11, 0, 500), thread(1, 12, 0, 700), thread(2, 0, 0, 100)],
        ..Totals::default()
    };
    let latest = Totals {
        gils: vec![gil(0, 5, 1, &[])],
        // Thread 12 held for 50 ns more, ended, and was aggregated; another thread has its row.
        threads: vec![thread(0, 11, 0, 520), thread(1, 13, 0, 30), thread(2, 0, 0, 850)],
        ..Totals::default()
    };
    assert_eq!(held_by_name(&reported, &latest), [(0, 50), (11, 20), (13, 30)]);
}

#[test]
fn a_thread_with_a_new_gil_in_the_place_and_the_book_of_one_that_ended_begins_at_nothing() {
    let reported = Totals {
        gils: vec![gil(1, 7, 100, &[])],
        threads: vec![thread(0, 11, 1, 1_000)],
        ..Totals::default()
    };
    let mut sum = gil(63, 0, 130, &[]);
    (sum.row.folded, sum.row.interpreter) = (1, None);
    // The interpreter was replaced, and the thread runs the new one's requests: it held the old GIL
    // for 300 ns more.
    let latest = Totals {
        gils: vec![gil(1, 9, 4, &[]), sum],
        threads: vec![thread(0, 11, 1, 40), thread(1, 0, 63, 1_300)],
        ..Totals::default()
    };
    assert_eq!(held_by_name(&reported, &latest), [(0, 300), (11, 40)]);
}

#[test]
fn waits_of_a_free_threaded_build_are_those_since_the_last_report() {
    let counted = |ns: &[u64]| Totals { parked: Some(histogram(ns)), ..Totals::default() };
    let (first, second) = (counted(&[1_000, 2_000_000]), counted(&[1_000, 2_000_000, 70_000]));
    let sums_ns = |before: &Totals, after: &Totals| {
        parked_since(before, after).map(|since| (since.count(), since.sum_ns))
    };
    assert_eq!(sums_ns(&Totals::default(), &first), Some((2, 2_001_000)));
    assert_eq!(sums_ns(&first, &second), Some((1, 70_000)));
    assert_eq!(sums_ns(&second, &second), Some((0, 0)));
    assert_eq!(sums_ns(&first, &Totals::default()), None);
}
