//! The process's interpreters, as the meter sees them.

use headway_python::attached::Attached;
use headway_python::convert::FromPython;
use headway_python::exception::clear_raised;
use headway_python::object::{Object, Raised};
use pyo3_ffi::*;

pub fn all_interpreters(_: Attached) -> impl Iterator<Item = *mut PyInterpreterState> {
    // SAFETY: a thread state is attached. CPython's own `list_all` walks the list this way.
    let first = unsafe { PyInterpreterState_Head() };
    std::iter::successors((!first.is_null()).then_some(first), |interpreter| {
        // SAFETY: a thread state is attached, and the interpreter is in the list.
        let next = unsafe { PyInterpreterState_Next(*interpreter) };
        (!next.is_null()).then_some(next)
    })
}

/// The address and the number of each interpreter.
pub fn interpreters_and_ids(py: Attached) -> Vec<(usize, i64)> {
    // SAFETY: the interpreter is in CPython's list.
    let id = |interpreter| unsafe { PyInterpreterState_GetID(interpreter) };
    all_interpreters(py).map(|interpreter| (interpreter as usize, id(interpreter))).collect()
}

/// Whether the GIL is on; always, except in free-threaded builds. `sys._is_gil_enabled` is the only
/// public way to ask.
pub fn gil_enabled(py: Attached) -> bool {
    if !cfg!(Py_GIL_DISABLED) {
        return true;
    }
    let Some(function) = Object::from_sys(py, c"_is_gil_enabled") else { return true };
    function.call([]).and_then(|answer| answer.is_true()).unwrap_or_else(|Raised| {
        clear_raised(py);
        true
    })
}

/// Records in the meter's ledger what only the main interpreter knows: each interpreter with a GIL
/// of its own has a switch interval of its own.
pub fn note_main_interpreter(py: Attached) {
    if !py.is_main_interpreter() {
        return;
    }
    let Some(function) = Object::from_sys(py, c"getswitchinterval") else { return };
    match function.call([]).and_then(|interval| f64::from_python(&interval)) {
        Ok(interval_s) => {
            headway_gil::note_interpreter(gil_enabled(py), (interval_s * 1e6).round() as u64);
        }
        Err(Raised) => clear_raised(py),
    }
}

/// Tells the meter which interpreters exist, after one has ended. False, with nothing done, outside
/// the main interpreter.
pub fn match_interpreters(py: Attached) -> bool {
    let is_main = py.is_main_interpreter();
    if is_main {
        headway_gil::match_interpreters(&interpreters_and_ids(py));
    }
    is_main
}
