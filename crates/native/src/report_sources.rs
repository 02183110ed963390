//! `_native.report_sources()`: the Python modules of the report, for a process that cannot read
//! files any more. The extension module is mapped since the start of the process.

use headway_python::attached::Attached;
use headway_python::convert::{list, tuple};
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};

/// `$name` is a module below `headway`.
macro_rules! sources {
    ($($name:literal => $path:literal),* $(,)?) => {
        [$((concat!("headway.", $name), include_str!(concat!("../../../python/headway/", $path)))),*]
    };
}

/// Names and sources. A module comes after those that it imports.
static SOURCES: &[(&str, &str)] = &sources![
    "json_file" => "json_file.py",
    "report" => "report/__init__.py",
    "report.columns" => "report/columns.py",
    "report.units" => "report/units.py",
    "report.model" => "report/model.py",
    "report.distributions" => "report/distributions.py",
    "report.processes" => "report/processes.py",
    "report.thresholds" => "report/thresholds.py",
    "report.diagnosis" => "report/diagnosis.py",
    "report.event_loops" => "report/event_loops.py",
    "report.sentence" => "report/sentence.py",
    "report.thread_groups" => "report/thread_groups.py",
    "report.wait_scale" => "report/wait_scale.py",
    "report.terminal" => "report/terminal.py",
    "meter.difference" => "meter/difference.py",
    "meter.snapshot" => "meter/snapshot.py",
];

pub static FUNCTIONS: Methods<2> = Methods::new([
    function(
        c"report_sources",
        report_sources,
        c"report_sources() -> list[tuple[str, str]]\n\
          \n\
          The modules of the report by name, with their sources, each after those that it imports.",
    ),
    END,
]);

fn report_sources<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    list(py, SOURCES, |(name, source)| tuple(py, &[name, source]))
}
