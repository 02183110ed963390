//! The meter's functions of the module. `headway.gil` wraps them; times are nanoseconds here.
//!
//! Every function is called with a thread state attached. Errors of the meter become
//! `RuntimeError`; `headway.gil` turns them into its own documented exceptions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use headway_gil::histogram::Distribution;
use headway_gil::{GilRow, Host, Place, Snapshot, ThreadRow};
use pyo3_ffi::*;

use crate::Methods;

static METHODS: Methods<9> = Methods([
    method(c"gil_install", install, c"gil_install(ledger: bytes | None, run: int | None)"),
    method(c"gil_uninstall", uninstall, c"gil_uninstall()"),
    method(c"gil_installed", installed, c"gil_installed() -> bool"),
    method(c"gil_snapshot", snapshot, c"gil_snapshot() -> dict | None"),
    method(c"gil_read_ledger", read_ledger, c"gil_read_ledger(path: bytes) -> dict"),
    method(c"gil_name_thread", name_thread, c"gil_name_thread(native_id: int, name: bytes)"),
    method(c"gil_interpreters", interpreters, c"gil_interpreters() -> list[int]"),
    method(c"gil_run", run_identity, c"gil_run() -> int | None"),
    PyMethodDef::zeroed(),
]);

const fn method(name: &'static CStr, function: PyCFunction, doc: &'static CStr) -> PyMethodDef {
    PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunction: function },
        ml_flags: METH_VARARGS,
        ml_doc: doc.as_ptr(),
    }
}

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

fn none() -> *mut PyObject {
    // SAFETY: a new reference to None, which always exists.
    unsafe {
        let none = Py_None();
        Py_IncRef(none);
        none
    }
}

fn raise(message: &str) -> *mut PyObject {
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: the exception type is static, the message a C string.
    unsafe { PyErr_SetString(PyExc_RuntimeError, message.as_ptr()) };
    ptr::null_mut()
}

unsafe extern "C" fn install(_module: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut ledger: *mut PyObject = ptr::null_mut();
    let mut run: *mut PyObject = ptr::null_mut();
    // SAFETY: `O` stores borrowed references; PyBytes_AsString checks for bytes, and its C string
    // lives as long as the argument.
    let place = unsafe {
        if PyArg_ParseTuple(arguments, c"OO:gil_install".as_ptr(), &mut ledger, &mut run) == 0 {
            return ptr::null_mut();
        }
        if ledger == Py_None() {
            Place::Memory
        } else {
            let path = PyBytes_AsString(ledger);
            if path.is_null() {
                return ptr::null_mut();
            }
            match run == Py_None() {
                true => Place::File(CStr::from_ptr(path).into()),
                false => Place::Join(CStr::from_ptr(path).into(), PyLong_AsUnsignedLongLong(run)),
            }
        }
    };
    // SAFETY: a thread state is attached.
    unsafe {
        if !PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        if PyInterpreterState_Get() != PyInterpreterState_Main() {
            return raise("it is installed from the main interpreter only");
        }
    }
    match headway_gil::install(&host(), place) {
        Ok(()) => {
            note();
            none()
        }
        Err(refusal) => raise(&refusal.to_string()),
    }
}

fn host() -> Host {
    // SAFETY: a thread state is attached, so versions and interpreters can be asked for; the list of
    // interpreters is walked as CPython's own `list_all` does.
    unsafe {
        let main = PyInterpreterState_Main();
        let version = CStr::from_ptr(Py_GetVersion()).to_string_lossy();
        Host {
            anchor: anchor(),
            gil_enabled: gil_enabled(),
            main_interpreter: main as usize,
            gil_in_interpreter: cfg!(Py_3_12),
            interpreters: interpreters_and_ids(),
            interpreter_id: get_interpreter_id,
            contend,
            python: version.split_whitespace().next().unwrap_or_default().to_owned(),
        }
    }
}

/// The true address of a function beside `take_gil`: a function pointer taken here could be a
/// trampoline of the executable.
fn anchor() -> *const c_void {
    // SAFETY: a C string; the symbol is exported by every CPython.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyEval_RestoreThread".as_ptr()) }
}

