//! What the program calls its GILs: each after the interpreter that owns it.
//!
//! A name may be told before the meter is installed, and outlives its removal, so names are kept here by
//! the interpreter's id, which CPython gives out once; the main GIL's, with the GIL. Nothing here runs in
//! hooks.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::counters::book::{NAME_BYTES, Name};
use crate::counters::mapping::GILS;
use crate::registry::gil::{Gil, life};
use crate::registry::gils;
use crate::registry::threads::Registry;

/// The name of the GIL that one sub-interpreter owns.
struct Kept {
    /// -1 while the entry is free.
    interpreter_id: AtomicI64,
    name: Name,
}

/// Written under the registry lock. A process that names more interpreters than it has books for their
/// GILs goes on without the last names.
static KEPT: [Kept; GILS] =
    [const { Kept { interpreter_id: AtomicI64::new(-1), name: Name::new() } }; GILS];

/// Names the GIL that an interpreter owns, in its book now and in those to come. An interpreter that
/// shares the main GIL owns none, and names none. The caller runs in that interpreter, so that its GIL can
/// neither be opened nor end meanwhile.
pub fn name_gil_of(interpreter_id: i64, name: &[u8]) {
    let _registry = Registry::lock();
    if interpreter_id == 0 {
        return give(gils::main(), name);
    }
    let of = |id| KEPT.iter().find(|kept| kept.interpreter_id.load(Relaxed) == id);
    if let Some(kept) = of(interpreter_id).or_else(|| of(-1)) {
        kept.name.set(name);
        kept.interpreter_id.store(interpreter_id, Relaxed);
    }
    give_all(interpreter_id, name);
}

/// Gives each own GIL that is known by now the name that was told for it. One that is opened at this very
/// moment has it the next time.
pub fn give_kept() {
    let _registry = Registry::lock();
    for kept in &KEPT {
        let id = kept.interpreter_id.load(Relaxed);
        if id != -1 {
            give_all(id, kept.name.get(&mut [0; NAME_BYTES]));
        }
    }
}

fn give_all(interpreter_id: i64, name: &[u8]) {
    gils::all()[1..]
        .iter()
        .filter(|gil| gil.interpreter_id.load(Relaxed) == interpreter_id)
        .filter(|gil| matches!(gil.life.load(Relaxed), life::KNOWN | life::OPEN))
        .for_each(|gil| give(gil, name));
}

fn give(gil: &'static Gil, name: &[u8]) {
    gil.name.set(name);
    if gil.life.load(Relaxed) == life::OPEN {
        gil.book().name.set(name);
        crate::trace::name_gil(gil);
    }
}

/// Forgets the names of interpreters that ended.
pub fn keep_only(existing: &[(usize, i64)]) {
    let _registry = Registry::lock();
    for kept in &KEPT {
        let id = kept.interpreter_id.load(Relaxed);
        if id != -1 && !existing.iter().any(|(_, existing_id)| *existing_id == id) {
            kept.interpreter_id.store(-1, Relaxed);
        }
    }
}
