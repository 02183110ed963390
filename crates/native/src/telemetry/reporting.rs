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
use headway_server::{InterpreterName, ServerReport, SlowRequestReport};
use headway_telemetry::datagram::{Datagram, Header};
use headway_threads::lock::Lock;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use super::{refuse, writing};
use crate::interpreters::note_main_interpreter;
use crate::profile;
use crate::server::server_in;

pub static FUNCTIONS: Methods<6> = Methods::new([
    function(
        c"telemetry_start",
        start,
        c"telemetry_start(path: bytes, interval: float, started: float, identity: dict,\n\
          across_forks: bool) -> reporter\n\
          \n\
          Reports to the UNIX datagram socket at `path` that this process began at the time\n\
          `started`, and starts the thread that reports every `interval` seconds. Each datagram\n\
          contains `identity`, a dict by field names. If `across_forks`, each forked child has a\n\
          reporter of its own, which takes the place of this one; one per process can. Raises\n\
          OSError, or ValueError for a path that is too long.",
    ),
    function(
        c"telemetry_add_server",
        add_server,
        c"telemetry_add_server(reporter, server, threads: int, slots)\n\
          \n\
          Adds reports on a server, which was opened with `reported`. `threads`: the number of\n\
          threads that run requests; `slots`: for each interpreter slot its application group,\n\
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
        c"telemetry_waker",
        waker,
        c"telemetry_waker(reporter) -> int\n\
          \n\
          The number that report_on_signals() takes to report the end to the recorder.",
    ),
    END,
]);

struct ReporterCapsule(Arc<ProcessReporter>);

// SAFETY: no other type has this name.
unsafe impl InCapsule for ReporterCapsule {
    const NAME: &'static CStr = c"headway._native.reporter";
}

/// The reporter of this process. In a forked child it has no effect until `begin_in_child`.
pub struct ProcessReporter {
    /// Replaced in a forked child, before it has a second thread. Locked to copy it.
    reporter: Lock<Arc<Reporter>>,
    settings: Settings,
}

/// The reporter that forked children have too. Written by `start`, read around forks.
static ACROSS_FORKS: Lock<Option<Arc<ProcessReporter>>> = Lock::new(None);

/// The reporter that a fork pauses.
pub fn across_forks() -> Option<Arc<Reporter>> {
    ACROSS_FORKS.lock().as_ref().map(|process| process.reporter())
}

/// Starts the reporter of a forked child. Without descriptors, for example, the child has none.
pub fn begin_in_child() -> bool {
    let process = ACROSS_FORKS.lock().clone();
    let Some(process) = process.filter(|it| !it.reporter().is_over()) else { return false };
    let Ok(reporter) = Reporter::start_in_child(&process.settings, sources()) else { return false };
    *process.reporter.lock() = Arc::new(reporter);
    true
}

impl ProcessReporter {
    fn reporter(&self) -> Arc<Reporter> {
        Arc::clone(&self.reporter.lock())
    }
}

fn sources() -> Vec<Arc<dyn headway_reporter::Source>> {
    vec![
        Arc::new(Resources::from_now()),
        Arc::new(Gils::from_now()),
        Arc::new(LongHolds::new(long_holds::THRESHOLD)),
        Arc::new(GcPauses::from_now()),
        Arc::new(Lines::from_now()),
    ]
}

fn reporter_in(capsule: &Object) -> PyResult<Arc<Reporter>> {
    capsule::value(capsule).map(|ReporterCapsule(process)| process.reporter())
}

fn start<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (path, interval_s, started_s, fields, across_forks): (&CStr, f64, f64, &Object, bool) =
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
    let started = py.detach(|| Reporter::start(settings.clone(), sources()));
    match started {
        Ok(reporter) => {
            let reporter = Lock::new(Arc::new(reporter));
            let process = Arc::new(ProcessReporter { reporter, settings });
            if across_forks {
                *ACROSS_FORKS.lock() = Some(Arc::clone(&process));
            }
            capsule::new(py, ReporterCapsule(process))
        }
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
        return Err(Exception::ValueError.raise(slot.py(), "slots are triples"));
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
    py.detach(|| {
        reporter.stop(&Ending { reason, detail, graceful });
        if reporter.is_of_this_process() {
            profile::end_reported();
        }
    });
    Ok(Object::none(py))
}

fn waker<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (reporter,): (&Object,) = arguments(py, "telemetry_waker", given)?;
    reporter_in(reporter)?.waker_number().to_python(py)
}
