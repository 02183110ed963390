//! `_native.server_*`: the server, for `headway.server`, which checks arguments. A server is a
//! capsule.
//!
//! `interpreters` are the interpreters that run requests, `options` reads the settings of a server,
//! `tls` makes the capsule of certificate and key that belongs to them, `requests` reads the
//! counters.

use headway_measure::clock::now_ns;
use headway_python::attached::Attached;
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::{ToPython, arguments};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult, Raised};
use headway_server::{Received, Server};
use options::OpenError;
use std::ffi::CStr;
use std::time::Duration;

pub mod interpreters;
mod options;
mod requests;
mod tls;

pub static FUNCTIONS: Methods<15> = Methods::new([
    function(
        c"server_open",
        server_open,
        c"server_open(listeners: list, routes, groups, options: dict) -> server\n\
          \n\
          listeners: descriptors of listening sockets, which the server takes over, as it does\n\
          log_fd.\n\
          routes: pairs of a URL path and the index of its group.\n\
          groups: triples of a number of interpreters, their maximum_requests, and the switch\n\
          interval in ns of their threads if they share a GIL, or 0. Interpreter slots are\n\
          numbered group by group; server_admit() fills them.\n\
          options: a dict of numbers, of sequences of strings about trusted networks, and tls\n\
          (None, or the result of server_read_tls()), all of them required; see Server in\n\
          serving.py.",
    ),
    function(
        c"server_read_tls",
        tls::server_read_tls,
        c"server_read_tls(certificate: str, key: str) -> tls\n\
          \n\
          Reads a certificate and its key. Raises ValueError with the invalid file and the reason.",
    ),
    function(
        c"server_work",
        server_work,
        c"server_work(server)\n\
          \n\
          Serves in this thread until the server has stopped. If an interpreter of\n\
          interpreter_of_caller() is admitted, it must be this thread's.",
    ),
    function(
        c"server_stop",
        server_stop,
        c"server_stop(server, keep_idle_ns: int)\n\
          \n\
          Stops accepting, lets requests end, and keeps idle connections for keep_idle_ns.",
    ),
    function(
        c"server_interrupt",
        server_interrupt,
        c"server_interrupt(server) -> bool\n\
          \n\
          Waits for a request that runs too long and sets its interpreter's exception in its\n\
          thread. Returns False once the server has stopped.",
    ),
    function(
        c"server_next_wanted",
        server_next_wanted,
        c"server_next_wanted(server, timeout_ns: int) -> int | None\n\
          \n\
          Waits for an interpreter slot that needs an interpreter, because it has none and a\n\
          request came, or because its own has served maximum_requests. Returns -1 after the\n\
          timeout (a negative timeout_ns: no timeout), None once the server has stopped.",
    ),
    function(
        c"server_admit",
        server_admit,
        c"server_admit(server, slot: int, interpreter | None)\n\
          \n\
          Lets the interpreter, which interpreter_enter() has prepared, run the requests of the\n\
          `slot`. None means that no interpreter could be made, and fails the requests that\n\
          wait for it.",
    ),
    function(
        c"server_retire",
        server_retire,
        c"server_retire(server, interpreter, timeout_ns: int) -> bool\n\
          \n\
          Lets no request into the interpreter, waits for those that run there, and makes the\n\
          worker threads leave it, so that interpreter_end() can follow. Returns False if a\n\
          thread is left.",
    ),
    function(
        c"server_abort",
        server_abort,
        c"server_abort(server)\n\
          \n\
          Ends without waiting: requests that read or send are cut off.",
    ),
    function(
        c"server_cut_off",
        server_cut_off,
        c"server_cut_off(server) -> int\n\
          \n\
          The number of requests that server_abort() has cut off and that have ended.",
    ),
    function(
        c"server_requests",
        server_requests,
        c"server_requests(server) -> list of (slot, path, requests, errors, response_p50,\n\
          response_p99, gil_wait_p50, gil_wait_p99, gil_wait_total, application_total, cpu_total)\n\
          \n\
          Times are in ns, None if unknown.",
    ),
    function(
        c"server_begin_block",
        server_begin_block,
        c"server_begin_block(server)\n\
          \n\
          Counts the requests that come from now on in a block, which replaces the one before.",
    ),
    function(
        c"server_end_block",
        server_end_block,
        c"server_end_block(server)\n\
          \n\
          Counts no requests in the block that come from now on.",
    ),
    function(
        c"server_block",
        server_block,
        c"server_block(server) -> list of (path, errors, cpu_ns, response)\n\
          \n\
          The requests of the block that have been answered; response is a distribution.",
    ),
    END,
]);

