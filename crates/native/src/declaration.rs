//! `_native.declares_no_gil`: an extension module's declaration about the GIL (PEP 703), for
//! `headway.server`. CPython does not export it: with `-X gil=0` it ignores the declaration and
//! gives no warning either.

use headway_python::attached::Attached;
use headway_python::c_api::*;
use headway_python::convert::{ToPython, arguments};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use std::ffi::c_void;

/// The numbers of `Py_mod_gil`: in modules compiled for 3.13 and 3.14, and for 3.15.
const SLOTS_OF_GIL: [i32; 2] = [4, 87];
/// `Py_MOD_GIL_NOT_USED`.
const NOT_USED: usize = 1;

pub static FUNCTIONS: Methods<2> = Methods::new([
    function(
        c"declares_no_gil",
        declares_no_gil,
        c"declares_no_gil(module) -> bool | None\n\
          \n\
          Whether the extension module declares that it can run without a GIL; None if that is\n\
          not known.",
    ),
    END,
]);

/// The fields behind the head of a `PyModuleObject` in the free-threaded builds of 3.13 and 3.14.
#[cfg(not(Py_3_15))]
#[repr(C)]
struct Fields {
    dict: *mut PyObject,
    definition: *mut PyModuleDef,
    state: *mut c_void,
    weak_references: *mut PyObject,
    name: *mut PyObject,
    gil: usize,
}

#[cfg(not(Py_3_15))]
impl Fields {
    fn definition(&self) -> *mut PyModuleDef {
        self.definition
    }

    fn needs_gil(&self) -> Option<bool> {
        matches!(self.gil, 0 | NOT_USED).then_some(self.gil != NOT_USED)
    }
}

/// The same in those of 3.15.
#[cfg(Py_3_15)]
#[repr(C)]
struct Fields {
    dict: *mut PyObject,
    state: *mut c_void,
    weak_references: *mut PyObject,
    name: *mut PyObject,
    token_is_definition: u8,
    needs_gil: u8,
    state_size: Py_ssize_t,
    state_functions: [*mut c_void; 3],
    token: *mut c_void,
}

#[cfg(Py_3_15)]
impl Fields {
    fn definition(&self) -> *mut PyModuleDef {
        if self.token_is_definition == 1 { self.token.cast() } else { std::ptr::null_mut() }
    }

    fn needs_gil(&self) -> Option<bool> {
        matches!(self.needs_gil, 0 | 1).then_some(self.needs_gil == 1)
    }
}

fn declares_no_gil<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (module,): (&Object,) = arguments(py, "declares_no_gil", given)?;
    let module = module.as_ptr();
    // SAFETY: a live object, used as a module only if it is one.
    let declared = unsafe {
        if PyModule_Check(module) == 0 {
            return Err(Exception::TypeError.raise(py, "declares_no_gil() takes a module"));
        }
        field_of(module).or_else(|| slot_of(module))
    };
    declared.to_python(py)
}

/// Returns the field of the module in which a free-threaded CPython stores the declaration. A
/// module with single-phase initialization, or without a definition (PEP 793), has it nowhere else.
///
/// # Safety
/// `module` is a live module.
unsafe fn field_of(module: *mut PyObject) -> Option<bool> {
    if !cfg!(Py_GIL_DISABLED) {
        return None;
    }
    // SAFETY: a module has these fields in the CPythons named at `Fields`. The field is used only
    // if the others have the values that the C API returns.
    unsafe {
        let fields = &*module.add(1).cast::<Fields>();
        let is_known = fields.dict == PyModule_GetDict(module)
            && fields.definition() == PyModule_GetDef(module)
            && fields.state == PyModule_GetState(module);
        fields.needs_gil().filter(|_| is_known).map(|needs_gil| !needs_gil)
    }
}

/// Returns the declaration in the module's definition, for modules with multi-phase initialization,
/// and `None` for all others.
///
/// # Safety
/// `module` is a live module.
unsafe fn slot_of(module: *mut PyObject) -> Option<bool> {
    // SAFETY: a definition outlives its modules, and its slots end with a zeroed one.
    unsafe {
        let definition = PyModule_GetDef(module);
        if definition.is_null() || (*definition).m_slots.is_null() {
            return None;
        }
        let mut slot = (*definition).m_slots;
        while (*slot).slot != 0 {
            if SLOTS_OF_GIL.contains(&(*slot).slot) {
                return Some((*slot).value as usize == NOT_USED);
            }
            slot = slot.add(1);
        }
        Some(false)
    }
}
