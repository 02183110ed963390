//! The reporter as Python holds it: a capsule. It is begun and ended by Python, and needs it for nothing else.

use headway_python::object::{Object, PyResult, Raised, raise, without_gil};
use headway_reporter::gc_pauses::GcPauses;
use headway_reporter::long_holds::{self, LongHolds};
use headway_reporter::{Ending, Gils, Identity, Reporter, Resources, Settings};
use headway_server::limits::SlowRequestReport;
use headway_server::stats::report::{PlaceName, ServerReport};
use headway_telemetry::datagram::{Datagram, Header};
use pyo3_ffi::*;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::{refuse, writing};
use crate::gil::note;
use crate::server::items;
use crate::server::server_in;
use crate::{Methods, method};

const CAPSULE_NAME: &CStr = c"headway._native.reporter";

static METHODS: Methods<8> = Methods([
    method(
        c"telemetry_start",
        start,
        c"telemetry_start(path: bytes, interval: float, started: float, identity: dict) -> reporter\n\
          Tells whoever listens on the UNIX datagram socket at `path` that this process began at that time,\n\
          and begins the thread that reports every so many seconds. `identity` is what each datagram says,\n\
          by field names. Raises OSError, or ValueError for a path that is too long.",
    ),
    method(
        c"telemetry_add_server",
        add_server,
        c"telemetry_add_server(reporter, server, threads, places)\n\
          Reports on a server, too, that was opened to be reported on. `threads`: how many run requests;\n\
          `places`: for each its application group, its name and whether it has a GIL of its own.",
    ),
    method(
        c"telemetry_stopping",
        stopping,
        c"telemetry_stopping(reporter, reason: str, detail: str)\nThe process is about to end.",
    ),
    method(
        c"telemetry_stop",
        stop,
        c"telemetry_stop(reporter, reason: str, detail: str, graceful: bool)\n\
          What was not told yet, and that the process ends. The thread is gone then.",
    ),
    method(
        c"telemetry_pause",
        pause,
        c"telemetry_pause(reporter)\nEnds the thread, until telemetry_resume().",
    ),
    method(c"telemetry_resume", resume, c"telemetry_resume(reporter)"),
    method(
        c"telemetry_bell",
        bell,
        c"telemetry_bell(reporter) -> int\n\
          The number that report_on_signals() takes to report the end to the recorder.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn start(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut path: *const c_char = ptr::null();
    let (mut interval_s, mut started_s) = (0_f64, 0_f64);
    let mut fields = ptr::null_mut();
    // SAFETY: each place has the type that the format says, and CPython checks that the last is a dict. The tuple
    // keeps the path.
    unsafe {
        if PyArg_ParseTuple(
            arguments,
            c"yddO!:telemetry_start".as_ptr(),
            &raw mut path,
            &raw mut interval_s,
            &raw mut started_s,
            &raw mut PyDict_Type,
            &raw mut fields,
        ) == 0
        {
            return ptr::null_mut();
        }
        let path = OsStr::from_bytes(CStr::from_ptr(path).to_bytes()).into();
        started(path, interval_s, started_s, fields).map_or(ptr::null_mut(), Object::into_ptr)
    }
}

/// # Safety
/// `fields` is a live dict.
unsafe fn started(
    path: std::path::PathBuf,
    interval_s: f64,
    started_s: f64,
    fields: *mut PyObject,
) -> PyResult<Object> {
    let Some(interval) = Duration::try_from_secs_f64(interval_s).ok().filter(|it| !it.is_zero())
    else {
        // SAFETY: an exception class of this interpreter.
        return Err(unsafe { raise(PyExc_ValueError, "an interval is a time above 0") });
    };
    let header = Header { kind: 0, pid: 0, seq: 0, stamp_s: 0.0 };
    // SAFETY: the caller's.
    let fields = unsafe { writing::datagram(&header, fields)? };
    let identity = Identity::of(&Datagram::parse(&fields).map_err(refuse)?);
    // The books, if there are any, learn what the interpreter alone knows.
    note();
    let settings = Settings { path, interval, identity, started_s };
    let begun = without_gil(|| {
        let sources: Vec<Arc<dyn headway_reporter::Source>> = vec![
            Arc::new(Resources::from_now()),
            Arc::new(Gils::from_now()),
            Arc::new(LongHolds::new(long_holds::THRESHOLD)),
            Arc::new(GcPauses::from_now()),
        ];
        Reporter::start(settings, sources)
    });
    // SAFETY: exception classes of this interpreter; the capsule owns the reporter.
    unsafe {
        match begun {
            Ok(reporter) => {
                let reporter = Box::into_raw(Box::new(reporter));
                Object::from_new(PyCapsule_New(
                    reporter.cast(),
                    CAPSULE_NAME.as_ptr(),
                    Some(drop_reporter),
                ))
            }
            Err(error @ headway_reporter::TargetError::TooLong(_)) => {
                Err(raise(PyExc_ValueError, &error.to_string()))
            }
            Err(error) => Err(raise(PyExc_OSError, &error.to_string())),
        }
    }
}

/// The capsule's destructor. The thread, if it is there yet, needs no GIL to end.
unsafe extern "C" fn drop_reporter(capsule: *mut PyObject) {
    // SAFETY: made by `started` and dropped once.
    unsafe {
        let reporter = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        drop(Box::from_raw(reporter.cast::<Reporter>()));
    }
}

/// # Safety
/// `capsule` is a live object that outlives the reference.
unsafe fn reporter_in<'a>(capsule: *mut PyObject) -> PyResult<&'a Reporter> {
    // SAFETY: a capsule of this name holds a reporter until it is dropped; for anything else an exception is set
    // and the pointer is null.
    unsafe {
        let reporter = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        reporter.cast::<Reporter>().as_ref().ok_or(Raised)
    }
}

unsafe extern "C" fn add_server(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut reporter, mut server, mut places) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let mut threads: Py_ssize_t = 0;
    // SAFETY: the format matches the places that follow it; the tuple keeps the objects alive.
    unsafe {
        if PyArg_ParseTuple(
            arguments,
            c"OOnO:telemetry_add_server".as_ptr(),
            &raw mut reporter,
            &raw mut server,
            &raw mut threads,
            &raw mut places,
        ) == 0
        {
            return ptr::null_mut();
        }
        let added = reporter_in(reporter).and_then(|reporter| {
            let server = server_in(server)?;
            let mut names = Vec::new();
            for place in items(&Object::from_borrowed(places))? {
                let parts = items(&place)?;
                let [group, name, own_gil] = &parts[..] else {
                    return Err(raise(PyExc_ValueError, "places are triples"));
                };
                names.push(PlaceName {
                    group: group.to_text()?,
                    name: name.to_text()?,
                    own_gil: own_gil.to_i64()? != 0,
                });
            }
            let called = names.iter().map(|place| place.name.clone()).collect();
            let report =
                ServerReport::new(Arc::clone(server.books()), names, threads.max(1) as usize);
            let threads = Arc::downgrade(server.threads());
            let endpoint_of = move |native_id| threads.upgrade()?.endpoint_of(native_id);
            let slow_requests = server.slow_requests().map(|requests| {
                Arc::new(SlowRequestReport::new(
                    Arc::clone(requests),
                    Arc::clone(server.books()),
                    called,
                ))
            });
            without_gil(|| {
                long_holds::ask_for_endpoints(Box::new(endpoint_of));
                reporter.add(Arc::new(report));
                if let Some(slow_requests) = slow_requests {
                    reporter.add(slow_requests);
                }
            });
            Ok(())
        });
        none_or_raised(added)
    }
}

unsafe extern "C" fn stopping(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let format = c"Oss:telemetry_stopping";
    on_reporter(arguments, format, |reporter, ending| reporter.stopping(&ending))
}

unsafe extern "C" fn stop(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    on_reporter(arguments, c"Ossp:telemetry_stop", |reporter, ending| reporter.stop(&ending))
}

unsafe extern "C" fn pause(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    on_reporter(arguments, c"O:telemetry_pause", |reporter, _| reporter.pause())
}

unsafe extern "C" fn resume(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // That there is no thread to be had is no reason for a program to fail.
    on_reporter(arguments, c"O:telemetry_resume", |reporter, _| drop(reporter.resume()))
}

unsafe extern "C" fn bell(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut capsule = ptr::null_mut();
    // SAFETY: the format has one place, for an object that the tuple keeps alive.
    unsafe {
        if PyArg_ParseTuple(arguments, c"O:telemetry_bell".as_ptr(), &raw mut capsule) == 0 {
            return ptr::null_mut();
        }
        match reporter_in(capsule) {
            Ok(reporter) => PyLong_FromUnsignedLong(reporter.bell_number().into()),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// `format` has a reporter, and as much of an ending as follows: reason, detail, whether it is graceful. Without the
/// GIL: who reports may be in the middle of it.
fn on_reporter(
    arguments: *mut PyObject,
    format: &CStr,
    with: impl FnOnce(&Reporter, Ending),
) -> *mut PyObject {
    let (mut capsule, mut graceful) = (ptr::null_mut(), 0 as c_int);
    let (mut reason, mut detail) = (c"".as_ptr(), c"".as_ptr());
    // SAFETY: the format takes no more places than follow it, of these types; the tuple keeps the texts.
    unsafe {
        if PyArg_ParseTuple(
            arguments,
            format.as_ptr(),
            &raw mut capsule,
            &raw mut reason,
            &raw mut detail,
            &raw mut graceful,
        ) == 0
        {
            return ptr::null_mut();
        }
        let text = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
        let (reason, detail) = (text(reason), text(detail));
        let ending = Ending { reason, detail, graceful: graceful != 0 };
        let done = reporter_in(capsule).map(|reporter| without_gil(|| with(reporter, ending)));
        none_or_raised(done)
    }
}

fn none_or_raised(result: PyResult<()>) -> *mut PyObject {
    // SAFETY: None always exists.
    unsafe { result.map_or(ptr::null_mut(), |()| Object::from_borrowed(Py_None()).into_ptr()) }
}