fn all_interpreters() -> impl Iterator<Item = *mut PyInterpreterState> {
    // SAFETY: called with a thread state attached; see `host`.
    let first = unsafe { PyInterpreterState_Head() };
    std::iter::successors((!first.is_null()).then_some(first), |interpreter| {
        // SAFETY: as above.
        let next = unsafe { PyInterpreterState_Next(*interpreter) };
        (!next.is_null()).then_some(next)
    })
}

fn interpreters_and_ids() -> Vec<(usize, i64)> {
    // SAFETY: as above.
    let id = |interpreter| unsafe { PyInterpreterState_GetID(interpreter) };
    all_interpreters().map(|interpreter| (interpreter as usize, id(interpreter))).collect()
}

unsafe extern "C" fn get_interpreter_id(interpreter: *mut c_void) -> i64 {
    // SAFETY: the engine passes an interpreter that exists.
    unsafe { PyInterpreterState_GetID(interpreter.cast()) }
}

/// Whether the GIL is on; always, but in free-threaded builds. Asks `sys._is_gil_enabled`, the only
/// public way.
fn gil_enabled() -> bool {
    #[cfg(not(Py_GIL_DISABLED))]
    return true;
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: a thread state is attached; references are dropped as they are made.
    unsafe {
        let function = PySys_GetObject(c"_is_gil_enabled".as_ptr());
        if function.is_null() {
            return true;
        }
        let answer = PyObject_CallNoArgs(function);
        if answer.is_null() {
            PyErr_Clear();
            return true;
        }
        let enabled = PyObject_IsTrue(answer) == 1;
        Py_DecRef(answer);
        enabled
    }
}

/// The probe of `headway_gil::Host::contend`: a thread of our own takes the main GIL once, while we
/// hold it.
fn contend() -> bool {
    const PATIENCE: Duration = Duration::from_secs(10);
    // SAFETY: a thread state is attached. The new thread makes a state of its own, takes the GIL, and
    // deletes its state with the GIL, which drops it.
    unsafe {
        let interpreter = PyInterpreterState_Get() as usize;
        let probe = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let state = PyThreadState_New(interpreter as *mut PyInterpreterState);
            headway_gil::this_thread_is_the_probe();
            PyEval_RestoreThread(state);
            PyThreadState_Clear(state);
            PyThreadState_DeleteCurrent();
        });
        let Ok(probe) = probe else { return false };
        let began = Instant::now();
        while !headway_gil::probe_waits() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
        let state = PyEval_SaveThread();
        let joined = probe.join().is_ok();
        PyEval_RestoreThread(state);
        joined && headway_gil::probe_waits()
    }
}

unsafe extern "C" fn uninstall(_module: *mut PyObject, _arguments: *mut PyObject) -> *mut PyObject {
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

/// Notes in the ledger what only the interpreter knows.
fn note() {
    // SAFETY: a thread state is attached; the reference is dropped.
    unsafe {
        let function = PySys_GetObject(c"getswitchinterval".as_ptr());
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
        headway_gil::match_interpreters(&interpreters_and_ids());
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

/// A new list of what `object` makes of each item; null, with an exception, if one is null.
fn list<T>(
    items: impl IntoIterator<Item = T>,
    object: impl Fn(T) -> *mut PyObject,
) -> *mut PyObject {
    // SAFETY: a thread state is attached; each reference has one owner.
    unsafe {
        let list = PyList_New(0);
        for item in items {
            let object = object(item);
            if list.is_null() || object.is_null() || PyList_Append(list, object) < 0 {
                Py_DecRef(object);
                Py_DecRef(list);
                return ptr::null_mut();
            }
            Py_DecRef(object);
        }
        list
    }
}

fn optional(number: Option<u64>) -> *mut PyObject {
    // SAFETY: a thread state is attached.
    number.map_or_else(none, |number| unsafe { PyLong_FromUnsignedLongLong(number) })
}

fn string(text: &str) -> *mut PyObject {
    // SAFETY: the pointer and length describe UTF-8 text.
    unsafe { PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as Py_ssize_t) }
}

fn boolean(value: bool) -> *mut PyObject {
    // SAFETY: a thread state is attached.
    unsafe { PyBool_FromLong(value.into()) }
}

// In the formats below `N` takes over a new reference (null passes an error on), `K` is a u64, `I` a u32,
// `i` an int.

fn process_dict(snapshot: &Snapshot) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:i,s:N,s:N,s:N,s:K,s:K,s:N,s:N,s:K,s:N,s:I}".as_ptr(),
            c"pid".as_ptr(),
            snapshot.pid as c_int,
            c"alive".as_ptr(),
            boolean(snapshot.alive),
            c"python".as_ptr(),
            string(&snapshot.python),
            c"gil_enabled".as_ptr(),
            boolean(snapshot.gil_enabled),
            c"switch_interval_us".as_ptr(),
            snapshot.switch_interval_us,
            c"wall_ns".as_ptr(),
            snapshot.wall_ns,
            c"gils".as_ptr(),
            list(&snapshot.gils, gil_dict),
            c"threads".as_ptr(),
            list(&snapshot.threads, thread_dict),
            c"unmeasured_events".as_ptr(),
            snapshot.unmeasured_events,
            c"children".as_ptr(),
            list(&snapshot.children, process_dict),
            c"unlisted_children".as_ptr(),
            snapshot.unlisted_children,
        )
    }
}

