//! The meter's counters: a row for each GIL, and for the threads that held and waited most; the
//! sums of the event loops (`loops`).
//!
//! Counters only grow, so an interval is the difference of two readings. Threads and GILs that
//! ended in between are part of aggregates. The growth of an aggregate, minus the reported values
//! of the rows that became part of it, is reported as `(ended)`.

use super::loops;
use super::rows::{Bounds, OTHER, Row};
use super::source::{Source, Tick};
use headway_gil::{GilRow, GilTotals, ThreadTotals, Totals, name_of_row};
use headway_measure::Histogram;
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;
use headway_threads::lock::Lock;
use std::collections::{HashMap, HashSet};
use std::sync::MutexGuard;

const GIL_BOUNDS: Bounds = Bounds { rows: 64, bytes: 12_000 };
const THREAD_BOUNDS: Bounds = Bounds { rows: 32, bytes: 8_000 };
const ENDED: &str = "(ended)";
const MAIN: &str = "main";

/// The meter's counters as a source. Writes nothing before the first install.
#[derive(Default)]
pub struct Gils {
    readings: Lock<Readings>,
}

#[derive(Default)]
struct Readings {
    reported: Totals,
    latest: Totals,
}

impl Gils {
    /// Reports only the growth from now on.
    pub fn from_now() -> Self {
        let gils = Self::default();
        gils.lock().reported.read();
        gils
    }

    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.readings.lock()
    }
}

impl Source for Gils {
    fn collect(&self, tick: &mut Tick) {
        let Readings { reported, latest } = &mut *self.lock();
        if !latest.read() {
            return;
        }
        let out = &mut *tick.fields;
        out.text(id::GIL_MODE, if latest.gil_enabled { "enabled" } else { "disabled" });
        out.text(id::POLICY, latest.policy);
        if latest.switch_interval_us != 0 {
            out.number(id::SWITCH_INTERVAL, latest.switch_interval_us as f64 / 1e6);
        }
        out.count(id::UNMEASURED_EVENTS, latest.unmeasured_events);
        if let Some(parked) = parked_since(reported, latest) {
            out.histogram(id::PARKED_TIME_HISTOGRAM, &parked);
        }
        if latest.unmeasured_loops != 0 {
            out.count(id::UNMEASURED_LOOPS, u64::from(latest.unmeasured_loops));
        }
        loops::write(out, reported.loops.as_ref(), latest.loops.as_ref());
        tick.rows(id::GILS, GIL_BOUNDS, gil_rows(reported, latest));
        let mut threads = thread_rows(reported, latest);
        threads.sort_by_key(|row| std::cmp::Reverse(row.weight_ns()));
        for row in threads.iter_mut().take(THREAD_BOUNDS.rows) {
            row.name = match row.since.native_id {
                0 => ENDED.into(),
                _ => name_of_row(&row.since),
            };
        }
        tick.rows(id::THREADS, THREAD_BOUNDS, threads);
    }

    fn sent(&self) {
        let Readings { reported, latest } = &mut *self.lock();
        std::mem::swap(reported, latest);
    }
}

/// The waits for locks and events; `None` if they are not counted. An empty histogram is reported
/// too: it shows that nothing waited.
fn parked_since(reported: &Totals, latest: &Totals) -> Option<Histogram> {
    let parked = latest.parked.as_ref()?;
    Some(reported.parked.as_ref().map_or_else(|| parked.clone(), |before| parked.since(before)))
}

struct GilInterval {
    name: String,
    interpreter: i64,
    switch_interval_us: u64,
    threads: u64,
    /// The growth of the counters.
    since: GilRow,
    wait: Histogram,
    hold: Histogram,
}

