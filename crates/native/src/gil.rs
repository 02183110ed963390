//! The meter's functions of the module. `headway.gil` wraps them; times are nanoseconds here.
//!
//! Every function is called with a thread state attached. Errors of the meter become
//! `RuntimeError`; `headway.gil` turns them into its own documented exceptions.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use headway_gil::{Location, PolicyName};
use pyo3_ffi::*;

use crate::host::{all_interpreters, gil_enabled, host, interpreters_and_ids};
use crate::report::{list, process_dict, string, trace_dict};
use crate::{Methods, method};

static METHODS: Methods<16> = Methods([
    method(
        c"gil_install",
        install,
        c"gil_install(policy: str | None, kernel_hints: bool, ledger: bytes | int | None,\n\
          run: int | None)\n\
          \n\
          `ledger` is a path, or the descriptor of an empty file.\n\
          Where the meter is installed already, its policy changes and its books stay.",
    ),
    method(c"gil_policies", policies, c"gil_policies() -> list[tuple[str, str]]"),
    method(c"gil_uninstall", uninstall, c"gil_uninstall()"),
    method(c"gil_installed", installed, c"gil_installed() -> bool"),
    method(c"gil_snapshot", snapshot, c"gil_snapshot() -> dict | None"),
    method(c"gil_read_ledger", read_ledger, c"gil_read_ledger(path: bytes) -> dict"),
    method(
        c"gil_begin_trace",
        begin_trace,
        c"gil_begin_trace(events: int, ledger: bytes | None)\n\
          \n\
          Has the last so many events, or a few more, be kept from now on: behind the books in the\n\
          file that they are kept in, or in memory.",
    ),
    method(
        c"gil_read_trace",
        read_trace,
        c"gil_read_trace() -> dict | None\n\
          \n\
          Ends the trace of this process, if there is one.",
    ),
    method(
        c"gil_read_ledger_trace",
        read_ledger_trace,
        c"gil_read_ledger_trace(path: bytes) -> dict | None",
    ),
    method(c"gil_name_thread", name_thread, c"gil_name_thread(native_id: int, name: bytes)"),
    method(
        c"gil_name_gil",
        name_gil,
        c"gil_name_gil(name: bytes)\n\
          \n\
          Names the GIL of the interpreter that calls, if that has a GIL of its own.",
    ),
    method(
        c"gil_set_switch_interval",
        set_switch_interval,
        c"gil_set_switch_interval(ns: int | None)\n\
          \n\
          Gives the calling thread a switch interval of its own, its slice under a policy; None\n\
          takes it back.",
    ),
    method(
        c"gil_match_interpreters",
        match_interpreters,
        c"gil_match_interpreters()\n\
          \n\
          Closes the books of interpreters that ended. Where an interpreter is made by a thread\n\
          that does not hold the main GIL, not meanwhile.",
    ),
    method(c"gil_interpreters", interpreters, c"gil_interpreters() -> list[int]"),
    method(c"gil_run", run_identity, c"gil_run() -> int | None"),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

pub fn none() -> *mut PyObject {
    // SAFETY: a new reference to None, which always exists.
    unsafe {
        let none = Py_None();
        Py_IncRef(none);
        none
    }
}

/// What a policy is for, in one line of `--help`.
const fn purpose(policy: PolicyName) -> &'static str {
    match policy {
        PolicyName::Interval => "CPython's own rule, watched and not changed",
        PolicyName::Priority => "threads that wait for I/O before threads that compute",
        PolicyName::Deadline => "every thread in turn, by deadline",
    }
}

/// The policies that can be installed, each with its purpose. Needs nothing of the meter.
unsafe extern "C" fn policies(_module: *mut PyObject, _arguments: *mut PyObject) -> *mut PyObject {
    list(PolicyName::ALL, |policy| {
        let (name, purpose) = (policy.as_str(), purpose(policy));
        // SAFETY: `N` takes over a new reference.
        unsafe { Py_BuildValue(c"(NN)".as_ptr(), string(name), string(purpose)) }
    })
}

fn raise(message: &str) -> *mut PyObject {
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: the exception type is static, the message a C string.
    unsafe { PyErr_SetString(PyExc_RuntimeError, message.as_ptr()) };
    ptr::null_mut()
}

unsafe extern "C" fn install(_module: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut policy: *const c_char = ptr::null();
    let mut kernel_hints: c_int = 0;
    let mut ledger: *mut PyObject = ptr::null_mut();
    let mut run: *mut PyObject = ptr::null_mut();
    // SAFETY: `p` stores an int, `z` stores null or a C string that lives as long as the argument, `O` a borrowed reference,
    // which PyLong_AsLong reads once it is known to be an int;
    // PyBytes_AsString checks for bytes, and its C string lives as long as the argument.
    let (policy, place) = unsafe {
        if PyArg_ParseTuple(
            arguments,
            c"zpOO:gil_install".as_ptr(),
            &mut policy,
            &mut kernel_hints,
            &mut ledger,
            &mut run,
        ) == 0
        {
            return ptr::null_mut();
        }
        let place = if ledger == Py_None() {
            Location::Memory
        } else if PyLong_Check(ledger) != 0 {
            Location::Descriptor(PyLong_AsLong(ledger) as c_int)
        } else {
            let path = PyBytes_AsString(ledger);
            if path.is_null() {
                return ptr::null_mut();
            }
            match run == Py_None() {
                true => Location::File(CStr::from_ptr(path).into()),
                false => {
                    Location::Join(CStr::from_ptr(path).into(), PyLong_AsUnsignedLongLong(run))
                }
            }
        };
        let policy = (!policy.is_null()).then(|| CStr::from_ptr(policy).to_bytes());
        (policy, place)
    };
    // SAFETY: a thread state is attached.
    if unsafe { !PyErr_Occurred().is_null() } {
        return ptr::null_mut();
    }
    if !in_main_interpreter() {
        return raise("it is installed from the main interpreter only");
    }
    let named = |name: &[u8]| PolicyName::ALL.into_iter().find(|p| p.as_str().as_bytes() == name);
    let policy = match policy.map(|name| named(name).ok_or(name)) {
        Some(Err(_)) => return raise("there is no such policy"),
        Some(Ok(policy)) => Some(policy),
        None => None,
    };
    match headway_gil::install(&host(), place) {
        Ok(()) => {
            if let Some(policy) = policy {
                headway_gil::set_policy(policy, kernel_hints != 0);
            }
            note();
            none()
        }
        Err(refusal) => raise(&refusal.to_string()),
    }
}

/// Whether the calling thread holds the main GIL.
fn in_main_interpreter() -> bool {
    // SAFETY: a thread state is attached.
    unsafe { PyInterpreterState_Get() == PyInterpreterState_Main() }
}

unsafe extern "C" fn uninstall(_module: *mut PyObject, _arguments: *mut PyObject) -> *mut PyObject {
    if !in_main_interpreter() {
        return raise("it is removed from the main interpreter only");
    }
    note();
    match headway_gil::uninstall() {
        Ok(()) => none(),
        Err(refusal) => raise(&refusal.to_string()),
    }
}

unsafe extern "C" fn installed(_module: *mut PyObject, _arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: a thread state is attached.
    unsafe { PyBool_FromLong(headway_gil::is_installed().into()) }
}

/// Notes in the ledger what only the interpreter knows: the main one, since each with a GIL of its own
/// has a switch interval of its own.
pub fn note() {
    if !in_main_interpreter() {
        return;
    }
    // SAFETY: a thread state is attached; the reference is dropped.
    unsafe {
        let function = PySys_GetObject(c"getswitchinterval".as_ptr());
        if function.is_null() {
            return;
        }
        let interval = PyObject_CallNoArgs(function);
        if interval.is_null() {
            return PyErr_Clear();
        }
        let microseconds = (PyFloat_AsDouble(interval) * 1e6).round() as u64;
        Py_DecRef(interval);
        headway_gil::note_interpreter(gil_enabled(), microseconds);
    }
}

unsafe extern "C" fn snapshot(_module: *mut PyObject, _arguments: *mut PyObject) -> *mut PyObject {
    if headway_gil::is_installed() {
        note();
        close_books_of_ended_interpreters();
    }
    // SAFETY: the state that is saved is restored; no Python runs between.
    let snapshot = unsafe {
        let state = PyEval_SaveThread();
        let snapshot = headway_gil::snapshot();
        PyEval_RestoreThread(state);
        snapshot
    };
    snapshot.map_or_else(none, |snapshot| process_dict(&snapshot))
}

unsafe extern "C" fn read_ledger(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let mut path: *const c_char = ptr::null();
    // SAFETY: `y` stores a C string that lives as long as the argument.
    let path = unsafe {
        if PyArg_ParseTuple(arguments, c"y:gil_read_ledger".as_ptr(), &mut path) == 0 {
            return ptr::null_mut();
        }
        CStr::from_ptr(path)
    };
    match headway_gil::read_ledger(path) {
        Ok(snapshot) => process_dict(&snapshot),
        Err(error) => raise(&headway_gil::Refusal::Ledger(error).to_string()),
    }
}

unsafe extern "C" fn begin_trace(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let (mut events, mut ledger): (u64, *mut PyObject) = (0, ptr::null_mut());
    // SAFETY: `K` stores an unsigned long long, `O` a borrowed reference; PyBytes_AsString checks for bytes, and
    // its C string lives as long as the argument.
    let ledger = unsafe {
        let format = c"KO:gil_begin_trace".as_ptr();
        if PyArg_ParseTuple(arguments, format, &mut events, &mut ledger) == 0 {
            return ptr::null_mut();
        }
        match ledger == Py_None() {
            true => None,
            false => match PyBytes_AsString(ledger) {
                path if path.is_null() => return ptr::null_mut(),
                path => Some(CStr::from_ptr(path)),
            },
        }
    };
    if !in_main_interpreter() {
        return raise("a trace is begun from the main interpreter only");
    }
    match headway_gil::begin_trace(events, ledger) {
        Ok(()) => none(),
        Err(errno) => raise(&std::io::Error::from_raw_os_error(errno).to_string()),
    }
}

unsafe extern "C" fn read_trace(
    _module: *mut PyObject,
    _arguments: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the state that is saved is restored; no Python runs between.
    let trace = unsafe {
        let state = PyEval_SaveThread();
        let trace = headway_gil::read_trace();
        PyEval_RestoreThread(state);
        trace
    };
    trace.map_or_else(none, |trace| trace_dict(&trace))
}

unsafe extern "C" fn read_ledger_trace(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let mut path: *const c_char = ptr::null();
    // SAFETY: `y` stores a C string that lives as long as the argument.
    let path = unsafe {
        if PyArg_ParseTuple(arguments, c"y:gil_read_ledger_trace".as_ptr(), &mut path) == 0 {
            return ptr::null_mut();
        }
        CStr::from_ptr(path)
    };
    match headway_gil::read_trace_in_ledger(path) {
        Ok(trace) => trace.map_or_else(none, |trace| trace_dict(&trace)),
        Err(error) => raise(&headway_gil::Refusal::Ledger(error).to_string()),
    }
}

unsafe extern "C" fn name_thread(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let (mut native_id, mut name): (u32, *const c_char) = (0, ptr::null());
    // SAFETY: `I` stores an unsigned int, `y` a C string that lives as long as the argument.
    let name = unsafe {
        let format = c"Iy:gil_name_thread".as_ptr();
        if PyArg_ParseTuple(arguments, format, &mut native_id, &mut name) == 0 {
            return ptr::null_mut();
        }
        CStr::from_ptr(name).to_bytes()
    };
    // SAFETY: no preconditions.
    match unsafe { libc::gettid() } as u32 == native_id {
        true => headway_gil::name_this_thread(name),
        false => headway_gil::name_thread(native_id, name),
    }
    none()
}

unsafe extern "C" fn name_gil(_module: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut name: *const c_char = ptr::null();
    // SAFETY: `y` stores a C string that lives as long as the argument.
    let name = unsafe {
        if PyArg_ParseTuple(arguments, c"y:gil_name_gil".as_ptr(), &mut name) == 0 {
            return ptr::null_mut();
        }
        CStr::from_ptr(name).to_bytes()
    };
    name_gil_of_this_thread(name);
    none()
}

/// Names the GIL that the calling thread holds, unless its interpreter shares that of another. A thread
/// state is attached.
pub fn name_gil_of_this_thread(name: &[u8]) {
    // SAFETY: a thread state is attached, so its interpreter lives.
    let interpreter_id = unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) };
    headway_gil::name_gil_of(interpreter_id, name);
}

