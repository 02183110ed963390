//! `_native.gil_*`: the meter, for `headway.gil`. Times are nanoseconds.
//!
//! Errors of the meter are RuntimeError; `headway.gil` turns them into its own documented
//! exceptions.

use crate::filters;
use crate::host::host;
use crate::interpreters::{interpreters_and_ids, match_interpreters, note_main_interpreter};
use crate::ledger;
use crate::profile;
use crate::report::{process_dict, trace_dict};
use headway_gil::{Location, PolicyName, Refusal};
use headway_measure::clock::now_ns;
use headway_python::attached::Attached;
use headway_python::convert::{FromPython, ToPython, arguments, list, tuple};
use headway_python::exception::{Exception, clear_raised};
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult, Raised};
use std::cell::Cell;
use std::ffi::CStr;

pub static FUNCTIONS: Methods<21> = Methods::new([
    function(
        c"gil_install",
        install,
        c"gil_install(policy: str | None, kernel_hints: bool, ledger: bytes | int | None,\n\
          run: int | None)\n\
          \n\
          `ledger` is a path, or the descriptor of an empty file. If the meter is installed\n\
          already, its policy changes and its ledger stays.",
    ),
    function(c"gil_policies", policies, c"gil_policies() -> list[tuple[str, str]]"),
    function(c"gil_uninstall", uninstall, c"gil_uninstall()"),
    function(c"gil_installed", installed, c"gil_installed() -> bool"),
    function(c"gil_snapshot", snapshot, c"gil_snapshot() -> dict | None"),
    function(c"gil_read_ledger", read_ledger, c"gil_read_ledger(fd: int) -> dict"),
    function(
        c"gil_begin_trace",
        begin_trace,
        c"gil_begin_trace(events: int, ledger: bytes | None)\n\
          \n\
          Keeps the last `events` events, or a few more, from now on: in the file of the ledger,\n\
          behind the counters, or in memory.",
    ),
    function(
        c"gil_read_trace",
        read_trace,
        c"gil_read_trace() -> dict | None\n\
          \n\
          Ends the trace of this process, if there is one.",
    ),
    function(
        c"gil_memory_error",
        memory_error,
        c"gil_memory_error() -> int\n\
          \n\
          Why the kernel reads no stacks of running threads here, as an errno; 0 if it does.",
    ),
    function(
        c"gil_read_ledger_trace",
        read_ledger_trace,
        c"gil_read_ledger_trace(fd: int) -> dict | None",
    ),
    function(
        c"gil_note_collection",
        note_collection,
        c"gil_note_collection(phase: str, info: dict)\n\
          \n\
          A callback for `gc.callbacks`, by which the meter knows what the garbage collector keeps\n\
          the GIL for. It returns None whatever its arguments: CPython would print an exception on\n\
          stderr at each pass.",
    ),
    function(c"gil_name_thread", name_thread, c"gil_name_thread(native_id: int, name: bytes)"),
    function(
        c"gil_name_gil",
        name_gil,
        c"gil_name_gil(name: bytes)\n\
          \n\
          Names the GIL of the calling interpreter, if it has a GIL of its own.",
    ),
    function(
        c"gil_set_switch_interval",
        set_switch_interval,
        c"gil_set_switch_interval(ns: int | None)\n\
          \n\
          Gives the calling thread a switch interval of its own, which is its slice under a\n\
          policy. None restores the GIL's.",
    ),
    function(
        c"gil_match_interpreters",
        match_ended_interpreters,
        c"gil_match_interpreters()\n\
          \n\
          Closes the counters of interpreters that ended.",
    ),
    function(
        c"gil_interpreters",
        interpreters,
        c"gil_interpreters() -> list[tuple[int, bool]]\n\
          \n\
          Returns the interpreters, the newest first, and for each whether it has a GIL beside the\n\
          main one. Only a process that was measured knows that.",
    ),
    function(
        c"loops_late_from",
        set_late_loop,
        c"loops_late_from(ns: int)\n\
          \n\
          From which duration on an iteration of an event loop is late.",
    ),
    function(
        c"loops_read",
        begin_to_read_loops,
        c"loops_read()\n\
          \n\
          Reads the stacks of event loops that are late from now on, and not only from the first one.",
    ),
    function(
        c"loops_leave",
        leave_loops,
        c"loops_leave()\n\
          \n\
          The time until each loop waits for events again is no iteration.",
    ),
    function(c"gil_run", run_identity, c"gil_run() -> int | None"),
    END,
]);

/// Returns the purpose of a policy, in one line of `--help`.
const fn purpose(policy: PolicyName) -> &'static str {
    match policy {
        PolicyName::Interval => "CPython's own rule, watched and not changed",
        PolicyName::Priority => "threads that wait for I/O before CPU-bound threads",
        PolicyName::Deadline => "every thread in turn, by deadline",
    }
}

/// Returns the policies that can be installed, each with its purpose. Works without the meter.
fn policies<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    list(py, PolicyName::ALL, |policy| tuple(py, &[&policy.as_str(), &purpose(policy)]))
}

fn refuse(py: Attached, reason: &str) -> Raised {
    Exception::RuntimeError.raise(py, reason)
}

