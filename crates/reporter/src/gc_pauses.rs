//! Passes of CPython's garbage collector: their durations and results, by interpreter.
//!
//! A callback in `gc.callbacks` of each interpreter (`crates/native/src/gc_watch.rs`) writes a pass
//! to a ring that the reporter's thread empties. Only one pass at a time runs in an interpreter:
//! with the GIL held or, in a free-threaded build, with a mark that excludes others. So a ring has
//! one writer and one reader, and neither waits.

use super::datagram_sender::DatagramSender;
use super::rows::{Bounds, OTHER, Row};
use super::source::{Source, Tick};
use headway_measure::Histogram;
use headway_measure::clock::{now_ns, wall_s};
use headway_telemetry::datagram::Writer;
use headway_telemetry::{id, kind};
use headway_threads::lock::Lock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// The interval between two readings of the rings. A ring has room for the passes of this time.
const LOOK: Duration = Duration::from_millis(20);
const RING: usize = 128;
/// The most passes that are reported one by one after a tick, as mod_wsgi does, and the most that
/// may wait for a tick.
const EVENTS_PER_TURN: usize = 64;
const MAX_EVENTS_KEPT: usize = 256;
const ROWS: Bounds = Bounds { rows: 64, bytes: 12_000 };
const ENDED: &str = "(ended)";
pub const GENERATIONS: usize = 3;

/// One pass of the collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// A time of CLOCK_MONOTONIC.
    pub began_ns: u64,
    pub took_ns: u64,
    pub generation: u64,
    pub collected: u64,
    pub uncollectable: u64,
}

/// The passes of one interpreter's collector.
pub struct Passes {
    /// The name of its application group.
    name: String,
    /// The numbers of passes that were written and read; the passes in between are in the ring.
    /// Writers: the callback, and the reader. `SeqCst`: a store passes an entry to the other side.
    noted: AtomicU64,
    read: AtomicU64,
    /// Relaxed, ordered by `noted`.
    ring: [[AtomicU64; 5]; RING],
    /// The number of passes that had no room. Writer: the callback.
    lost: AtomicU64,
    facts: Facts,
}

/// The interpreter's own counters of its collector at a pass. Writer: the callback, relaxed.
#[derive(Default)]
pub struct Facts {
    pub counts: [AtomicU64; GENERATIONS],
    pub thresholds: [AtomicU64; GENERATIONS],
    pub is_enabled: AtomicU64,
    pub frozen: AtomicU64,
    /// The number of passes before the callback was installed, and the numbers of objects that they
    /// collected and could not collect.
    pub earlier: [[AtomicU64; 3]; GENERATIONS],
}

/// All interpreters that are watched, or were until the last tick.
static WATCHED: Lock<Vec<Arc<Passes>>> = Lock::new(Vec::new());

/// Begins to watch an interpreter.
pub fn watch(name: &str) -> Arc<Passes> {
    let passes = Arc::new(Passes::new(name));
    WATCHED.lock().push(Arc::clone(&passes));
    passes
}

impl Passes {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            noted: AtomicU64::new(0),
            read: AtomicU64::new(0),
            ring: [const { [const { AtomicU64::new(0) }; 5] }; RING],
            lost: AtomicU64::new(0),
            facts: Facts::default(),
        }
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// For the callback. Allocates nothing and does not block.
    pub fn note(&self, pass: Pass) {
        let noted = self.noted.load(Relaxed);
        if noted - self.read.load(SeqCst) >= RING as u64 {
            self.lost.store(self.lost.load(Relaxed) + 1, Relaxed);
            return;
        }
        let values =
            [pass.began_ns, pass.took_ns, pass.generation, pass.collected, pass.uncollectable];
        for (place, value) in self.ring[noted as usize % RING].iter().zip(values) {
            place.store(value, Relaxed);
        }
        self.noted.store(noted + 1, SeqCst);
    }

    /// For the reporter's thread.
    fn drain(&self, mut each: impl FnMut(Pass)) {
        let mut read = self.read.load(Relaxed);
        while read < self.noted.load(SeqCst) {
            let [began_ns, took_ns, generation, collected, uncollectable] =
                [0, 1, 2, 3, 4].map(|at| self.ring[read as usize % RING][at].load(Relaxed));
            each(Pass { began_ns, took_ns, generation, collected, uncollectable });
            read += 1;
            self.read.store(read, SeqCst);
        }
    }
}