fn gil_dict(row: &GilRow) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:I,s:N,s:N,s:I,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}".as_ptr(),
            c"id".as_ptr(),
            row.id,
            c"interpreter".as_ptr(),
            optional(row.interpreter.map(|id| id as u64)),
            c"alive".as_ptr(),
            boolean(row.alive),
            c"folded".as_ptr(),
            row.folded,
            c"held_at_open".as_ptr(),
            row.held_at_open,
            c"held_now".as_ptr(),
            row.held_now,
            c"wall_ns".as_ptr(),
            row.wall_ns,
            c"held_ns".as_ptr(),
            row.held_ns,
            c"handoff_ns".as_ptr(),
            row.handoff_ns,
            c"idle_ns".as_ptr(),
            row.idle_ns,
            c"takes".as_ptr(),
            row.takes,
            c"contended_takes".as_ptr(),
            row.contended_takes,
            c"voluntary_drops".as_ptr(),
            row.voluntary_drops,
            c"forced_drops".as_ptr(),
            row.forced_drops,
            c"drop_requests".as_ptr(),
            row.drop_requests,
            c"preemptions".as_ptr(),
            row.preemptions,
            c"anomalies".as_ptr(),
            row.anomalies,
        )
    }
}

fn thread_dict(row: &ThreadRow) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        Py_BuildValue(
            c"{s:I,s:N,s:N,s:N,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N}".as_ptr(),
            c"gil".as_ptr(),
            row.gil,
            c"native_id".as_ptr(),
            optional(row.native_id.map(u64::from)),
            c"name".as_ptr(),
            string(&row.name),
            c"alive".as_ptr(),
            boolean(row.alive),
            c"folded".as_ptr(),
            row.folded,
            c"held_ns".as_ptr(),
            row.held_ns,
            c"takes".as_ptr(),
            row.takes,
            c"contended_takes".as_ptr(),
            row.contended_takes,
            c"voluntary_drops".as_ptr(),
            row.voluntary_drops,
            c"forced_drops".as_ptr(),
            row.forced_drops,
            c"preemptions".as_ptr(),
            row.preemptions,
            c"forced_waits".as_ptr(),
            row.forced_waits,
            c"forced_waited_ns".as_ptr(),
            row.forced_waited_ns,
            c"wait".as_ptr(),
            distribution_dict(&row.wait),
            c"hold".as_ptr(),
            distribution_dict(&row.hold),
        )
    }
}

fn distribution_dict(distribution: &Distribution) -> *mut PyObject {
    // SAFETY: formats and arguments agree, pair by pair.
    unsafe {
        let bucket =
            |(bound_ns, count): &(u64, u64)| Py_BuildValue(c"(KK)".as_ptr(), *bound_ns, *count);
        Py_BuildValue(
            c"{s:K,s:K,s:N,s:N,s:N}".as_ptr(),
            c"count".as_ptr(),
            distribution.count,
            c"sum_ns".as_ptr(),
            distribution.sum_ns,
            c"min_ns".as_ptr(),
            optional(distribution.min_ns),
            c"max_ns".as_ptr(),
            optional(distribution.max_ns),
            c"buckets".as_ptr(),
            list(&distribution.buckets, bucket),
        )
    }
}