fn gil_rows(reported: &Totals, latest: &Totals) -> Vec<GilInterval> {
    let nothing = GilTotals::default();
    let mut rows = Vec::new();
    for now in &latest.gils {
        let before = reported.gils.iter().find(|each| is_same(each, now)).unwrap_or(&nothing);
        let mut row = GilInterval {
            name: name_of_gil(now),
            interpreter: now.row.interpreter.unwrap_or(-1),
            switch_interval_us: 0,
            threads: now.threads,
            since: difference(&now.row, &before.row),
            wait: now.wait.since(&before.wait),
            hold: now.hold.since(&before.hold),
        };
        if row.interpreter == 0 {
            row.switch_interval_us = latest.switch_interval_us;
        }
        if now.row.folded > 0 {
            // The sum includes GILs that have ended since, whose reported values are subtracted.
            let gone =
                reported.gils.iter().filter(|each| !latest.gils.iter().any(|it| is_same(it, each)));
            for each in gone {
                row.since = difference(&row.since, &each.row);
                row.wait.subtract(&each.wait);
                row.hold.subtract(&each.hold);
            }
        }
        if row.since.wall_ns > 0 || row.since.takes > 0 {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.since.held_ns + row.wait.sum_ns));
    rows
}

fn is_same(one: &GilTotals, other: &GilTotals) -> bool {
    (one.row.id, one.opened_ns) == (other.row.id, other.opened_ns)
}

fn name_of_gil(totals: &GilTotals) -> String {
    match totals.row.folded {
        0 => called(&totals.row.name, totals.row.interpreter, totals.row.id),
        _ => ENDED.into(),
    }
}

/// The name of a GIL: the one that the program gave, or else one made from the interpreter or ID.
pub fn called(name: &str, interpreter: Option<i64>, id: u32) -> String {
    match (name, interpreter) {
        ("", Some(0)) => MAIN.into(),
        ("", Some(number)) => format!("interpreter {number}"),
        ("", None) => format!("GIL {id}"),
        (name, _) => name.into(),
    }
}

/// The growth of counters.
fn difference(now: &GilRow, before: &GilRow) -> GilRow {
    let since = |of: fn(&GilRow) -> u64| of(now).saturating_sub(of(before));
    GilRow {
        wall_ns: since(|row| row.wall_ns),
        held_ns: since(|row| row.held_ns),
        handoff_ns: since(|row| row.handoff_ns),
        idle_ns: since(|row| row.idle_ns),
        takes: since(|row| row.takes),
        contended_takes: since(|row| row.contended_takes),
        voluntary_drops: since(|row| row.voluntary_drops),
        forced_drops: since(|row| row.forced_drops),
        drop_requests: since(|row| row.drop_requests),
        preemptions: since(|row| row.preemptions),
        ..GilRow::default()
    }
}

impl Row for GilInterval {
    fn write(&self, row: &mut Writer) {
        row.text(id::GIL_NAME, &self.name);
        row.integer(id::GIL_INTERPRETER, self.interpreter);
        row.seconds_of_ns(id::GIL_WALL, self.since.wall_ns);
        row.seconds_of_ns(id::GIL_HELD, self.since.held_ns);
        row.seconds_of_ns(id::GIL_HANDOFF, self.since.handoff_ns);
        row.seconds_of_ns(id::GIL_IDLE, self.since.idle_ns);
        row.count(id::GIL_TAKES, self.since.takes);
        row.count(id::GIL_CONTENDED_TAKES, self.since.contended_takes);
        row.count(id::GIL_VOLUNTARY_DROPS, self.since.voluntary_drops);
        row.count(id::GIL_FORCED_DROPS, self.since.forced_drops);
        row.count(id::GIL_DROP_REQUESTS, self.since.drop_requests);
        row.count(id::GIL_PREEMPTIONS, self.since.preemptions);
        row.histogram(id::GIL_WAIT, &self.wait);
        row.histogram(id::GIL_HOLD, &self.hold);
        row.count(id::GIL_THREADS, self.threads);
        if self.switch_interval_us != 0 {
            row.number(id::GIL_SWITCH_INTERVAL, self.switch_interval_us as f64 / 1e6);
        }
    }

    fn become_other(&mut self) {
        self.name = OTHER.into();
        self.interpreter = -1;
        self.switch_interval_us = 0;
    }

