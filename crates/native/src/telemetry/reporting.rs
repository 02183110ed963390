//! The reporter in a capsule. Python starts and stops the reporting thread, which does not use
//! Python.

use headway_python::attached::Attached;
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::{FromPython, ToPython, arguments};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use headway_reporter::gc_pauses::GcPauses;
use headway_reporter::long_holds::{self, LongHolds};
use headway_reporter::{Ending, Gils, Identity, Lines, Reporter, Resources, Settings, TargetError};
use headway_server::limits::SlowRequestReport;
use headway_server::stats::interval::InterpreterName;
use headway_server::stats::report::ServerReport;
use headway_telemetry::datagram::{Datagram, Header};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use super::{refuse, writing};
use crate::interpreters::note_main_interpreter;
use crate::server::server_in;

pub static FUNCTIONS: Methods<8> = Methods::new([
    function(
        c"telemetry_start",
        start,
        c"telemetry_start(path: bytes, interval: float, started: float, identity: dict)\n\
          -> reporter\n\
          \n\
          Reports to the UNIX datagram socket at `path` that this process began at the time\n\
          `started`, and starts the thread that reports every `interval` seconds. Each datagram\n\
          contains `identity`, a dict by field names. Raises OSError, or ValueError for a path\n\
          that is too long.",
    ),
    function(
        c"telemetry_add_server",
        add_server,
        c"telemetry_add_server(reporter, server, threads: int, places)\n\
          \n\
          Adds reports on a server, which was opened with `reported`. `threads`: the number of\n\
          threads that run requests; `places`: for each interpreter slot its application group,\n\
          its name and whether it has a GIL of its own.",
    ),
    function(
        c"telemetry_stopping",
        stopping,
        c"telemetry_stopping(reporter, reason: str, detail: str)\n\
          \n\
          Reports that the process is about to end.",
    ),
    function(
        c"telemetry_stop",
        stop,
        c"telemetry_stop(reporter, reason: str, detail: str, graceful: bool)\n\
          \n\
          Reports the remaining measurements and the end of the process, and ends the thread.",
    ),
    function(
        c"telemetry_pause",
        pause,
        c"telemetry_pause(reporter)\n\
          \n\
          Ends the thread, until telemetry_resume().",
    ),
    function(c"telemetry_resume", resume, c"telemetry_resume(reporter)"),
    function(
        c"telemetry_waker",
        waker,
        c"telemetry_waker(reporter) -> int\n\
          \n\
          The number that report_on_signals() takes to report the end to the recorder.",
    ),
    END,
]);

struct ReporterCapsule(Reporter);

// SAFETY: no other type has this name.
unsafe impl InCapsule for ReporterCapsule {
    const NAME: &'static CStr = c"headway._native.reporter";
}

fn reporter_in<'a>(capsule: &'a Object) -> PyResult<&'a Reporter> {
    capsule::value(capsule).map(|ReporterCapsule(reporter)| reporter)
}

fn start<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (path, interval_s, started_s, fields): (&CStr, f64, f64, &Object) =
        arguments(py, "telemetry_start", given)?;
    let path = OsStr::from_bytes(path.to_bytes()).into();
    let interval = Duration::try_from_secs_f64(interval_s)
        .ok()
        .filter(|interval| !interval.is_zero())
        .ok_or_else(|| Exception::ValueError.raise(py, "an interval is a time above 0"))?;
    let header = Header { kind: 0, pid: 0, seq: 0, stamp_s: 0.0 };
    let fields = writing::datagram(&header, fields)?;
    let fields = Datagram::parse(&fields).map_err(|error| refuse(py, error))?;
    let identity = Identity::of(&fields);
    note_main_interpreter(py);
    let settings = Settings { path, interval, identity, started_s };
    let started = py.detach(|| {
        let sources: Vec<Arc<dyn headway_reporter::Source>> = vec![
            Arc::new(Resources::from_now()),
            Arc::new(Gils::from_now()),
            Arc::new(LongHolds::new(long_holds::THRESHOLD)),
            Arc::new(GcPauses::from_now()),
            Arc::new(Lines::default()),
        ];
        Reporter::start(settings, sources)
    });
    match started {
        Ok(reporter) => capsule::new(py, ReporterCapsule(reporter)),
        Err(error @ TargetError::TooLong(_)) => {
            Err(Exception::ValueError.raise(py, &error.to_string()))
        }
        Err(error) => Err(Exception::OSError.raise(py, &error.to_string())),
    }
}

fn add_server<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter, server, threads, slots): (&Object, &Object, i64, &Object) =
        arguments(py, "telemetry_add_server", given)?;
    let reporter = reporter_in(reporter)?;
    let server = server_in(server)?;
    let slots = slots.items()?.iter().map(slot_name).collect::<PyResult<Vec<_>>>()?;
    let names = slots.iter().map(|slot| slot.name.clone()).collect();
    let report = ServerReport::new(Arc::clone(server.counters()), slots, threads.max(1) as usize);
    let threads = Arc::downgrade(server.threads());
    let endpoint_of = move |native_id| threads.upgrade()?.endpoint_of(native_id);
    let slow_requests = server.slow_requests().map(|requests| {
        let (requests, counters) = (Arc::clone(requests), Arc::clone(server.counters()));
        Arc::new(SlowRequestReport::new(requests, counters, names))
    });
    py.detach(|| {
        long_holds::ask_for_endpoints(Box::new(endpoint_of));
        reporter.add(Arc::new(report));
        if let Some(slow_requests) = slow_requests {
            reporter.add(slow_requests);
        }
    });
    Ok(Object::none(py))
}

fn slot_name(slot: &Object) -> PyResult<InterpreterName> {
    let parts = slot.items()?;
    let [group, name, own_gil] = &parts[..] else {
        return Err(Exception::ValueError.raise(slot.py(), "places are triples"));
    };
    Ok(InterpreterName {
        group: String::from_python(group)?,
        name: String::from_python(name)?,
        own_gil: own_gil.to_i64()? != 0,
    })
}

fn stopping<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter, reason, detail): (&Object, String, String) =
        arguments(py, "telemetry_stopping", given)?;
    let reporter = reporter_in(reporter)?;
    // Detached, as in `stop`: the reporting thread may be in the middle of a report.
    py.detach(|| reporter.stopping(&Ending { reason, detail, graceful: false }));
    Ok(Object::none(py))
}

fn stop<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter, reason, detail, graceful): (&Object, String, String, bool) =
        arguments(py, "telemetry_stop", given)?;
    let reporter = reporter_in(reporter)?;
    py.detach(|| reporter.stop(&Ending { reason, detail, graceful }));
    Ok(Object::none(py))
}

fn pause<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter,): (&Object,) = arguments(py, "telemetry_pause", given)?;
    let reporter = reporter_in(reporter)?;
    py.detach(|| reporter.pause());
    Ok(Object::none(py))
}

fn resume<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter,): (&Object,) = arguments(py, "telemetry_resume", given)?;
    let reporter = reporter_in(reporter)?;
    // The program continues if no thread can be started.
    py.detach(|| drop(reporter.resume()));
    Ok(Object::none(py))
}

fn waker<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter,): (&Object,) = arguments(py, "telemetry_waker", given)?;
    reporter_in(reporter)?.waker_number().to_python(py)
}
