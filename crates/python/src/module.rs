//! The definition of an extension module (PEP 489).

use crate::c_api::*;
use crate::function::{Methods, execution};
use crate::object::{Object, PyResult, Raised};
use crate::panics::report_in_one_line;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::ptr;

const SLOT_COUNT: usize = 2 + cfg!(Py_3_12) as usize + cfg!(Py_3_13) as usize;

/// The module declares that it runs in interpreters with a GIL of their own, and without a GIL.
pub struct Slots([PyModuleDef_Slot; SLOT_COUNT]);

// SAFETY: constant data, which CPython only reads.
unsafe impl Sync for Slots {}

impl Slots {
    /// `execute` fills a new module.
    pub const fn new<F>(execute: F) -> Self
    where
        F: for<'py> Fn(&Object<'py>) -> PyResult<()> + Copy,
    {
        Self([
            PyModuleDef_Slot { slot: Py_mod_exec, value: execution(execute) as *mut c_void },
            #[cfg(Py_3_12)]
            PyModuleDef_Slot {
                slot: Py_mod_multiple_interpreters,
                value: Py_MOD_PER_INTERPRETER_GIL_SUPPORTED,
            },
            #[cfg(Py_3_13)]
            PyModuleDef_Slot { slot: Py_mod_gil, value: Py_MOD_GIL_NOT_USED },
            PyModuleDef_Slot { slot: 0, value: ptr::null_mut() },
        ])
    }
}

/// CPython writes `m_base` of a definition, hence the cell.
pub struct Definition(UnsafeCell<PyModuleDef>);

// SAFETY: only PyModuleDef_Init writes to the definition, and CPython serializes its calls.
unsafe impl Sync for Definition {}

impl Definition {
    pub const fn new(name: &'static CStr, doc: &'static CStr, slots: &'static Slots) -> Self {
        Self(UnsafeCell::new(PyModuleDef {
            m_base: PyModuleDef_HEAD_INIT,
            m_name: name.as_ptr(),
            m_doc: doc.as_ptr(),
            m_size: 0,
            m_methods: ptr::null_mut(),
            m_slots: slots.0.as_ptr().cast_mut(),
            m_traverse: None,
            m_clear: None,
            m_free: None,
        }))
    }

    /// The result of a module's `PyInit_` function.
    ///
    /// # Safety
    /// A thread state is attached.
    pub unsafe fn initialize(&'static self) -> *mut PyObject {
        report_in_one_line();
        // SAFETY: the definition is static and valid; CPython owns its `m_base`.
        unsafe { PyModuleDef_Init(self.0.get()) }
    }
}

pub fn add_functions<const N: usize>(
    module: &Object,
    functions: &'static Methods<N>,
) -> PyResult<()> {
    // SAFETY: a static table with an end; SystemError unless `module` is one.
    match unsafe { PyModule_AddFunctions(module.as_ptr(), functions.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Raised),
    }
}
