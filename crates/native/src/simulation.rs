//! `_native.simulate`: threads and their GILs in virtual time. Scenarios and outcomes are JSON; see
//! `headway.simulate.scenario`.

use headway_python::object::{raise, without_gil};
use headway_simulation::{Scenario, Simulation};
use pyo3_ffi::*;
use std::ptr;

use crate::{Methods, method, text_argument};

/// A tenth of a second or so.
const EVENTS_BETWEEN_SIGNALS: u64 = 200_000;

static METHODS: Methods<2> = Methods([
    method(
        c"simulate",
        simulate,
        c"simulate(scenario) -> str\nRuns a scenario, and tells the outcome; both are JSON. Raises\n\
          ValueError for a scenario that cannot be, with the place and the reason. The GIL is dropped\n\
          meanwhile, and signals are handled now and then.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn simulate(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: a call of CPython's, whose arguments outlive it; attached but for the time in `without_gil`.
    unsafe {
        let Some(scenario) = text_argument(arguments, c"U:simulate") else {
            return ptr::null_mut();
        };
        let mut simulation = match simulation(scenario) {
            Ok(simulation) => simulation,
            Err(why) => {
                raise(PyExc_ValueError, &why);
                return ptr::null_mut();
            }
        };
        while !without_gil(|| simulation.go_on(EVENTS_BETWEEN_SIGNALS)) {
            if PyErr_CheckSignals() != 0 {
                return ptr::null_mut();
            }
        }
        match without_gil(|| serde_json::to_string(&simulation.outcome())) {
            Ok(told) => PyUnicode_FromStringAndSize(told.as_ptr().cast(), told.len() as Py_ssize_t),
            Err(why) => {
                raise(PyExc_ValueError, &why.to_string());
                ptr::null_mut()
            }
        }
    }
}

fn simulation(scenario: &str) -> Result<Simulation, String> {
    let scenario: Scenario = serde_json::from_str(scenario).map_err(|error| error.to_string())?;
    Simulation::new(scenario)
}