    fn fold(&mut self, other: Self) {
        self.threads += other.threads;
        let (sum, more) = (&mut self.since, &other.since);
        sum.wall_ns += more.wall_ns;
        sum.held_ns += more.held_ns;
        sum.handoff_ns += more.handoff_ns;
        sum.idle_ns += more.idle_ns;
        sum.takes += more.takes;
        sum.contended_takes += more.contended_takes;
        sum.voluntary_drops += more.voluntary_drops;
        sum.forced_drops += more.forced_drops;
        sum.drop_requests += more.drop_requests;
        sum.preemptions += more.preemptions;
        self.wait.merge(&other.wait);
        self.hold.merge(&other.hold);
    }
}

struct ThreadInterval {
    /// Set for threads that get a row of their own.
    name: String,
    gil: String,
    since: ThreadTotals,
}

fn thread_rows(reported: &Totals, latest: &Totals) -> Vec<ThreadInterval> {
    let before: HashMap<_, _> = keys(reported).zip(&reported.threads).collect();
    let names: HashMap<_, _> =
        latest.gils.iter().map(|gil| (gil.row.id, name_of_gil(gil))).collect();
    let mut rows = Vec::new();
    // By GIL: the part of the sum of ended threads that was not reported yet.
    let mut ended: HashMap<Option<u32>, ThreadTotals> = HashMap::new();
    for (key, now) in keys(latest).zip(&latest.threads) {
        let since = match before.get(&key) {
            Some(before) => change(now, before, u64::saturating_sub),
            None => *now,
        };
        if now.native_id == 0 {
            let sum = ended.entry(now.gil).or_default();
            *sum = change(sum, &since, u64::saturating_add);
        } else if is_worth_a_row(&since) {
            rows.push(since);
        }
    }
    if !ended.is_empty() {
        let here: HashSet<_> = keys(latest).collect();
        for (_, gone) in
            keys(reported).zip(&reported.threads).filter(|(key, _)| !here.contains(key))
        {
            // The thread's GIL may have ended too, with its threads in the sum of ended GILs.
            if let Some(sum) =
                ended.get_mut(&gone.gil.and_then(|gil| successor(gil, reported, latest)))
            {
                *sum = change(sum, gone, u64::saturating_sub);
            }
        }
        let sums = ended.into_iter().map(|(gil, sum)| ThreadTotals { gil, native_id: 0, ..sum });
        rows.extend(sums.filter(is_worth_a_row));
    }
    let gil_of = |row: &ThreadTotals| row.gil.and_then(|gil| names.get(&gil)).cloned();
    rows.into_iter()
        .map(|since| ThreadInterval {
            name: String::new(),
            gil: gil_of(&since).unwrap_or_default(),
            since,
        })
        .collect()
}

/// Identifies threads, in the order of `of.threads`. A row number and an ID are not enough: a new
/// GIL may reuse the row of a GIL that ended, and a thread's counters for the new GIL the row of
/// its counters for the old one.
fn keys(of: &Totals) -> impl Iterator<Item = (u32, u32, Option<(u32, u64)>)> {
    let opened_ns: HashMap<_, _> =
        of.gils.iter().map(|each| (each.row.id, each.opened_ns)).collect();
    of.threads.iter().map(move |thread| {
        let gil = thread.gil.map(|gil| (gil, opened_ns.get(&gil).copied().unwrap_or(0)));
        (thread.row, thread.native_id, gil)
    })
}

/// The ID under which the GIL `gil` of the last report is reported now.
fn successor(gil: u32, reported: &Totals, latest: &Totals) -> Option<u32> {
    let was = reported.gils.iter().find(|each| each.row.id == gil)?;
    let is = latest.gils.iter().find(|each| is_same(was, each));
    is.or_else(|| latest.gils.iter().find(|each| each.row.folded > 0)).map(|each| each.row.id)
}

