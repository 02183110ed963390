//! `headway_lab._native`: the extension module that joins the laboratory's native parts to Python.
//! Like `headway._native` it has no state beyond the module object.
//!
//! - [`simulation`]: GILs in virtual time.
//! - [`refcounts`]: the cost of reference counting.

use headway_python::c_api::PyObject;
use headway_python::module::{Definition, Slots, add_functions};
use headway_python::object::{Object, PyResult};

mod refcounts;
mod simulation;

static SLOTS: Slots = Slots::new(execute);

static DEFINITION: Definition =
    Definition::new(c"headway_lab._native", c"The native parts of Headway's laboratory.", &SLOTS);

fn execute(module: &Object) -> PyResult<()> {
    add_functions(module, &refcounts::FUNCTIONS)?;
    add_functions(module, &simulation::FUNCTIONS)
}

/// The entry point that `import headway_lab._native` looks up.
///
/// # Safety
/// CPython's import machinery calls it with a thread state attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__native() -> *mut PyObject {
    // SAFETY: the caller's guarantee.
    unsafe { DEFINITION.initialize() }
}