/// The passes of all interpreters, for reports.
#[derive(Default)]
pub struct GcPauses(Lock<Reported>);

#[derive(Default)]
struct Reported {
    interpreters: Vec<Interpreter>,
    /// Passes to report one by one, and the number of passes beyond the limit.
    events: VecDeque<Pass>,
    dropped: u64,
    dropped_reported: u64,
    /// The sums of interpreters that have ended, because a process's sums must not decrease; and
    /// the part of these sums that no tick has reported.
    gone: [[u64; 3]; GENERATIONS],
    gone_since: Since,
}

struct Interpreter {
    passes: Arc<Passes>,
    /// By generation: the numbers of passes, of collected and of uncollectable objects.
    sums: [[u64; 3]; GENERATIONS],
    lost: u64,
    /// Since the last tick that was sent.
    since: Since,
}

#[derive(Clone, Debug, Default)]
struct Since {
    pauses: [u64; GENERATIONS],
    pause: Histogram,
    collected: u64,
    uncollectable: u64,
}

impl Interpreter {
    fn new(passes: Arc<Passes>) -> Self {
        let sums = [0, 1, 2].map(|generation: usize| {
            [0, 1, 2].map(|what: usize| passes.facts.earlier[generation][what].load(Relaxed))
        });
        Self { passes, sums, lost: 0, since: Since::default() }
    }

    fn add(&mut self, pass: Pass) {
        let generation = (pass.generation as usize).min(GENERATIONS - 1);
        let [passes, collected, uncollectable] = &mut self.sums[generation];
        *passes += 1;
        *collected += pass.collected;
        *uncollectable += pass.uncollectable;
        self.since.pauses[generation] += 1;
        self.since.pause.record(pass.took_ns);
        self.since.collected += pass.collected;
        self.since.uncollectable += pass.uncollectable;
    }
}

impl Since {
    fn add(&mut self, other: &Self) {
        self.pauses.iter_mut().zip(other.pauses).for_each(|(sum, more)| *sum += more);
        self.pause.merge(&other.pause);
        self.collected += other.collected;
        self.uncollectable += other.uncollectable;
    }

    fn passes(&self) -> u64 {
        self.pauses.iter().sum()
    }
}

/// The passes of one interpreter, or of all that have ended, in an interval.
struct GcRow {
    name: String,
    since: Since,
}

impl Row for GcRow {
    fn write(&self, row: &mut Writer) {
        row.text(id::GC_INTERPRETER, &self.name);
        let ids = [id::GC_PAUSES_GENERATION0, id::GC_PAUSES_GENERATION1, id::GC_PAUSES_GENERATION2];
        for (id, pauses) in ids.into_iter().zip(self.since.pauses) {
            row.count(id, pauses);
        }
        row.histogram(id::GC_PAUSE, &self.since.pause);
        row.count(id::GC_COLLECTED_TOTAL, self.since.collected);
        row.count(id::GC_UNCOLLECTABLE_TOTAL, self.since.uncollectable);
    }

    fn fold(&mut self, other: Self) {
        self.since.add(&other.since);
    }

    fn become_other(&mut self) {
        self.name = OTHER.into();
    }
}

impl GcPauses {
    /// Reports only passes from now on. The rings of a forked child contain passes of its parent.
    pub fn from_now() -> Self {
        WATCHED.lock().iter().for_each(|passes| passes.drain(|_| ()));
        Self::default()
    }
}

impl Reported {
    fn drain(&mut self) {
        let Self { interpreters, events, dropped, .. } = self;
        for passes in WATCHED.lock().iter() {
            if !interpreters.iter().any(|each| Arc::ptr_eq(&each.passes, passes)) {
                interpreters.push(Interpreter::new(Arc::clone(passes)));
            }
        }
        for interpreter in interpreters {
            let passes = Arc::clone(&interpreter.passes);
            passes.drain(|pass| {
                interpreter.add(pass);
                if events.len() == MAX_EVENTS_KEPT {
                    events.pop_front();
                    *dropped += 1;
                }
                events.push_back(pass);
            });
            let lost = passes.lost.load(Relaxed);
            *dropped += lost - std::mem::replace(&mut interpreter.lost, lost);
        }
        // Without a receiver no tick is sent, after which ended interpreters would be forgotten.
        if self.interpreters.len() > ROWS.rows {
            self.forget_ended();
        }
    }

