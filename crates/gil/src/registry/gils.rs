//! The table of the GILs of this process.
//!
//! `find` runs in hooks. The rest runs without a GIL's mutex.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::*};

use headway_measure::clock;

use super::interpreter_list;
use crate::counters::{self, GILS, NO_GIL, ProcessCounters, aggregation, free_list, state};
use crate::gil::addresses::Addresses;
use crate::gil::{Gil, Role, life};
use crate::{membarrier, trace};

/// The GILs of this process. Entry 0 is that of the main interpreter. An entry has the counters of
/// the same index. Entries of own GILs are added and closed by holders of `ADDING`.
static TABLE: [Gil; GILS] = {
    let mut table = [const { Gil::new(0) }; GILS];
    let mut index = 0;
    while index < GILS {
        table[index].index = index;
        index += 1;
    }
    table
};
/// Entries below this one have been in use. Writers: holders of `ADDING`, with release; a forked
/// child. Readers: every search, with acquire.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(1);
/// 1 while a thread adds an entry or closes one. Set by swap, with acquire; cleared with release,
/// and in a forked child. A thread takes it without a GIL's mutex and without the registry lock,
/// which its holder may take.
static ADDING: AtomicUsize = AtomicUsize::new(0);

/// The greatest ID of an interpreter whose GIL found no room; -1 for none. Writers: holders of
/// `ADDING`; a forked child. Relaxed.
static LAST_REFUSED_ID: AtomicI64 = AtomicI64::new(-1);

pub fn main() -> &'static Gil {
    &TABLE[0]
}

/// The entry for waits without a GIL. It stays `UNUSED`, and only its serial is used.
pub fn no_gil() -> &'static Gil {
    &TABLE[NO_GIL]
}

/// Returns whether the opening `serial`, which is not 0, is still in force.
pub fn is_current(serial: u32) -> bool {
    all().iter().chain([no_gil()]).any(|gil| gil.serial.load(Relaxed) == serial)
}

/// The entries that have been in use.
pub fn all() -> &'static [Gil] {
    TABLE.get(..HIGH_WATER.load(Acquire)).unwrap_or(&TABLE)
}

/// The entries of own GILs that have been in use.
pub fn own() -> &'static [Gil] {
    all().get(1..).unwrap_or_default()
}

/// Makes the main GIL known by its addresses.
pub fn know_main(addresses: Addresses) -> &'static Gil {
    let gil = main();
    gil.interpreter_id.store(0, Relaxed);
    gil.know(addresses);
    gil
}

/// The GIL whose `cond` or `switch_cond` is at `address`. For hooks.
#[inline(always)]
pub fn find(address: usize) -> Option<(&'static Gil, Role)> {
    main().role_of(address).map(|role| (main(), role)).or_else(|| find_own_gil(address))
}

#[cold]
fn find_own_gil(address: usize) -> Option<(&'static Gil, Role)> {
    own().iter().find_map(|gil| gil.role_of(address).map(|role| (gil, role)))
}

/// Adds a GIL as `KNOWN`, unless it is in the table. If there is no room, the GIL is left to
/// CPython and counted as not measured: an entry in use is never taken from its GIL, whose threads
/// may wait in a hook.
pub fn add(addresses: Addresses, interpreter_id: i64) {
    let _adding = Adding::begin();
    if find(addresses.cond).is_some() {
        return;
    }
    let oldest = |in_life: u32| {
        let entries = TABLE.iter().take(NO_GIL).skip(1);
        let entries = entries.filter(|gil| gil.life.load(Relaxed) == in_life);
        entries.min_by_key(|gil| gil.serial.load(Relaxed))
    };
    let unused = || oldest(life::UNUSED).or_else(|| oldest(life::CLOSED));
    // Of an interpreter that ended, nothing tells.
    let Some(gil) = unused().or_else(|| {
        close_unlisted_while_adding();
        unused()
    }) else {
        return refuse(interpreter_id);
    };
    if gil.life.load(Relaxed) == life::CLOSED {
        if let Some(process) = counters::of_this_process() {
            aggregation::aggregate_gil(process, gil.index);
        }
    }
    gil.serial.store(0, Relaxed);
    gil.interpreter.store(addresses.interpreter().unwrap_or(0), Relaxed);
    gil.interpreter_id.store(interpreter_id, Relaxed);
    gil.name.set(b"");
    gil.know(addresses);
    // The thread that makes the interpreter needs a row for it.
    counters::of_this_process().inspect(|process| free_list::prepare(process));
    HIGH_WATER.fetch_max(gil.index + 1, Release);
}

/// Counts a GIL that found no room, once. CPython gives a later interpreter a greater ID.
fn refuse(interpreter_id: i64) {
    if LAST_REFUSED_ID.fetch_max(interpreter_id, Relaxed) < interpreter_id {
        if let Some(process) = counters::of_this_process() {
            process.unmeasured_gils.fetch_add(1, Relaxed);
        }
    }
}

