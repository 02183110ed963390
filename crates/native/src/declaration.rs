//! `_native.declares_no_gil`: an extension module's declaration about the GIL (PEP 703), for
//! `headway.server`. CPython does not export it: with `-X gil=0` it ignores the declaration and
//! gives no warning either.

use headway_python::attached::Attached;
use headway_python::c_api::*;
use headway_python::convert::{ToPython, arguments};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};

/// Constants of `moduleobject.h` since 3.13; `pyo3_ffi` has them for some versions only.
const SLOT_OF_GIL: i32 = 4;
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
#[repr(C)]
struct Fields {
    dict: *mut PyObject,
    definition: *mut PyModuleDef,
    state: *mut libc::c_void,
    weak_references: *mut PyObject,
    name: *mut PyObject,
    gil: usize,
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

/// Returns the field of the module in which CPython stores the declaration of a module with
/// single-phase initialization.
///
/// # Safety
/// `module` is a live module.
unsafe fn field_of(module: *mut PyObject) -> Option<bool> {
    if !cfg!(Py_GIL_DISABLED) {
        return None;
    }
    // SAFETY: a module is at least as large up to 3.14, and larger since. The field is used only if
    // its neighbours have the values that the C API returns.
    unsafe {
        let fields = module.add(1).cast::<Fields>();
        let is_known = (*fields).dict == PyModule_GetDict(module)
            && (*fields).definition == PyModule_GetDef(module)
            && (*fields).state == PyModule_GetState(module);
        match (*fields).gil {
            gil @ (0 | NOT_USED) if is_known => Some(gil == NOT_USED),
            _ => None,
        }
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
            if (*slot).slot == SLOT_OF_GIL {
                return Some((*slot).value as usize == NOT_USED);
            }
            slot = slot.add(1);
        }
        Some(false)
    }
}