    fn rows(&self) -> Vec<GcRow> {
        let row = |each: &Interpreter| GcRow {
            name: each.passes.name.clone(),
            since: each.since.clone(),
        };
        let mut rows: Vec<_> = self.interpreters.iter().map(row).collect();
        if self.gone_since.passes() > 0 {
            rows.push(GcRow { name: ENDED.into(), since: self.gone_since.clone() });
        }
        if rows.len() > ROWS.rows {
            rows.sort_by_key(|row| std::cmp::Reverse(row.since.pause.sum_ns));
        }
        rows
    }

    /// Forgets interpreters that have ended, which are those without other references to their
    /// passes.
    fn forget_ended(&mut self) {
        let Self { interpreters, gone, gone_since, .. } = self;
        WATCHED.lock().retain(|passes| {
            let is_known = interpreters.iter().any(|each| Arc::ptr_eq(&each.passes, passes));
            !is_known || Arc::strong_count(passes) > 2
        });
        interpreters.retain(|interpreter| {
            let stays = Arc::strong_count(&interpreter.passes) > 1;
            if !stays {
                add_up(gone, &interpreter.sums);
                gone_since.add(&interpreter.since);
            }
            stays
        });
    }

    /// mod_wsgi's counters, summed over all interpreters. mod_wsgi's viewer cannot distinguish
    /// interpreters, because it fails to show a name, which would be bytes.
    fn write_snapshot(&self, out: &mut Writer) {
        let mut sums = self.gone;
        self.interpreters.iter().for_each(|interpreter| add_up(&mut sums, &interpreter.sums));
        let facts = || self.interpreters.iter().map(|each| &each.passes.facts);
        let of = |what: fn(&Facts) -> &AtomicU64| facts().map(move |it| what(it).load(Relaxed));
        for (generation, [passes, collected, uncollectable]) in sums.into_iter().enumerate() {
            let count = facts().map(|facts| facts.counts[generation].load(Relaxed)).sum();
            let threshold = facts().map(|facts| facts.thresholds[generation].load(Relaxed)).next();
            let nth = |first: u16| first + generation as u16;
            out.count(nth(id::GC_COUNT0), count);
            out.count(nth(id::GC_THRESHOLD0), threshold.unwrap_or(0));
            out.count(nth(id::GC_COLLECTIONS0), passes);
            out.count(nth(id::GC_COLLECTED0), collected);
            out.count(nth(id::GC_UNCOLLECTABLE0), uncollectable);
        }
        out.count(id::GC_IS_ENABLED, of(|facts| &facts.is_enabled).max().unwrap_or(0));
        out.count(id::GC_FREEZE_COUNT, of(|facts| &facts.frozen).sum());
        out.count(id::GC_DROPPED_EVENTS, self.dropped);
    }
}

impl Source for GcPauses {
    fn collect(&self, tick: &mut Tick) {
        let mut reported = self.0.lock();
        reported.drain();
        tick.rows(id::GCS, ROWS, reported.rows());
    }

    fn sent(&self) {
        let mut reported = self.0.lock();
        reported.interpreters.iter_mut().for_each(|each| each.since = Since::default());
        reported.gone_since = Since::default();
        reported.forget_ended();
    }

