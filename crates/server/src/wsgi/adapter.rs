//! Joins the worker to a Python application: one take of the GIL per request.
//!
//! Everything of Python that a request needs hangs on the adapter (one per server) or on its
//! [`WorkerThread`] (one per thread). Both belong to the interpreter that opened the server.

use super::call;
use super::environ::EnvironBuilder;
use super::file_wrapper::FileWrappers;
use super::handle::{self, Handle, InFlight};
use super::interruption;
use super::object::{Object, PyResult, Raised, raise, set_item, take_raised};
use crate::http::Response;
use crate::http::connection::Finished;
use crate::record::clock::now_ns;
use crate::worker::{Application, Exchange};
use pyo3_ffi::*;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub struct Adapter {
    application: Object,
    /// `report(exception, request)`: writes a traceback to stderr.
    report: Object,
    handle_type: Object,
    files: FileWrappers,
}

// SAFETY: the references are used and dropped only with a thread state of their interpreter
// attached; without a GIL, reference counts are safe to change from any attached thread.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

/// What one worker thread keeps of Python.
pub struct WorkerThread {
    environs: EnvironBuilder,
    response: Response,
    /// How long this thread has waited for the GIL, as of its last request.
    waited_ns: Option<u64>,
    held_ns: Option<u64>,
    /// The thread state that this thread came with; detached between requests.
    state: *mut PyThreadState,
}

impl WorkerThread {
    /// `template` is a dict with the part of the environ that never changes; this thread's own.
    pub fn new(template: Object, adapter: &Adapter) -> PyResult<Self> {
        // SAFETY: a live object and an exception class of this interpreter.
        unsafe {
            if PyDict_Check(template.as_ptr()) == 0 {
                return Err(raise(PyExc_TypeError, "the environ template must be a dict"));
            }
        }
        let file_wrapper = Object::interned(c"wsgi.file_wrapper")?;
        set_item(&template, &file_wrapper, adapter.file_wrapper())?;
        let environs = EnvironBuilder::new(template)?;
        Ok(Self {
            environs,
            response: Response::default(),
            waited_ns: headway_gil::waited_ns_by_this_thread(),
            held_ns: headway_gil::held_ns_by_this_thread(),
            state: ptr::null_mut(),
        })
    }

    /// Runs `work` with the thread state detached. What `work` calls attaches it per request.
    pub fn detached(&mut self, work: impl FnOnce(&mut Self)) {
        // SAFETY: attached on entry (a Python thread called), so attached on exit.
        unsafe {
            self.state = PyEval_SaveThread();
            work(self);
            PyEval_RestoreThread(self.state);
        }
    }
}

impl Adapter {
    pub fn new(application: Object, report: Object) -> PyResult<Self> {
        FORK_HANDLER.call_once(|| {
            // SAFETY: the handler is async-signal-safe: it adds to an atomic.
            unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        });
        let (handle_type, files) = (handle::make_type()?, FileWrappers::new()?);
        Ok(Self { application, report, handle_type, files })
    }

    /// What `wsgi.file_wrapper` is in this server's environs.
    pub fn file_wrapper(&self) -> &Object {
        self.files.class()
    }

    /// The request with the GIL held.
    fn run(&self, thread: &mut WorkerThread, exchange: &mut Exchange) {
        let handle = match Handle::new(&self.handle_type) {
            Ok(handle) => handle,
            Err(Raised) => return self.report_raised("a request"),
        };
        let environ = thread.environs.build(exchange, &handle.0);
        let called_ns = now_ns();
        exchange.record.server_ns = called_ns - exchange.started_ns();
        let mut request =
            InFlight { exchange: &mut *exchange, response: &mut thread.response, started: false };
        // SAFETY: `call::run` ends the loan, and `request` stays where it is until then.
        unsafe { handle.lend(&mut request) };
        let raised = call::run(&self.application, &self.files, &handle, environ);
        interruption::end(exchange);
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

    fn report_raised(&self, request: &str) {
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
                    self.report.as_ptr(),
                    arguments.as_ptr(),
                    arguments.len(),
                    ptr::null_mut(),
                ))
            }
        });
        if result.is_err() {
            // SAFETY: an exception is set and the object is live.
            unsafe { PyErr_WriteUnraisable(self.report.as_ptr()) };
        }
    }
}

/// A request that took so long may have made its thread CPU-bound in the eyes of a policy.
const LONG_NS: u64 = 500_000;

impl Application for Adapter {
    type Thread = WorkerThread;

    fn handle(&self, thread: &mut WorkerThread, exchange: &mut Exchange) {
        let forks = FORKS.load(Relaxed);
        // SAFETY: this thread's own state, detached by `WorkerThread::detached`.
        unsafe { PyEval_RestoreThread(thread.state) };
        self.run(thread, exchange);
        if FORKS.load(Relaxed) != forks {
            leave_forked_child();
        }
        let waited_ns = headway_gil::waited_ns_by_this_thread();
        exchange.record.gil_wait_ns = growth(&mut thread.waited_ns, waited_ns);
        if exchange.record.gil_wait_ns.is_some_and(|wait_ns| wait_ns > 0) {
            // Another thread was made to drop the GIL. It is called when we drop it, often to this
            // core, and the response would wait for the end of its time slice.
            exchange.prepare_for_preemption();
        }
        // SAFETY: attached above; the application must leave it so, as any C function's caller.
        unsafe { PyEval_SaveThread() };
        let held_ns = headway_gil::held_ns_by_this_thread();
        exchange.record.gil_held_ns = growth(&mut thread.held_ns, held_ns);
        if exchange.record.application_ns >= LONG_NS {
            headway_gil::begin_anew();
        }
    }
}

/// What a sum of the meter has grown by since `past_ns`, which it becomes.
fn growth(past_ns: &mut Option<u64>, now_ns: Option<u64>) -> Option<u64> {
    match (std::mem::replace(past_ns, now_ns), now_ns) {
        (Some(past), Some(now)) => now.checked_sub(past),
        // The meter came on, or saw this thread for the first time, during the request.
        (None, now) => now,
        (Some(_), None) => None,
    }
}

/// Forks that led to this process. Written in a new child before it has a second thread, read by
/// worker threads; relaxed.
static FORKS: AtomicU32 = AtomicU32::new(0);
static FORK_HANDLER: Once = Once::new();

extern "C" fn note_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// The application forked, and the child came back from it. It shares sockets and epoll with the
/// server, and has none of its threads: it must not answer, nor clean up.
fn leave_forked_child() -> ! {
    const MESSAGE: &[u8] = b"headway serve: a forked child returned from the application; \
        it should end with os._exit()\n";
    // SAFETY: pointer and length are those of the message; `_exit` does not return.
    unsafe {
        libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(70)
    }
}

/// `GET /path`, for messages.
fn describe(exchange: &Exchange) -> String {
    let (head, bytes) = exchange.head();
    let part = |range: std::ops::Range<usize>| String::from_utf8_lossy(&bytes[range]).into_owned();
    let text = format!("{} {}", part(head.method.clone()), part(head.target.clone()));
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
