//! The passes of CPython's garbage collector in a hold, which its callbacks report.
//!
//! A pass answers no drop request, and looks from outside like a call into C code. `began` and
//! `ended` run in the callback, in the thread that holds the GIL, without the GIL's mutex.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use headway_measure::add;

use super::{Gil, life};
use crate::counters::ThreadCounters;
use crate::installation::is_installed;
use crate::registry::threads::this_thread;
use crate::registry::{gils, rows};
use crate::trace::{self, EventKind};

/// Shorter passes are left out: there may be a thousand a second.
const LEAST_NS: u64 = 100_000;

/// The passes of a GIL's holders. Writers: the holder, and an opening. Relaxed.
pub struct Collected {
    /// The time of all passes; it only grows. Readers: events.
    total_ns: AtomicU64,
    /// The part of it in the hold that began at `hold_began_ns`. Reader: the event that ends the
    /// hold, which is the holder's own unless its drop was not seen.
    in_hold_ns: AtomicU64,
    hold_began_ns: AtomicU64,
    /// `threads::this_thread` of the thread that collects now; 0 for none. Reader: the sampler of
    /// the profile.
    thread: AtomicUsize,
}

impl Collected {
    pub const fn new() -> Self {
        Self {
            total_ns: AtomicU64::new(0),
            in_hold_ns: AtomicU64::new(0),
            hold_began_ns: AtomicU64::new(0),
            thread: AtomicUsize::new(0),
        }
    }

    pub fn total_ns(&self) -> u64 {
        self.total_ns.load(Relaxed)
    }

    /// Whether the holder collects garbage. A finalizer may have dropped the GIL.
    pub fn is_running(&self, gil: &Gil) -> bool {
        let thread = self.thread.load(Relaxed);
        thread != 0 && thread == gil.holder_thread.load(Relaxed)
    }

    /// No thread collects: the GIL is opened, or this is a forked child.
    pub fn forget_thread(&self) {
        self.thread.store(0, Relaxed);
    }

    /// The time of passes in the hold that began then.
    pub fn in_hold_ns(&self, hold_began_ns: u64) -> u64 {
        match self.hold_began_ns.load(Relaxed) == hold_began_ns {
            true => self.in_hold_ns.load(Relaxed),
            false => 0,
        }
    }

    fn add(&self, hold_began_ns: u64, took_ns: u64) {
        let before_ns = self.in_hold_ns(hold_began_ns);
        self.hold_began_ns.store(hold_began_ns, Relaxed);
        self.in_hold_ns.store(before_ns + took_ns, Relaxed);
        add(&self.total_ns, took_ns);
    }
}

/// The calling thread, which holds a GIL, begins a pass of the garbage collector.
pub fn began() {
    if let Some(gil) = held_gil() {
        gil.collected.thread.store(this_thread(), Relaxed);
    }
}

/// The calling thread, which holds a GIL, has run a pass of the garbage collector. A finalizer may
/// have dropped the GIL meanwhile: only the time since the last take counts.
pub fn ended(began_ns: u64, now_ns: u64) {
    let Some(gil) = held_gil() else { return };
    gil.collected.thread.store(0, Relaxed);
    if now_ns.saturating_sub(began_ns) < LEAST_NS {
        return;
    }
    let hold_began_ns = gil.counters().changed_ns.load(Relaxed);
    let took_ns = now_ns.saturating_sub(began_ns.max(hold_began_ns));
    gil.collected.add(hold_began_ns, took_ns);
    let is_of_gil = |counters: &&ThreadCounters| counters.gil.load(Relaxed) == gil.index as u32;
    if let Some(counters) = rows::counters_of_this_thread().find(is_of_gil) {
        counters.count_collection(took_ns);
        let serial = &gil.serial;
        trace::record(EventKind::Collection, serial, counters, now_ns - took_ns);
        trace::record(EventKind::CollectionEnded, serial, counters, now_ns);
    }
}

fn held_gil() -> Option<&'static Gil> {
    let holds = |gil: &&Gil| {
        gil.holder_thread.load(Relaxed) == this_thread() && gil.life.load(Relaxed) == life::OPEN
    };
    gils::all().iter().find(holds).filter(|_| is_installed())
}