    fn look_every(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn look(&self) {
        self.0.lock().drain();
    }

    fn send_events(&self, sender: &mut DatagramSender) {
        let mut reported = self.0.lock();
        if reported.interpreters.is_empty() {
            return;
        }
        sender.lose(reported.dropped - reported.dropped_reported);
        reported.dropped_reported = reported.dropped;
        if !sender.send(kind::GC_SNAPSHOT, |out| reported.write_snapshot(out)) {
            sender.lose(1);
        }
        let (now_s, now_ns) = (wall_s(), now_ns());
        for _ in 0..EVENTS_PER_TURN {
            let Some(pass) = reported.events.front() else { break };
            let sent = sender.send(kind::GC_EVENT, |out| {
                let ago_s = now_ns.saturating_sub(pass.began_ns) as f64 / 1e9;
                out.number(id::GC_EVENT_START_STAMP, now_s - ago_s);
                out.seconds_of_ns(id::GC_EVENT_DURATION, pass.took_ns);
                out.count(id::GC_EVENT_GENERATION, pass.generation);
                out.count(id::GC_EVENT_COLLECTED, pass.collected);
                out.count(id::GC_EVENT_UNCOLLECTABLE, pass.uncollectable);
            });
            // The receiver has no room now. The rest is sent with the next tick.
            if !sent {
                break;
            }
            reported.events.pop_front();
        }
    }
}

fn add_up(sums: &mut [[u64; 3]; GENERATIONS], more: &[[u64; 3]; GENERATIONS]) {
    for (sum, more) in sums.iter_mut().flatten().zip(more.iter().flatten()) {
        *sum += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock of the tests that read the passes of all interpreters.
    static ALL: Lock<()> = Lock::new(());

    fn pass(generation: u64, took_ns: u64) -> Pass {
        Pass { began_ns: 1, took_ns, generation, collected: 2, uncollectable: 1 }
    }

    #[test]
    fn a_full_ring_loses_the_newest_and_counts_them() {
        let passes = Passes::new("");
        (0..RING as u64 + 5).for_each(|took_ns| passes.note(pass(0, took_ns)));
        let mut read = Vec::new();
        passes.drain(|pass| read.push(pass.took_ns));
        assert_eq!(read, (0..RING as u64).collect::<Vec<_>>());
        assert_eq!(passes.lost.load(Relaxed), 5);
        passes.note(pass(1, 7));
        passes.drain(|each| assert_eq!(each, pass(1, 7)));
    }

    #[test]
    fn one_side_writes_while_the_other_reads() {
        let passes = Passes::new("");
        let (mut sum, mut count) = (0, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..20_000 {
                    passes.note(Pass {
                        began_ns: number,
                        took_ns: number,
                        generation: number,
                        collected: number,
                        uncollectable: number,
                    });
                }
            });
            while !writer.is_finished() || passes.noted.load(SeqCst) > passes.read.load(SeqCst) {
                passes.drain(|pass| {
                    assert!(pass.took_ns == pass.began_ns && pass.uncollectable == pass.began_ns);
                    (sum, count) = (sum + pass.took_ns, count + 1);
                });
            }
        });
        assert_eq!(count + passes.lost.load(Relaxed), 20_000);
        assert!(sum <= (0..20_000).sum());
    }

    #[test]
    fn what_was_not_sent_is_told_again() {
        let _all = ALL.lock();
        let mut reported = Reported::default();
        let passes = Arc::new(Passes::new("site"));
        reported.interpreters.push(Interpreter::new(Arc::clone(&passes)));
        passes.note(pass(0, 1_000));
        reported.drain();
        passes.note(pass(2, 5_000));
        reported.drain();
        let since = &reported.interpreters[0].since;
        assert_eq!(since.pauses, [1, 0, 1]);
        assert_eq!((since.pause.min_ns, since.pause.max_ns), (1_000, 5_000));
        assert_eq!((since.collected, since.uncollectable), (4, 2));
        assert_eq!(reported.events.len(), 2);
        // Its interpreter ends.
        reported.forget_ended();
        assert_eq!(reported.interpreters.len(), 1);
        drop(passes);
        reported.forget_ended();
        assert!(reported.interpreters.is_empty());
        assert_eq!(reported.gone, [[1, 2, 1], [0; 3], [1, 2, 1]]);
    }

    #[test]
    fn interpreters_that_ended_are_few_however_long_nobody_listens() {
        let _all = ALL.lock();
        let reported = GcPauses::default();
        for _ in 0..1_000 {
            let passes = watch("site");
            passes.note(pass(0, 1_000));
            drop(passes);
            reported.look();
        }
        let is_here = |each: &Arc<Passes>| each.name == "site";
        assert!(WATCHED.lock().iter().filter(|each| is_here(each)).count() <= ROWS.rows);
        let rows = reported.0.lock().rows();
        assert!(rows.len() <= ROWS.rows + 1, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.since.pauses[0]).sum::<u64>(), 1_000);
        assert!(rows.iter().any(|row| row.name == ENDED && row.since.pause.count() > 900));
        // A pass is reported once.
        reported.sent();
        assert_eq!(reported.0.lock().rows().iter().map(|row| row.since.passes()).sum::<u64>(), 0);
        assert_eq!(reported.0.lock().gone[0][0], 1_000);
    }
}
