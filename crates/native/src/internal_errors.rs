//! `_native.internal_error*`: panics of Headway, which end neither the thread nor the program.

use headway_python::attached::Attached;
use headway_python::convert::{ToPython, arguments};
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use headway_python::panics;

pub static FUNCTIONS: Methods<3> = Methods::new([
    function(
        c"internal_errors",
        internal_errors,
        c"internal_errors() -> int\n\
          \n\
          Returns the number of panics in this process: in calls, which raise SystemError, and in\n\
          threads of Headway's own.",
    ),
    function(
        c"internal_error",
        internal_error,
        c"internal_error(detached: bool)\n\
          \n\
          Panics, with the GIL or detached from it. For tests of what follows.",
    ),
    END,
]);

fn internal_errors<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    panics::count().to_python(py)
}

fn internal_error<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (detached,): (bool,) = arguments(py, "internal_error", given)?;
    if detached {
        py.detach(|| panic!("requested, detached"));
    }
    panic!("requested")
}