/// A thread that serves holds a reference to the capsule, so none serves when it is destroyed.
struct ServerCapsule(Server);

// SAFETY: no other type has this name.
unsafe impl InCapsule for ServerCapsule {
    const NAME: &'static CStr = c"headway._native.server";
}

pub fn server_in<'a>(capsule: &'a Object) -> PyResult<&'a Server> {
    capsule::value(capsule).map(|ServerCapsule(server)| server)
}

fn server_open<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (listeners, routes, groups, options): (&Object, &Object, &Object, &Object) =
        arguments(py, "server_open", given)?;
    if !listeners.is_list() || !options.is_dict() {
        let message = "server_open() takes a list of listeners and a dict of options";
        return Err(Exception::TypeError.raise(py, message));
    }
    // SAFETY: the caller gives the descriptors away, as the function's doc says.
    let settings = unsafe { options::pool_settings(listeners, options) };
    let opened = settings.and_then(|settings| {
        let groups = options::application_groups(routes, groups)?;
        Server::open(groups, settings).map_err(OpenError::System)
    });
    match opened {
        Ok(server) => capsule::new(py, ServerCapsule(server)),
        Err(OpenError::Raised) => Err(Raised),
        Err(OpenError::System(error)) => Err(Exception::OSError.raise(py, &error.to_string())),
    }
}

fn server_work<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_work", given)?;
    server_in(server)?.work(py)?;
    Ok(Object::none(py))
}

fn server_interrupt<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_interrupt", given)?;
    server_in(server)?.interrupt_next(py).to_python(py)
}

fn server_next_wanted<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server, timeout_ns): (&Object, i64) = arguments(py, "server_next_wanted", given)?;
    let server = server_in(server)?;
    let timeout = u64::try_from(timeout_ns).map_or(Duration::MAX, Duration::from_nanos);
    match py.detach(|| server.next_wanted(timeout)) {
        Received::Task(slot) => slot.to_python(py),
        Received::Nothing => (-1_i64).to_python(py),
        Received::Over => Ok(Object::none(py)),
    }
}

fn server_admit<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server, slot, interpreter): (&Object, usize, Option<&Object>) =
        arguments(py, "server_admit", given)?;
    let groups = server_in(server)?.groups();
    match interpreter {
        Some(interpreter) => groups.admit(slot, interpreters::interpreter_in(interpreter)?),
        None => groups.fail(slot),
    }
    Ok(Object::none(py))
}

fn server_retire<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server, interpreter, timeout_ns): (&Object, &Object, i64) =
        arguments(py, "server_retire", given)?;
    let server = server_in(server)?;
    let interpreter = interpreters::interpreter_in(interpreter)?;
    let timeout = Duration::from_nanos(timeout_ns.max(0) as u64);
    py.detach(|| server.retire(&interpreter, timeout)).to_python(py)
}

fn server_stop<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server, keep_idle_ns): (&Object, i64) = arguments(py, "server_stop", given)?;
    let server = server_in(server)?;
    py.detach(|| server.stop(keep_idle_ns.max(0) as u64));
    Ok(Object::none(py))
}

fn server_abort<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_abort", given)?;
    let server = server_in(server)?;
    py.detach(|| server.abort());
    Ok(Object::none(py))
}

fn server_cut_off<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_cut_off", given)?;
    server_in(server)?.cut_off().to_python(py)
}

fn server_requests<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_requests", given)?;
    requests::request_rows(py, server_in(server)?)
}

fn server_begin_block<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_begin_block", given)?;
    server_in(server)?.stats().begin_block(now_ns());
    Ok(Object::none(py))
}

fn server_end_block<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_end_block", given)?;
    server_in(server)?.stats().end_block(now_ns());
    Ok(Object::none(py))
}

fn server_block<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (server,): (&Object,) = arguments(py, "server_block", given)?;
    requests::block_rows(py, server_in(server)?)
}
