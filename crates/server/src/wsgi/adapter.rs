//! An application in one interpreter, and what running requests of it needs of Python there.
//!
//! Everything of Python hangs on the adapter (one per interpreter) or on an `Attachment` (one per
//! thread and interpreter).

use crate::http::Response;
use crate::http::connection::Finished;
use crate::interpreters::interruption;
use crate::request::Exchange;
use crate::stats::Route;
use crate::stats::clock::now_ns;
use crate::wsgi::call;
use crate::wsgi::environ::EnvironBuilder;
use crate::wsgi::file_wrapper::FileWrappers;
use crate::wsgi::handle::{self, Handle, InFlight};
use crate::wsgi::route::RouteFinder;
use headway_python::object::{Object, PyResult, Raised, raise, set_item, take_raised};
use pyo3_ffi::*;
use std::ptr;

/// What an interpreter's own Python code gives, to have requests run there.
pub struct Entry {
    pub application: Object,
    /// `report(exception, request)`: writes a traceback to stderr.
    pub report: Object,
    /// `environs()`: new dicts, for each listener one with the part of the environ that never changes.
    pub environs: Object,
    /// The class of exceptions that end a request which takes too long.
    pub interruption: Object,
}

pub struct Adapter {
    entry: Entry,
    handle_type: Object,
    files: FileWrappers,
}

// SAFETY: the references are used and dropped only with a thread state of their interpreter
// attached; without a GIL, reference counts are safe to change from any attached thread.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

impl Adapter {
    pub fn new(entry: Entry) -> PyResult<Self> {
        Ok(Self { entry, handle_type: handle::make_type()?, files: FileWrappers::new()? })
    }

    pub fn interruption(&self) -> &Object {
        &self.entry.interruption
    }

    /// For one thread: shared keys would make free-threaded threads fight for their reference counts.
    pub fn environ_builder(&self) -> PyResult<EnvironBuilder> {
        let file_wrapper = Object::interned(c"wsgi.file_wrapper")?;
        let mut templates = Vec::new();
        // SAFETY: live objects and an exception class of this interpreter.
        unsafe {
            let listed = Object::from_new(PyObject_CallNoArgs(self.entry.environs.as_ptr()))?;
            if PyList_Check(listed.as_ptr()) == 0 {
                return Err(raise(PyExc_TypeError, "the environ templates must be a list"));
            }
            for index in 0..PyList_Size(listed.as_ptr()) {
                let template = compat::PyList_GetItemRef(listed.as_ptr(), index);
                let template = Object::from_new(template)?;
                if PyDict_Check(template.as_ptr()) == 0 {
                    return Err(raise(PyExc_TypeError, "an environ template must be a dict"));
                }
                set_item(&template, &file_wrapper, self.files.class())?;
                templates.push(template);
            }
        }
        EnvironBuilder::new(templates)
    }

    /// Runs a request, attached.
    pub fn run(
        &self,
        environs: &mut EnvironBuilder,
        finder: &mut Option<RouteFinder>,
        response: &mut Response,
        exchange: &mut Exchange,
    ) {
        let handle = match Handle::new(&self.handle_type) {
            Ok(handle) => handle,
            Err(Raised) => return self.report_raised("a request"),
        };
        let environ = environs.build(exchange, &handle.0);
        let called_ns = now_ns();
        exchange.activity().note_called(called_ns);
        let routes = exchange.routes();
        if routes.is_some() && finder.is_none() {
            *finder = RouteFinder::new().ok();
        }
        exchange.record.server_ns = called_ns - exchange.started_ns();
        let sighting = match (&environ, &finder) {
            (Ok(environ), Some(finder)) if routes.is_some() => Some(finder.sight(environ)),
            _ => None,
        };
        let sighting = sighting.as_ref();
        let mut request = InFlight { exchange: &mut *exchange, response, started: false, sighting };
        // SAFETY: `call::run` ends the loan, and `request` stays where it is until then.
        unsafe { handle.lend(&mut request) };
        let mut route = Route::NONE;
        let look_up = |iterable: Option<&Object>| {
            if let (Some(finder), Some(sighting), Some(routes)) = (finder, sighting, routes) {
                route = finder.find(sighting, iterable, routes);
            }
        };
        let raised = call::run(&self.entry.application, &self.files, &handle, environ, look_up);
        interruption::end(exchange);
        exchange.record.route = route;
        exchange.ended_ns = now_ns();
        exchange.record.application_ns = exchange.ended_ns - called_ns;
        exchange.record.failed = raised.iter().any(Option::is_some);
        for exception in raised.into_iter().flatten() {
            self.report(&exception, &describe(exchange));
        }
        if !exchange.record.failed && exchange.broken().is_none() {
            self.check_length(exchange);
        }
    }

    /// An application that announced another length than it sent is told.
    fn check_length(&self, exchange: &mut Exchange) {
        let message = if exchange.has_excess() {
            "the application sent more than its Content-Length; the rest was cut off"
        } else if matches!(exchange.finished(), Finished::Truncated { .. }) {
            "the application sent less than its Content-Length; the connection is closed"
        } else {
            return;
        };
        exchange.record.failed = true;
        // SAFETY: an exception class of this interpreter.
        unsafe { raise(PyExc_ValueError, message) };
        self.report_raised(&describe(exchange));
    }

    pub fn report_raised(&self, request: &str) {
        if let Some(exception) = take_raised() {
            self.report(&exception, request);
        }
    }

    /// What reporting raises in turn goes to `sys.unraisablehook`.
    fn report(&self, exception: &Object, request: &str) {
        let result = Object::from_latin1(request.as_bytes()).and_then(|request| {
            let arguments = [exception.as_ptr(), request.as_ptr()];
            // SAFETY: two live arguments, no keywords.
            unsafe {
                Object::from_new(PyObject_Vectorcall(
                    self.entry.report.as_ptr(),
                    arguments.as_ptr(),
                    arguments.len(),
                    ptr::null_mut(),
                ))
            }
        });
        if result.is_err() {
            // SAFETY: an exception is set and the object is live.
            unsafe { PyErr_WriteUnraisable(self.entry.report.as_ptr()) };
        }
    }
}

/// `GET /path`, for messages.
fn describe(exchange: &Exchange) -> String {
    let (head, bytes) = exchange.head();
    let part = |range: std::ops::Range<usize>| String::from_utf8_lossy(&bytes[range]).into_owned();
    let text = format!("{} {}", part(head.method.clone()), part(head.target.clone()));
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