/// The counters of `one`, each combined with that of `other`.
fn change(one: &ThreadTotals, other: &ThreadTotals, with: fn(u64, u64) -> u64) -> ThreadTotals {
    ThreadTotals {
        held_ns: with(one.held_ns, other.held_ns),
        waited_ns: with(one.waited_ns, other.waited_ns),
        waited_preventable_ns: with(one.waited_preventable_ns, other.waited_preventable_ns),
        waited_unanswered_ns: with(one.waited_unanswered_ns, other.waited_unanswered_ns),
        waited_off_core_ns: with(one.waited_off_core_ns, other.waited_off_core_ns),
        waited_collection_ns: with(one.waited_collection_ns, other.waited_collection_ns),
        takes: with(one.takes, other.takes),
        contended_takes: with(one.contended_takes, other.contended_takes),
        forced_drops: with(one.forced_drops, other.forced_drops),
        preemptions: with(one.preemptions, other.preemptions),
        forced_waited_ns: with(one.forced_waited_ns, other.forced_waited_ns),
        parked_ns: with(one.parked_ns, other.parked_ns),
        suspended_ns: with(one.suspended_ns, other.suspended_ns),
        stopping_ns: with(one.stopping_ns, other.stopping_ns),
        ..*one
    }
}

fn is_worth_a_row(since: &ThreadTotals) -> bool {
    since.takes > 0
        || since.held_ns > 0
        || since.parked_ns + since.suspended_ns + since.stopping_ns > 0
}

impl ThreadInterval {
    fn weight_ns(&self) -> u64 {
        self.since.held_ns + self.since.waited_ns + self.since.suspended_ns + self.since.stopping_ns
    }
}

impl Row for ThreadInterval {
    fn write(&self, row: &mut Writer) {
        let since = &self.since;
        row.text(id::THREAD_NAME, &self.name);
        if since.native_id != 0 {
            row.count(id::THREAD_NATIVE_ID, u64::from(since.native_id));
        }
        row.text(id::THREAD_GIL, &self.gil);
        if since.gil.is_none() {
            row.seconds_of_ns(id::THREAD_PARKED, since.parked_ns);
            row.seconds_of_ns(id::THREAD_SUSPENDED, since.suspended_ns);
            row.seconds_of_ns(id::THREAD_STOPPING, since.stopping_ns);
            return;
        }
        row.seconds_of_ns(id::THREAD_HELD, since.held_ns);
        row.seconds_of_ns(id::THREAD_WAITED, since.waited_ns);
        if since.waited_ns > 0 {
            // Without it, the recorder estimates the part from the lengths of the waits.
            row.seconds_of_ns(id::THREAD_PREVENTABLE, since.waited_preventable_ns);
        }
        let parts = [
            (id::THREAD_UNANSWERED, since.waited_unanswered_ns),
            (id::THREAD_OFF_CORE, since.waited_off_core_ns),
            (id::THREAD_COLLECTION, since.waited_collection_ns),
        ];
        for (id, part_ns) in parts.into_iter().filter(|(_, part_ns)| *part_ns > 0) {
            row.seconds_of_ns(id, part_ns);
        }
        row.count(id::THREAD_TAKES, since.takes);
        row.count(id::THREAD_CONTENDED_TAKES, since.contended_takes);
        row.count(id::THREAD_FORCED_DROPS, since.forced_drops);
        row.count(id::THREAD_PREEMPTIONS, since.preemptions);
        row.seconds_of_ns(id::THREAD_FORCED_WAITED, since.forced_waited_ns);
    }

    fn become_other(&mut self) {
        self.name = OTHER.into();
        self.since.native_id = 0;
    }

    fn fold(&mut self, other: Self) {
        if self.gil != other.gil {
            self.gil.clear();
        }
        let gil = self.since.gil.or(other.since.gil);
        self.since = change(&self.since, &other.since, u64::saturating_add);
        self.since.gil = gil;
    }
}

#[cfg(test)]
#[path = "gils_tests.rs"]
mod tests;
