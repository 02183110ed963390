//! The interpreters that exist, and the GILs that they own.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::interpreter_list::NewestInterpreter;
use super::{gils, names};
use crate::counters::ProcessCounters;
use crate::foreign_memory;
use crate::gil::addresses::Addresses;

/// `PyInterpreterState_Head` and `PyInterpreterState_GetID`; 0 before the first install. Writer:
/// install, before it patches the slot of `pthread_cond_init`. Reader: the hook of that function.
static NEWEST_INTERPRETER: AtomicUsize = AtomicUsize::new(0);
static INTERPRETER_ID: AtomicUsize = AtomicUsize::new(0);

/// CPython's `PyInterpreterState_GetID`.
pub type InterpreterId = unsafe extern "C" fn(*mut c_void) -> i64;

/// Whether the interpreter at an address has a GIL of its own. CPython initializes `locked` to -1,
/// and creates only own GILs.
pub fn owns_gil(interpreter: usize) -> bool {
    locked_of(interpreter).is_some_and(|locked| locked >= 0)
}

fn locked_of(interpreter: usize) -> Option<i32> {
    foreign_memory::get(Addresses::in_interpreter(interpreter)?.locked())
}

pub fn know_functions(newest_interpreter: NewestInterpreter, interpreter_id: InterpreterId) {
    NEWEST_INTERPRETER.store(newest_interpreter as usize, Relaxed);
    INTERPRETER_ID.store(interpreter_id as usize, Relaxed);
}

/// The ID of the interpreter at an address if it is the newest one. Only for the thread that makes
/// an interpreter, without a GIL's mutex.
pub fn id_if_newest(interpreter: usize) -> Option<i64> {
    let newest = NEWEST_INTERPRETER.load(Relaxed);
    let get_id = INTERPRETER_ID.load(Relaxed);
    if newest == 0 || get_id == 0 {
        return None;
    }
    // SAFETY: `know_functions` stored functions of these types. Each reads one field, without a
    // lock, a thread state or an allocation. The newest interpreter of CPython's own list exists,
    // because the caller is making it.
    unsafe {
        let newest: NewestInterpreter = std::mem::transmute(newest);
        let get_id: InterpreterId = std::mem::transmute(get_id);
        let newest = newest();
        (newest as usize == interpreter).then(|| get_id(newest))
    }
}

/// Compares the table of GILs with the interpreters that `list` tells, by address and ID. Closes
/// the own GILs of interpreters that ended, and adds those that existed before the meter. The
/// caller holds the main GIL.
pub fn match_interpreters(
    list: impl FnOnce() -> Vec<(usize, i64)>,
    process: &'static ProcessCounters,
) {
    let Some(_) = Addresses::in_interpreter(0) else { return };
    let mut existing = gils::close_unlisted(list, process);
    // The oldest first: if there is no room for all, the newest are not measured.
    existing.sort_unstable_by_key(|(_, id)| *id);
    for (interpreter, id) in existing.into_iter().filter(|(_, id)| *id != 0) {
        let may_own_gil = locked_of(interpreter).is_none_or(|locked| locked >= 0);
        if let Some(addresses) = Addresses::in_interpreter(interpreter).filter(|_| may_own_gil) {
            gils::add(addresses, id);
        }
    }
    names::name_known_gils();
}
