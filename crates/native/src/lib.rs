//! `headway._native`: the extension module that joins the meter and the server to Python.
//!
//! It has no state beyond the module object, so that one shared object can be imported by the main
//! interpreter, by sub-interpreters with a GIL of their own and by free-threaded builds.
//!
//! - [`gil`], [`report`], [`interpreters`], [`host`]: the meter.
//! - [`forks`]: no thread of Headway runs during a fork.
//! - [`gc_watch`]: passes of the garbage collector.
//! - [`last_report`]: a report for a process that a signal ends; [`report_sources`]: the modules of
//!   the report for one that cannot read files any more.
//! - [`profile`], [`frame_layout`]: which code holds a GIL while others wait.
//! - [`ledger`]: ledgers that Python code has opened. [`filters`]: filters of system calls.
//! - [`stacks`]: Python stacks of other threads.
//! - [`telemetry`]: datagrams, records, and the reporter.
//! - [`server`]: the WSGI server.
//! - [`declaration`], [`process`], [`toml_text`]: extension modules, prctl(2), configuration files.
//! - [`attach`]: the way of a debugger into a process that runs already.
//! - [`internal_errors`]: panics, counted.

use headway_python::c_api::PyObject;
use headway_python::module::{Definition, Slots, add_functions};
use headway_python::object::{Object, PyResult};

mod attach;
mod declaration;
mod filters;
mod forks;
mod frame_layout;
mod gc_watch;
mod gil;
mod host;
mod internal_errors;
mod interpreters;
mod last_report;
mod ledger;
mod process;
mod profile;
mod report;
mod report_sources;
mod server;
mod stacks;
mod telemetry;
mod toml_text;

static SLOTS: Slots = Slots::new(execute);

static DEFINITION: Definition = Definition::new(
    c"headway._native",
    c"Headway's native parts; use headway.gil and headway.server instead.",
    &SLOTS,
);

fn execute(module: &Object) -> PyResult<()> {
    headway_gil::finalization::know(host::is_finalizing);
    interpreters::know_list();
    add_functions(module, &declaration::FUNCTIONS)?;
    add_functions(module, &forks::FUNCTIONS)?;
    add_functions(module, &gc_watch::FUNCTIONS)?;
    add_functions(module, &gil::FUNCTIONS)?;
    add_functions(module, &internal_errors::FUNCTIONS)?;
    add_functions(module, &last_report::FUNCTIONS)?;
    add_functions(module, &process::FUNCTIONS)?;
    add_functions(module, &profile::FUNCTIONS)?;
    add_functions(module, &report_sources::FUNCTIONS)?;
    add_functions(module, &server::FUNCTIONS)?;
    add_functions(module, &server::interpreters::FUNCTIONS)?;
    add_functions(module, &stacks::FUNCTIONS)?;
    add_functions(module, &telemetry::FUNCTIONS)?;
    add_functions(module, &telemetry::reporting::FUNCTIONS)?;
    add_functions(module, &toml_text::FUNCTIONS)?;
    // The version of the Python package. Its metadata would have to be searched for and parsed in
    // each interpreter.
    let software = concat!("headway/", env!("CARGO_PKG_VERSION"));
    module.set_attribute(c"SERVER_SOFTWARE", &Object::from_text(module.py(), software)?)
}

/// The entry point that `import headway._native` looks up.
///
/// # Safety
/// CPython's import machinery calls it with a thread state attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__native() -> *mut PyObject {
    // SAFETY: the caller's guarantee.
    unsafe { DEFINITION.initialize() }
}
