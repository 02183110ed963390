//! `headway._native`: the extension module that joins the engine and the server to Python.
//!
//! It holds no state of its own beyond the module object, so that one shared object can be
//! imported by the main interpreter, by own-GIL sub-interpreters and by free-threaded builds:
//! multi-phase initialization (PEP 489), `Py_MOD_PER_INTERPRETER_GIL_SUPPORTED` and
//! `Py_MOD_GIL_NOT_USED` are declared where the interpreter knows them.
//!
//! Each part adds its functions to the module: `declaration` (what extension modules say of
//! themselves), `gc_watch` (passes of the garbage collector), `gil` (the meter), `last_report` (a report
//! for a process that a signal ends), `process` (what a process is to the kernel), `refcounts` (what counting
//! references costs), `server` (the WSGI server), `simulation` (GILs in virtual time), `stacks` (Python stacks without the GIL), `telemetry` (what is sent and kept of all that),
//! `toml_text`
//! (configuration files).

use pyo3_ffi::*;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

mod declaration;
mod gc_watch;
mod gil;
mod host;
mod last_report;
mod process;
mod refcounts;
mod report;
mod server;
mod simulation;
mod stacks;
mod telemetry;
mod toml_text;

/// CPython writes `m_base` of a definition, hence the cell.
struct SharedDef(UnsafeCell<PyModuleDef>);
// SAFETY: only PyModuleDef_Init writes to the definition, which CPython serializes itself;
// everything else in it is constant.
unsafe impl Sync for SharedDef {}

/// A table of functions that ends with a zeroed entry.
struct Methods<const N: usize>([PyMethodDef; N]);
// SAFETY: constant data.
unsafe impl<const N: usize> Sync for Methods<N> {}

/// An entry of such a table, for a function that takes positional arguments.
const fn method(name: &'static CStr, function: PyCFunction, doc: &'static CStr) -> PyMethodDef {
    PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunction: function },
        ml_flags: METH_VARARGS,
        ml_doc: doc.as_ptr(),
    }
}

/// The one str that a function of such a table was called with; `None` with an exception set. `format` is
/// "U:" and the function's name.
///
/// # Safety
/// Attached; `arguments` is the tuple of a call, and the text is used no longer than that lives.
unsafe fn text_argument<'a>(arguments: *mut PyObject, format: &CStr) -> Option<&'a str> {
    let mut text = ptr::null_mut::<PyObject>();
    // SAFETY: the format matches the one place that follows it, and CPython checks that it is a str, whose
    // UTF-8 form lives as long as `arguments`.
    unsafe {
        if PyArg_ParseTuple(arguments, format.as_ptr(), &raw mut text) == 0 {
            return None;
        }
        let mut length = 0;
        let utf8 = PyUnicode_AsUTF8AndSize(text, &mut length);
        if utf8.is_null() {
            return None;
        }
        let bytes = std::slice::from_raw_parts(utf8.cast::<u8>(), length as usize);
        Some(std::str::from_utf8_unchecked(bytes))
    }
}

struct SharedSlots<const N: usize>([PyModuleDef_Slot; N]);
// SAFETY: the slots are constant data.
unsafe impl<const N: usize> Sync for SharedSlots<N> {}

const SLOT_COUNT: usize = 2 + cfg!(Py_3_12) as usize + cfg!(Py_3_13) as usize;

static SLOTS: SharedSlots<SLOT_COUNT> = SharedSlots([
    PyModuleDef_Slot { slot: Py_mod_exec, value: exec_module as *mut c_void },
    #[cfg(Py_3_12)]
    PyModuleDef_Slot {
        slot: Py_mod_multiple_interpreters,
        value: Py_MOD_PER_INTERPRETER_GIL_SUPPORTED,
    },
    #[cfg(Py_3_13)]
    PyModuleDef_Slot { slot: Py_mod_gil, value: Py_MOD_GIL_NOT_USED },
    PyModuleDef_Slot { slot: 0, value: ptr::null_mut() },
]);

static DEFINITION: SharedDef = SharedDef(UnsafeCell::new(PyModuleDef {
    m_base: PyModuleDef_HEAD_INIT,
    m_name: c"headway._native".as_ptr(),
    m_doc: c"Headway's native parts; use headway.gil and headway.server instead.".as_ptr(),
    m_size: 0,
    m_methods: ptr::null_mut(),
    m_slots: SLOTS.0.as_ptr().cast_mut(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
}));

unsafe extern "C" fn exec_module(module: *mut PyObject) -> c_int {
    for methods in [
        declaration::methods(),
        gc_watch::methods(),
        gil::methods(),
        last_report::methods(),
        process::methods(),
        refcounts::methods(),
        server::methods(),
        server::interpreter_methods(),
        simulation::methods(),
        stacks::methods(),
        telemetry::methods(),
        telemetry::reporting::methods(),
        toml_text::methods(),
    ] {
        // SAFETY: `module` is the live module that CPython executes; `methods` is a static
        // table that ends with a zeroed entry.
        if unsafe { PyModule_AddFunctions(module, methods) } < 0 {
            return -1;
        }
    }
    // SAFETY: the live module; names and values end with zero. The version is that of the Python package, whose
    // metadata would have to be searched for and parsed in each interpreter.
    unsafe {
        PyModule_AddStringConstant(module, c"SERVER_SOFTWARE".as_ptr(), SERVER_SOFTWARE.as_ptr())
    }
}

const SERVER_SOFTWARE: &CStr = match CStr::from_bytes_with_nul(
    concat!("headway/", env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(text) => text,
    Err(_) => panic!("a constant with one zero, at its end"),
};

/// The entry point that `import headway._native` looks up.
///
/// # Safety
/// Called by CPython's import machinery with a thread state attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__native() -> *mut PyObject {
    // SAFETY: the definition is static and valid; CPython owns its `m_base`.
    unsafe { PyModuleDef_Init(DEFINITION.0.get()) }
}