fn install<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (policy, kernel_hints, ledger, run): (Option<&str>, bool, &Object, Option<u64>) =
        arguments(py, "gil_install", given)?;
    let place = if ledger.is_none() {
        Location::Memory
    } else if ledger.is_int() {
        Location::Descriptor(i32::from_python(ledger)?)
    } else {
        let path = <&CStr>::from_python(ledger)?.to_owned();
        match run {
            None => Location::File(path),
            Some(run) => Location::Join(path, run),
        }
    };
    if !py.is_main_interpreter() {
        return Err(refuse(py, "it is installed from the main interpreter only"));
    }
    let named = |name| PolicyName::ALL.into_iter().find(|policy| policy.as_str() == name);
    let policy = policy
        .map(|name| named(name).ok_or_else(|| refuse(py, "there is no such policy")))
        .transpose()?;
    if !headway_gil::is_installed() {
        filters::note();
    }
    profile::prepare_to_read_loops(py);
    headway_gil::install(&host(py), place).map_err(|error| refuse(py, &error.to_string()))?;
    if let Some(policy) = policy {
        headway_gil::set_policy(policy, kernel_hints);
    }
    note_main_interpreter(py);
    Ok(Object::none(py))
}

fn uninstall<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    if !py.is_main_interpreter() {
        return Err(refuse(py, "it is removed from the main interpreter only"));
    }
    note_main_interpreter(py);
    headway_gil::uninstall().map_err(|error| refuse(py, &error.to_string()))?;
    // The thread of the sampler takes no GIL.
    profile::stop_sampler();
    profile::start_sampler();
    Ok(Object::none(py))
}

fn installed<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    headway_gil::is_installed().to_python(py)
}

fn snapshot<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    if headway_gil::is_installed() {
        note_main_interpreter(py);
        match_interpreters(py);
    }
    let copied = py.detach(|| {
        headway_gil::settle_late_stacks();
        headway_gil::snapshot()
    });
    match copied {
        Some(snapshot) => process_dict(py, &snapshot),
        None => Ok(Object::none(py)),
    }
}

fn read_ledger<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (fd,): (i32,) = arguments(py, "gil_read_ledger", given)?;
    match headway_gil::read_ledger(ledger::opened(py, &fd)?) {
        Ok(snapshot) => process_dict(py, &snapshot),
        Err(error) => Err(refuse(py, &Refusal::Ledger(error).to_string())),
    }
}

fn memory_error<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    headway_gil::memory_error().to_python(py)
}

fn begin_trace<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (events, ledger): (u64, Option<&CStr>) = arguments(py, "gil_begin_trace", given)?;
    if !py.is_main_interpreter() {
        return Err(refuse(py, "a trace is begun from the main interpreter only"));
    }
    match headway_gil::begin_trace(events, ledger) {
        Ok(()) => Ok(Object::none(py)),
        Err(errno) => Err(refuse(py, &std::io::Error::from_raw_os_error(errno).to_string())),
    }
}

fn read_trace<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    match py.detach(headway_gil::read_trace) {
        Some(trace) => trace_dict(py, &trace),
        None => Ok(Object::none(py)),
    }
}

fn read_ledger_trace<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (fd,): (i32,) = arguments(py, "gil_read_ledger_trace", given)?;
    match headway_gil::read_trace_in_ledger(ledger::opened(py, &fd)?) {
        Ok(Some(trace)) => trace_dict(py, &trace),
        Ok(None) => Ok(Object::none(py)),
        Err(error) => Err(refuse(py, &Refusal::Ledger(error).to_string())),
    }
}

thread_local! {
    /// When the pass of the collector in this thread began; 0 while there is none.
    static COLLECTION_BEGAN_NS: Cell<u64> = const { Cell::new(0) };
}

fn note_collection<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    if let [phase, _] = given {
        if phase.is_text() {
            match phase.as_text() {
                Ok("start") => {
                    COLLECTION_BEGAN_NS.set(now_ns());
                    headway_gil::collection_began();
                }
                // Without a start, the callback was added during the pass.
                Ok("stop") => match COLLECTION_BEGAN_NS.take() {
                    0 => {}
                    began_ns => headway_gil::collection_ended(began_ns, now_ns()),
                },
                Ok(_) => {}
                Err(_) => clear_raised(py),
            }
        }
    }
    Ok(Object::none(py))
}

fn name_thread<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (native_id, name): (u32, &CStr) = arguments(py, "gil_name_thread", given)?;
    // SAFETY: no preconditions.
    match unsafe { libc::gettid() } as u32 == native_id {
        true => headway_gil::name_this_thread(name.to_bytes()),
        false => headway_gil::name_thread(native_id, name.to_bytes()),
    }
    Ok(Object::none(py))
}

fn name_gil<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (name,): (&CStr,) = arguments(py, "gil_name_gil", given)?;
    headway_gil::name_gil_of(py.interpreter_id(), name.to_bytes());
    Ok(Object::none(py))
}

fn set_switch_interval<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (interval_ns,): (Option<u64>,) = arguments(py, "gil_set_switch_interval", given)?;
    headway_gil::set_switch_interval_of_this_thread(interval_ns);
    Ok(Object::none(py))
}

fn match_ended_interpreters<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    match match_interpreters(py) {
        true => Ok(Object::none(py)),
        false => Err(refuse(py, "interpreters are matched from the main interpreter only")),
    }
}

fn interpreters<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    list(py, interpreters_and_ids(py), |(interpreter, id)| {
        tuple(py, &[&id, &(id != 0 && headway_gil::owns_gil(interpreter))])
    })
}

fn set_late_loop<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (late_ns,): (u64,) = arguments(py, "loops_late_from", given)?;
    headway_gil::set_late_loop_ns(late_ns);
    Ok(Object::none(py))
}

fn begin_to_read_loops<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    headway_gil::begin_to_read_loops();
    Ok(Object::none(py))
}

fn leave_loops<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    headway_gil::leave_present_iterations();
    Ok(Object::none(py))
}

fn run_identity<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    headway_gil::run_identity().to_python(py)
}
