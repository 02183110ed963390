//! The interpreters of the process, for the meter.

use headway_python::attached::Attached;
use headway_python::c_api::*;
use headway_python::convert::FromPython;
use headway_python::exception::clear_raised;
use headway_python::object::{Object, Raised};

pub fn all_interpreters(_: Attached) -> impl Iterator<Item = *mut PyInterpreterState> {
    // SAFETY: a thread state is attached. CPython's own `list_all` walks the list this way.
    let first = unsafe { PyInterpreterState_Head() };
    std::iter::successors((!first.is_null()).then_some(first), |interpreter| {
        // SAFETY: a thread state is attached, and the interpreter is in CPython's list.
        let next = unsafe { PyInterpreterState_Next(*interpreter) };
        (!next.is_null()).then_some(next)
    })
}

/// Returns the address and the id of each interpreter.
pub fn interpreters_and_ids(py: Attached) -> Vec<(usize, i64)> {
    // SAFETY: the interpreter is in CPython's list.
    let id = |interpreter| unsafe { PyInterpreterState_GetID(interpreter) };
    all_interpreters(py).map(|interpreter| (interpreter as usize, id(interpreter))).collect()
}

/// Returns whether the GIL is enabled, which is always the case except in free-threaded builds. The
/// only public interface for it is `sys._is_gil_enabled`.
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

/// Records in the meter's ledger whether the GIL is enabled, and the switch interval. Only the main
/// interpreter knows the interval of the main GIL, because each interpreter with a GIL of its own
/// has its own switch interval.
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

/// Passes the list of interpreters to the meter after one has ended. Outside the main interpreter,
/// it has no effect and returns false.
pub fn match_interpreters(py: Attached) -> bool {
    let is_main = py.is_main_interpreter();
    if is_main {
        headway_gil::match_interpreters(&interpreters_and_ids(py));
    }
    is_main
}
