//! The names that the program gives its threads and GILs. A GIL is named after its interpreter.
//!
//! The program may name a GIL before the meter is installed, and the name outlives its removal. So
//! names are stored here by the ID of the interpreter, which CPython uses once; the name of the
//! main GIL is stored with the GIL. Nothing here runs in hooks.

use std::sync::atomic::{AtomicI64, Ordering::*};

use super::{gils, rows, threads};
use crate::counters::{self, GILS, NAME_BYTES, Name, free_list, state};
use crate::gil::{Gil, life};
use crate::{registry_lock, trace};

/// The name of the GIL that one sub-interpreter owns.
struct StoredName {
    /// -1 while the entry is free.
    interpreter_id: AtomicI64,
    name: Name,
}

/// Guarded by the registry lock. If a process names more interpreters than it has counters for
/// GILs, the last names are lost.
static STORED_NAMES: [StoredName; GILS] =
    [const { StoredName { interpreter_id: AtomicI64::new(-1), name: Name::new() } }; GILS];

/// Names the calling thread, in its present and future rows.
pub fn name_this_thread(name: &[u8]) {
    let _registry = registry_lock::lock();
    if let Some(thread) = threads::current_or_new() {
        thread.name.set(name);
        rows::open_links_of_this_thread().for_each(|link| link.counters().name.set(name));
    }
}

/// Names the live thread with this kernel thread ID. Stores the name if no hook has seen the
/// thread.
pub fn name_thread(native_id: u32, name: &[u8]) {
    let registry = registry_lock::lock();
    let Some(process) = counters::of_this_process() else { return };
    match threads::with_native_id(native_id, &registry) {
        Some(thread) => thread.name.set(name),
        None => threads::store_name(native_id, name, &registry),
    }
    for (_, counters) in free_list::used(process) {
        if counters.state.load(Relaxed) == state::LIVE
            && counters.native_id.load(Relaxed) == native_id
        {
            counters.name.set(name);
        }
    }
}

/// The name of the live thread with this kernel thread ID: the one that Python reported, or else
/// the kernel's.
pub fn name_of(native_id: u32) -> Option<String> {
    let reported = {
        let registry = registry_lock::lock();
        let thread = threads::with_native_id(native_id, &registry).filter(|_| native_id != 0);
        thread.map(|thread| thread.name.to_text())
    };
    reported.filter(|name| !name.is_empty()).or_else(|| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{native_id}/comm")).ok()?;
        Some(name.trim_end().to_owned())
    })
}

/// Names the GIL that an interpreter owns, in its present and future counters. An interpreter that
/// shares the main GIL owns none, and the call has no effect. The caller runs in that interpreter,
/// so its GIL neither opens nor ends meanwhile.
pub fn name_gil_of(interpreter_id: i64, name: &[u8]) {
    let _registry = registry_lock::lock();
    if interpreter_id == 0 {
        return give(gils::main(), name);
    }
    let entry = |id| STORED_NAMES.iter().find(|each| each.interpreter_id.load(Relaxed) == id);
    if let Some(stored) = entry(interpreter_id).or_else(|| entry(-1)) {
        stored.name.set(name);
        stored.interpreter_id.store(interpreter_id, Relaxed);
    }
    give_all(interpreter_id, name);
}

/// Gives each own GIL that is known its stored name. A GIL that opens at this moment gets it the
/// next time.
pub fn name_known_gils() {
    let _registry = registry_lock::lock();
    for stored in &STORED_NAMES {
        let id = stored.interpreter_id.load(Relaxed);
        if id != -1 {
            give_all(id, stored.name.get(&mut [0; NAME_BYTES]));
        }
    }
}

fn give_all(interpreter_id: i64, name: &[u8]) {
    gils::own()
        .iter()
        .filter(|gil| gil.interpreter_id.load(Relaxed) == interpreter_id)
        .filter(|gil| matches!(gil.life.load(Acquire), life::KNOWN | life::OPEN))
        .for_each(|gil| give(gil, name));
}

fn give(gil: &'static Gil, name: &[u8]) {
    gil.name.set(name);
    // With acquire: the opening stored the counters before, in another thread.
    if gil.life.load(Acquire) == life::OPEN {
        gil.counters().name.set(name);
        trace::name_gil(gil.serial.load(Relaxed), gil.interpreter_id.load(Relaxed), &gil.name);
    }
}

/// Forgets the names of interpreters that ended. `list` tells which exist. Meanwhile no name is
/// stored, so that the interpreter of each stored name was made before the list.
pub fn forget_unlisted(list: impl FnOnce() -> Vec<(usize, i64)>) {
    let _registry = registry_lock::lock();
    let existing = list();
    for stored in &STORED_NAMES {
        let id = stored.interpreter_id.load(Relaxed);
        if id != -1 && !existing.iter().any(|(_, existing_id)| *existing_id == id) {
            stored.interpreter_id.store(-1, Relaxed);
        }
    }
}
