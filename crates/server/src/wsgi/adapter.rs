//! An application in one interpreter, and the Python objects that running its requests needs there.

use crate::http::Response;
use crate::http::connection::Finished;
use crate::request::RequestContext;
use crate::stats::Route;
use crate::wsgi::call;
use crate::wsgi::environ::EnvironBuilder;
use crate::wsgi::file_wrapper::FileWrappers;
use crate::wsgi::handle::{Handle, InFlight};
use crate::wsgi::input;
use crate::wsgi::interruption;
use crate::wsgi::route::RouteFinder;
use headway_measure::clock::now_ns;
use headway_python::attached::Attached;
use headway_python::exception::{Exception, take_raised, write_unraisable};
use headway_python::object::{Object, PyResult, Raised};
use headway_python::stored::Stored;

/// The objects of an interpreter's Python code that requests need.
pub struct InterpreterObjects {
    pub application: Stored,
    /// `report(exception, request)`: writes a traceback to stderr.
    pub report: Stored,
    /// `environs()`: a list of new dicts, one for each listener, with the items of the environ that
    /// never change.
    pub environs: Stored,
    /// The class of exceptions that end a request which takes too long.
    pub interruption: Stored,
}

/// Belongs to one interpreter. What a thread needs besides is an [`EnvironBuilder`] of its own.
pub struct Adapter {
    objects: InterpreterObjects,
    handle_type: Stored,
    files: FileWrappers,
}

impl Adapter {
    pub fn new(py: Attached, objects: InterpreterObjects) -> PyResult<Self> {
        let handle_type = Stored::new(input::make_type(py)?);
        Ok(Self { objects, handle_type, files: FileWrappers::new(py)? })
    }

    /// The class of exceptions that end a request which takes too long.
    pub fn interruption(&self) -> &Stored {
        &self.objects.interruption
    }

    /// For one thread: shared keys would make free-threaded threads compete for their reference
    /// counts.
    pub fn environ_builder(&self, py: Attached) -> PyResult<EnvironBuilder> {
        let file_wrapper = Object::interned(py, c"wsgi.file_wrapper")?;
        let templates = self.objects.environs.get(py).call([])?;
        if !templates.is_list() {
            return Err(Exception::TypeError.raise(py, "the environ templates must be a list"));
        }
        let templates = templates.items()?;
        for template in &templates {
            if !template.is_dict() {
                return Err(Exception::TypeError.raise(py, "an environ template must be a dict"));
            }
            template.set_item(&file_wrapper, self.files.class().get(py))?;
        }
        EnvironBuilder::new(py, templates.into_iter().map(Stored::new).collect())
    }

    /// Runs a request.
    pub fn run(
        &self,
        py: Attached,
        environs: &mut EnvironBuilder,
        finder: &mut Option<RouteFinder>,
        response: &mut Response,
        context: &mut RequestContext,
    ) {
        // SAFETY: `input::make_type` made the type.
        let handle = match unsafe { Handle::new(self.handle_type.get(py)) } {
            Ok(handle) => handle,
            Err(Raised) => return self.report_raised(py, "a request"),
        };
        let environ = environs.build(context, handle.object());
        let called_ns = now_ns();
        context.worker_status().note_called(called_ns);
        let routes = context.routes();
        if routes.is_some() && finder.is_none() {
            *finder = RouteFinder::new(py).ok();
        }
        context.note_call(called_ns);
        let probe = match (&environ, &finder) {
            (Ok(environ), Some(finder)) if routes.is_some() => Some(finder.probe(environ)),
            _ => None,
        };
        let probe = probe.as_ref();
        let mut request = InFlight { context: &mut *context, response, started: false, probe };
        // SAFETY: `call::run` ends the loan, and `request` stays where it is until then.
        unsafe { handle.lend(&mut request) };
        let mut route = Route::NONE;
        let look_up = |iterable: Option<&Object>| {
            if let (Some(finder), Some(probe), Some(routes)) = (finder, probe, routes) {
                route = finder.find(py, probe, iterable, routes);
            }
        };
        let application = self.objects.application.get(py);
        let raised = call::run(application, &self.files, &handle, environ, look_up);
        interruption::end(py, context);
        context.note_return(called_ns, route, raised.iter().any(Option::is_some));
        for exception in raised.into_iter().flatten() {
            self.report(&exception, &describe(context));
        }
        if !context.record().failed && context.broken().is_none() {
            self.check_length(py, context);
        }
    }

    /// Reports an application that announced another length than it sent.
    fn check_length(&self, py: Attached, context: &mut RequestContext) {
        let message = if context.has_excess() {
            "the application sent more than its Content-Length; the rest was cut off"
        } else if matches!(context.finished(), Finished::Truncated { .. }) {
            "the application sent less than its Content-Length; the connection is closed"
        } else {
            return;
        };
        context.note_wrong_length();
        Exception::ValueError.raise(py, message);
        self.report_raised(py, &describe(context));
    }

    /// Reports the exception that is set, if there is one.
    pub fn report_raised(&self, py: Attached, request: &str) {
        if let Some(exception) = take_raised(py) {
            self.report(&exception, request);
        }
    }

    /// An exception in the report itself goes to `sys.unraisablehook`.
    fn report(&self, exception: &Object, request: &str) {
        let py = exception.py();
        let report = self.objects.report.get(py);
        let reported = Object::from_latin1(py, request.as_bytes())
            .and_then(|request| report.call([exception, &request]));
        if reported.is_err() {
            write_unraisable(py, Some(report));
        }
    }
}

/// `GET /path`, for messages.
fn describe(context: &RequestContext) -> String {
    let (head, bytes) = context.head();
    let part = |range: std::ops::Range<usize>| String::from_utf8_lossy(&bytes[range]).into_owned();
    let text = format!("{} {}", part(head.method.clone()), part(head.target.clone()));
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
