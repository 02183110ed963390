//! The interpreters of the process, for the meter.

#[cfg(Py_3_13)]
use crate::frame_layout::debug_offsets;
use headway_gil::InterpreterList;
use headway_python::attached::Attached;
use headway_python::c_api::*;
use headway_python::convert::FromPython;
use headway_python::exception::clear_raised;
use headway_python::object::{Object, Raised};
use std::ffi::c_void;

/// Makes the list of interpreters known to the meter, where this CPython keeps it.
pub fn know_list() {
    if let Some((next_offset, id_offset)) = offsets() {
        // SAFETY: the main interpreter exists, since a module is being imported.
        let main = unsafe { PyInterpreterState_Main() } as usize;
        let newest = newest_interpreter;
        headway_gil::know_interpreter_list(InterpreterList {
            newest,
            main,
            next_offset,
            id_offset,
        });
    }
}

pub unsafe extern "C" fn newest_interpreter() -> *mut c_void {
    // SAFETY: reads the head of the runtime's list; needs no thread state.
    unsafe { PyInterpreterState_Head().cast() }
}

/// The offsets of `next` and `id` in a `PyInterpreterState`: from `_Py_DebugOffsets` from 3.13 on,
/// from the headers of 3.10 to 3.12.
#[cfg(not(Py_3_13))]
fn offsets() -> Option<(usize, usize)> {
    Some((
        0,
        if cfg!(Py_3_12) {
            8
        } else if cfg!(Py_3_11) {
            48
        } else {
            24
        },
    ))
}

#[cfg(Py_3_13)]
fn offsets() -> Option<(usize, usize)> {
    let stated = debug_offsets()?;
    Some((stated(8)?, stated(7)?))
}

/// Returns the address and the ID of each interpreter, the newest first.
pub fn interpreters_and_ids(py: Attached) -> Vec<(usize, i64)> {
    headway_gil::existing_interpreters().unwrap_or_else(|| listed_by_cpython(py))
}

/// The same by CPython's functions, if its list is elsewhere than expected, or the kernel forbids
/// the process to read its own memory. CPython's own `list_all` walks the list this way too, and
/// follows an interpreter that a thread without the main GIL ends meanwhile.
fn listed_by_cpython(_: Attached) -> Vec<(usize, i64)> {
    let mut found = Vec::new();
    // SAFETY: a thread state is attached, and each interpreter is in CPython's list.
    unsafe {
        let mut interpreter = PyInterpreterState_Head();
        while !interpreter.is_null() {
            found.push((interpreter as usize, PyInterpreterState_GetID(interpreter)));
            interpreter = PyInterpreterState_Next(interpreter);
        }
    }
    found
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
        headway_gil::match_interpreters(|| interpreters_and_ids(py));
    }
    is_main
}
