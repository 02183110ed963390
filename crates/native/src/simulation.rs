//! `_native.simulate`: threads and their GILs in virtual time. Scenarios and outcomes are JSON; see
//! `headway.simulate.scenario`.

use headway_sched::simulation::{Scenario, Simulation};
use headway_server::wsgi::object::{raise, without_gil};
use pyo3_ffi::*;
use std::ptr;

use crate::{Methods, method};

static METHODS: Methods<2> = Methods([
    method(
        c"simulate",
        simulate,
        c"simulate(scenario) -> str\nRuns a scenario, and tells the outcome; both are JSON. Raises\n\
          ValueError for a scenario that cannot be, with the place and the reason. The GIL is dropped\n\
          meanwhile.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn simulate(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut text = ptr::null_mut();
    // SAFETY: the format matches the one place that follows it, and CPython checks that it is a str,
    // whose UTF-8 form lives as long as `arguments`, so through the time without the GIL too.
    unsafe {
        if PyArg_ParseTuple(arguments, c"U:simulate".as_ptr(), &raw mut text) == 0 {
            return ptr::null_mut();
        }
        let mut length = 0;
        let utf8 = PyUnicode_AsUTF8AndSize(text, &mut length);
        if utf8.is_null() {
            return ptr::null_mut();
        }
        let bytes = std::slice::from_raw_parts(utf8.cast::<u8>(), length as usize);
        match without_gil(|| outcome(bytes)) {
            Ok(told) => PyUnicode_FromStringAndSize(told.as_ptr().cast(), told.len() as Py_ssize_t),
            Err(why) => {
                raise(PyExc_ValueError, &why);
                ptr::null_mut()
            }
        }
    }
}

fn outcome(scenario: &[u8]) -> Result<String, String> {
    let scenario: Scenario = serde_json::from_slice(scenario).map_err(|error| error.to_string())?;
    let outcome = Simulation::new(scenario)?.run();
    serde_json::to_string(&outcome).map_err(|error| error.to_string())
}