/// Closes the own GILs of interpreters that ended, if the list of interpreters can be read. The
/// caller holds `ADDING`.
fn close_unlisted_while_adding() {
    let Some(process) = counters::of_this_process() else { return };
    const { assert!(GILS <= u64::BITS as usize) };
    let in_use = interpreter_list::collect(|in_use: &mut u64, interpreter, id| {
        let owned = own().iter().find(|gil| gil.is_owned_by(interpreter, id));
        *in_use |= owned.map_or(0, |gil| 1 << gil.index);
    });
    let Some(in_use) = in_use else { return };
    for gil in own().iter().filter(|gil| gil.cond.load(Relaxed) != 0) {
        if in_use >> gil.index & 1 == 0 {
            close_ended_while_adding(gil, process);
        }
    }
}

/// Closes the own GILs of interpreters that ended. `list` tells which exist. Meanwhile no entry is
/// added, so that the interpreter of each entry was made before the list. Returns the list.
pub fn close_unlisted(
    list: impl FnOnce() -> Vec<(usize, i64)>,
    process: &'static ProcessCounters,
) -> Vec<(usize, i64)> {
    let _adding = Adding::begin();
    let existing = list();
    for gil in own().iter().filter(|gil| gil.cond.load(Relaxed) != 0) {
        if !existing.iter().any(|(interpreter, id)| gil.is_owned_by(*interpreter, *id)) {
            close_ended_while_adding(gil, process);
        }
    }
    existing
}

/// Closes the counters of all GILs, while other threads may run events.
pub fn close_all(process: &'static ProcessCounters) {
    let open: Vec<_> = all()
        .iter()
        .filter(|gil| match gil.life.load(Acquire) {
            life::OPEN => true,
            _ => {
                gil.life.store(life::UNUSED, Relaxed);
                false
            }
        })
        .collect();
    open.iter().for_each(|gil| gil.life.store(life::CLOSED, SeqCst));
    // Events read `life` without a fence; this is the other half of their barrier.
    if !membarrier::in_all_threads() {
        // A store becomes visible by itself within a far shorter time.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for gil in open {
        gil.wait_for_event();
        close_counters(gil, process, clock::now_ns());
    }
}

/// Closes the counters of the GIL whose `cond` is at this address, if there is one: it ends.
pub fn close_ended_at(cond: usize, process: &'static ProcessCounters) {
    let at_cond = || find(cond).filter(|(_, role)| *role == Role::Cond);
    if at_cond().is_some() {
        let _adding = Adding::begin();
        if let Some((gil, _)) = at_cond() {
            close_ended_while_adding(gil, process);
        }
    }
}

/// Closes the counters of a GIL that ended with its interpreter, as of its last event. Its
/// addresses may belong to something else. No thread runs an event of it any more. The caller holds
/// `ADDING`, so that the entry is not given to another GIL meanwhile.
fn close_ended_while_adding(gil: &'static Gil, process: &'static ProcessCounters) {
    let life_before = gil.life.swap(life::CLOSED, SeqCst);
    gil.forget_addresses();
    if life_before == life::OPEN {
        close_counters(gil, process, gil.counters().changed_ns.load(Relaxed));
        aggregation::end_rows_of(process, gil.index);
    } else {
        gil.life.store(life::UNUSED, Relaxed);
    }
}

fn close_counters(gil: &'static Gil, process: &'static ProcessCounters, now_ns: u64) {
    let counters = gil.counters();
    // The last event may have a slightly later time, by the time-stamp counter.
    let now_ns = now_ns.max(counters.changed_ns.load(Relaxed));
    if counters.held_now.load(Relaxed) == 1 {
        let holder = process.thread(counters.holder.load(Relaxed));
        let held_ns = now_ns.saturating_sub(counters.changed_ns.load(Relaxed));
        holder.held_at_close_ns.fetch_add(held_ns, Relaxed);
    }
    counters.close_interval(now_ns);
    trace::record_closed(gil.serial.load(Relaxed), now_ns);
    counters.closed_ns.store(now_ns.max(1), Relaxed);
    counters.state.store(state::ENDED, Release);
}

/// Forgets the threads of all GILs, in a forked child; see `Gil::forget_threads`.
pub fn forget_threads() {
    TABLE.iter().for_each(Gil::forget_threads);
}

/// Removes all own GILs, in a forked child and at an install, when only the main GIL exists.
pub fn keep_main_only() {
    ADDING.store(0, Relaxed);
    LAST_REFUSED_ID.store(-1, Relaxed);
    for gil in own() {
        gil.forget_addresses();
        gil.life.store(life::UNUSED, Relaxed);
    }
    HIGH_WATER.store(1, Release);
}

/// Held by the thread that adds an entry or closes one.
struct Adding;

impl Adding {
    fn begin() -> Self {
        while ADDING.swap(1, Acquire) == 1 {
            // SAFETY: sched_yield has no preconditions.
            unsafe { libc::sched_yield() };
        }
        Self
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        ADDING.store(0, Release);
    }
}