unsafe extern "C" fn set_switch_interval(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let mut interval: *mut PyObject = ptr::null_mut();
    // SAFETY: `O` stores a borrowed reference; the number is checked, and an exception set if it is none.
    let interval_ns = unsafe {
        if PyArg_ParseTuple(arguments, c"O:gil_set_switch_interval".as_ptr(), &mut interval) == 0 {
            return ptr::null_mut();
        }
        match interval == Py_None() {
            true => None,
            false => Some(PyLong_AsUnsignedLongLong(interval)),
        }
    };
    // SAFETY: a thread state is attached.
    if unsafe { !PyErr_Occurred().is_null() } {
        return ptr::null_mut();
    }
    headway_gil::set_switch_interval_of_this_thread(interval_ns);
    none()
}

unsafe extern "C" fn match_interpreters(
    _module: *mut PyObject,
    _arguments: *mut PyObject,
) -> *mut PyObject {
    match close_books_of_ended_interpreters() {
        true => none(),
        false => raise("interpreters are matched from the main interpreter only"),
    }
}

/// To be called when an interpreter has ended, in the main interpreter: `false`, with nothing done, elsewhere.
pub fn close_books_of_ended_interpreters() -> bool {
    let main = in_main_interpreter();
    if main {
        headway_gil::match_interpreters(&interpreters_and_ids());
    }
    main
}

unsafe extern "C" fn interpreters(
    _module: *mut PyObject,
    _arguments: *mut PyObject,
) -> *mut PyObject {
    list(all_interpreters(), |interpreter| {
        // SAFETY: a thread state is attached; see `host`.
        unsafe { PyLong_FromLongLong(PyInterpreterState_GetID(interpreter)) }
    })
}

unsafe extern "C" fn run_identity(
    _module: *mut PyObject,
    _arguments: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: a thread state is attached.
    headway_gil::run_identity().map_or_else(none, |run| unsafe { PyLong_FromUnsignedLongLong(run) })
}
