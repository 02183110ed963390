//! What has been counted so far, read often: sums of all threads' histograms for each GIL, and the counters of each
//! thread, without copies of the books.
//!
//! For whoever tells of differences between two readings. Every figure only ever grows, but figures are not of one moment: an
//! event under way may be in some of them and not in others. A `snapshot` is, and costs more. Needs no GIL, and
//! has events wait only where it reads a single GIL's own counters.

use std::sync::atomic::Ordering::*;

use crate::counters;
use crate::counters::book::{ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping::Slot;
use crate::parked_waits;
use crate::registry::gil::Gil;
use crate::registry::gils;
use crate::registry::threads::Registry;
use crate::snapshot;
use crate::snapshot::{GilRow, text_of};
use headway_measure::Histogram;
use headway_measure::clock::now_ns;

/// One GIL, or the sum of those that ended.
#[derive(Clone, Debug, Default)]
pub struct GilTotals {
    pub row: GilRow,
    /// When its books opened: with `row.id` this tells it from an earlier one in the same place. 0 for the sum of
    /// those that ended.
    pub opened_ns: u64,
    /// Threads with a book of it that are alive.
    pub threads: u64,
    pub wait: Histogram,
    pub hold: Histogram,
}

/// One thread with one GIL, or a sum of threads that ended, which has no native id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// Where its book is: with the native id this tells it from an earlier one in the same place.
    pub book: u32,
    pub native_id: u32,
    /// The id of its GIL; `None` for its waits in a free-threaded build.
    pub gil: Option<u32>,
    pub held_ns: u64,
    pub waited_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub forced_drops: u64,
    pub preemptions: u64,
    pub forced_waited_ns: u64,
    /// In a free-threaded build; see `parks`.
    pub parked_ns: u64,
    pub suspended_ns: u64,
    pub stopping_ns: u64,
}

/// All of a process. Kept by who reads again and again.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub policy: &'static str,
    pub gil_enabled: bool,
    pub switch_interval_us: u64,
    pub unmeasured_events: u64,
    pub gils: Vec<GilTotals>,
    pub threads: Vec<ThreadTotals>,
}

impl Totals {
    /// Reads all of it anew. False, and nothing is known, before the first install.
    pub fn read(&mut self) -> bool {
        self.gils.clear();
        self.threads.clear();
        let Some(slot) = counters::slot() else { return false };
        let head = snapshot::head(slot);
        self.policy = head.policy;
        self.gil_enabled = head.gil_enabled;
        self.switch_interval_us = head.switch_interval_us;
        self.unmeasured_events = head.unmeasured_events;
        // No row is folded into another meanwhile.
        let _registry = Registry::lock();
        free_list::prepare(slot);
        let mut holders = Vec::new();
        for (index, book) in slot.gils.iter().enumerate() {
            if book.state.load(Acquire) == state::FREE {
                continue;
            }
            let gil = gils::all().get(index);
            let copy = || {
                let open = book.closed_ns.load(Relaxed) == 0;
                let now_ns = match open {
                    true => gil.map_or_else(now_ns, Gil::moment_ns),
                    false => book.changed_ns.load(Relaxed),
                };
                let row = snapshot::gil_row(index as u32, book, now_ns, open);
                (row, snapshot::holding(book, now_ns))
            };
            let (row, holding) = gil.map_or_else(copy, |gil| Gil::read(gil, copy));
            holders.extend(holding);
            let opened_ns = if row.folded > 0 { 0 } else { book.opened_ns.load(Relaxed) };
            self.gils.push(GilTotals { row, opened_ns, ..GilTotals::default() });
        }
        self.read_threads(slot, &holders);
        true
    }

    fn read_threads(&mut self, slot: &Slot, holders: &[(u32, u64)]) {
        for (index, book) in free_list::used(slot) {
            let present = book.state.load(Acquire);
            let gil = book.gil.load(Relaxed);
            if present == state::FREE {
                continue;
            }
            if gil == gils::NO_GIL as u32 {
                self.threads.push(parked(index, book));
                continue;
            }
            let Some(of) = self.gils.iter_mut().find(|each| each.row.id == gil) else { continue };
            book.wait.add_to(&mut of.wait);
            book.hold.add_to(&mut of.hold);
            of.threads += u64::from(present == state::LIVE && book.native_id.load(Relaxed) != 0);
            let held_now_ns =
                holders.iter().find(|(holder, _)| *holder == index).map_or(0, |it| it.1);
            self.threads.push(ThreadTotals {
                held_ns: book.hold.sum_ns.load(Relaxed)
                    + book.held_at_close_ns.load(Relaxed)
                    + held_now_ns,
                waited_ns: book.wait.sum_ns.load(Relaxed),
                takes: book.takes.load(Relaxed),
                contended_takes: book.contended_takes.load(Relaxed),
                forced_drops: book.forced_drops.load(Relaxed),
                preemptions: book.preemptions.load(Relaxed),
                forced_waited_ns: book.forced_waited_ns.load(Relaxed),
                ..identity(index, book, Some(gil))
            });
        }
    }
}

/// What a thread of `Totals` is called; empty where it has gone since, or has no name.
pub fn name_of_book(thread: &ThreadTotals) -> String {
    let _registry = Registry::lock();
    let book = counters::slot().and_then(|slot| slot.books.get(thread.book as usize));
    let book = book.filter(|book| book.native_id.load(Relaxed) == thread.native_id);
    book.map_or_else(String::new, |book| text_of(&book.name))
}

fn identity(index: u32, book: &ThreadBook, gil: Option<u32>) -> ThreadTotals {
    let native_id = book.native_id.load(Relaxed);
    ThreadTotals { book: index, native_id, gil, ..ThreadTotals::default() }
}

fn parked(index: u32, book: &ThreadBook) -> ThreadTotals {
    ThreadTotals {
        parked_ns: parked_waits::parked(book).sum_ns.load(Relaxed),
        suspended_ns: parked_waits::suspended(book).sum_ns.load(Relaxed),
        stopping_ns: parked_waits::stopping(book).1,
        ..identity(index, book, None)
    }
}
