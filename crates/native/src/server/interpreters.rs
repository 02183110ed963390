//! `_native.interpreter_*`: interpreters that run requests, each a capsule.

use headway_python::attached::Attached;
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::{ToPython, arguments, list};
use headway_python::exception::{Exception, take_raised_as_text};
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult, Raised};
use headway_python::stored::Stored;
use headway_server::{Adapter, Interpreter, InterpreterObjects};
use std::ffi::CStr;
use std::sync::Arc;

/// The function that runs first in a sub-interpreter.
const ENTRY: (&CStr, &CStr) = (c"headway.server.worker.sub_interpreter", c"enter");
/// More than a process can have on Linux by default. Bounds an allocation.
const MAX_THREADS: usize = 32_768;

pub static FUNCTIONS: Methods<5> = Methods::new([
    function(
        c"interpreter_of_caller",
        of_caller,
        c"interpreter_of_caller(application, report, environs, interruption) -> interpreter\n\
          \n\
          Returns the calling interpreter. report(exception, request) reports an exception of an\n\
          application, environs() makes a list with the items of the environ that never change, a\n\
          dict for each listener, and interruption is a class of exceptions.",
    ),
    function(
        c"interpreter_create",
        create,
        c"interpreter_create(own_gil: bool, threads: int) -> interpreter\n\
          \n\
          Creates a sub-interpreter for a number of worker threads. Raises RuntimeError with the\n\
          reason if that fails. One thread makes, enters and ends all interpreters.",
    ),
    function(
        c"interpreter_enter",
        enter,
        c"interpreter_enter(interpreter, path: list[str], task: str) -> str | None\n\
          \n\
          Sets sys.path inside the sub-interpreter and calls\n\
          headway.server.worker.sub_interpreter.enter(task) there, which returns the arguments of\n\
          interpreter_of_caller, or a str with the reason for a failure.",
    ),
    function(
        c"interpreter_end",
        end,
        c"interpreter_end(interpreter) -> int\n\
          \n\
          Ends a retired interpreter, with its atexit handlers. If threads of the application are\n\
          left the interpreter stays as it is; returns their number.",
    ),
    END,
]);

struct InterpreterCapsule(Arc<Interpreter>);

// SAFETY: no other type has this name.
unsafe impl InCapsule for InterpreterCapsule {
    const NAME: &'static CStr = c"headway._native.interpreter";
}

fn to_capsule(py: Attached<'_>, interpreter: Interpreter) -> PyResult<Object<'_>> {
    capsule::new(py, InterpreterCapsule(Arc::new(interpreter)))
}

pub fn interpreter_in(capsule: &Object) -> PyResult<Arc<Interpreter>> {
    capsule::value(capsule).map(|InterpreterCapsule(interpreter)| Arc::clone(interpreter))
}

fn of_caller<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    to_capsule(py, Interpreter::main(adapter_of(py, given)?))
}

fn create<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (own_gil, threads): (bool, i64) = arguments(py, "interpreter_create", given)?;
    let Some(threads) = usize::try_from(threads).ok().filter(|threads| *threads <= MAX_THREADS)
    else {
        let message = format!("threads: found {threads}; there may be 0 to {MAX_THREADS}");
        return Err(Exception::ValueError.raise(py, &message));
    };
    let created = Interpreter::create(py, own_gil, threads);
    to_capsule(py, created.map_err(|reason| Exception::RuntimeError.raise(py, &reason))?)
}

fn enter<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (capsule, path, task): (&Object, &Object, &str) =
        arguments(py, "interpreter_enter", given)?;
    let interpreter = interpreter_in(capsule)?;
    // Only text crosses from one interpreter to the other.
    let path = path.items()?.iter().map(path_bytes).collect::<PyResult<Vec<_>>>()?;
    let inside = |py: Attached| match prepare(py, &path, task) {
        Ok(Ok(adapter)) => {
            interpreter.set_adapter(adapter);
            None
        }
        Ok(Err(reason)) => Some(reason),
        Err(Raised) => Some(take_raised_as_text(py)),
    };
    let Some(failure) = interpreter.enter(py, inside) else {
        let message = "not a sub-interpreter, or one that has ended";
        return Err(Exception::ValueError.raise(py, message));
    };
    failure.to_python(py)
}

/// Returns the bytes of a path, which need not be valid text.
fn path_bytes(path: &Object) -> PyResult<Vec<u8>> {
    Ok(path.to_path_bytes()?.as_bytes().unwrap_or_default().to_vec())
}

/// Lets Python load the application, inside the sub-interpreter. The inner error is Python's
/// reason.
fn prepare(py: Attached, path: &[Vec<u8>], task: &str) -> PyResult<Result<Adapter, String>> {
    let path = list(py, path, |directory| Object::from_path_bytes(py, directory))?;
    Object::import(py, c"sys")?.set_attribute(c"path", &path)?;
    let (module, function) = ENTRY;
    let task = Object::from_text(py, task)?;
    let result = Object::import(py, module)?.call_method(function, [&task])?;
    if result.is_text() {
        return Ok(Err(result.as_text()?.to_owned()));
    }
    adapter_of(py, &result.items()?).map(Ok)
}

fn adapter_of<'py>(py: Attached<'py>, objects: &[Object<'py>]) -> PyResult<Adapter> {
    let [application, report, environs, interruption] = objects else {
        let message = "expected application, report, environs, interruption";
        return Err(Exception::TypeError.raise(py, message));
    };
    let stored = |object: &Object| Stored::new(object.clone());
    Adapter::new(
        py,
        InterpreterObjects {
            application: stored(application),
            report: stored(report),
            environs: stored(environs),
            interruption: stored(interruption),
        },
    )
}

fn end<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (capsule,): (&Object,) = arguments(py, "interpreter_end", given)?;
    interpreter_in(capsule)?.end(py).err().unwrap_or(0).to_python(py)
}
