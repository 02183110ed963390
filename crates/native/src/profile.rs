//! `_native.profile_*`: the contention profile; see `headway.profile`.

use crate::filters;
use crate::frame_layout;
use crate::ledger;
use headway_gil::{Charge, Frame, GilSums, NotBegun, OwnThreadState, Profile, Refusal, sampler};
use headway_python::attached::Attached;
use headway_python::c_api::PyThreadState_Get;
use headway_python::convert::{ToPython, arguments, dict, list, tuple};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult, Raised};
use headway_threads::fork;
use headway_threads::internal_thread::{self, InternalThread};
use headway_threads::lock::Lock;
use std::ffi::{CStr, c_void};

pub static FUNCTIONS: Methods<7> = Methods::new([
    function(
        c"profile_begin",
        begin,
        c"profile_begin(ledger: bytes | None)\n\
          \n\
          Charges waiting to stacks from now on: in the file of the ledger, behind the counters,\n\
          or in memory.",
    ),
    function(
        c"profile_report",
        report,
        c"profile_report() -> bool\n\
          \n\
          Lets a reporter read the profile, which is begun if none is on. Returns whether it can.",
    ),
    function(
        c"profile_read",
        read,
        c"profile_read() -> dict | None\n\
          \n\
          Returns the present or last profile of this process.",
    ),
    function(c"profile_end", end, c"profile_end() -> dict | None"),
    function(c"profile_is_on", is_on, c"profile_is_on() -> bool"),
    function(c"profile_read_ledger", read_ledger, c"profile_read_ledger(fd: int) -> dict | None"),
    END,
]);

/// The sampler's thread. Used by `with_sampler`.
static SAMPLER: Lock<Sampler> = Lock::new(Sampler { pid: 0, thread: SamplerThread::None });

struct Sampler {
    /// The process of the thread: a forked child has no such thread.
    pid: u32,
    thread: SamplerThread,
}

enum SamplerThread {
    None,
    Running(InternalThread),
    /// Another thread joins it.
    Ending,
}

fn with_sampler<T>(act: impl FnOnce(&mut SamplerThread) -> T) -> T {
    // No thread forks meanwhile, so a forked child finds the lock free.
    fork::work(|| {
        let mut sampler = SAMPLER.lock();
        let pid = std::process::id();
        if sampler.pid != pid {
            *sampler = Sampler { pid, thread: SamplerThread::None };
        }
        act(&mut sampler.thread)
    })
}

fn is_sampler_needed() -> bool {
    headway_gil::loops_are_read()
        || (headway_gil::profile_is_on() && headway_gil::profile_knows_holders())
}

/// Starts the sampler's thread, if it does not run, there is something to read, and the program has
/// not forbidden itself system calls. Returns whether it runs. Any thread may do so, without a GIL.
pub fn start_sampler() -> bool {
    if !is_sampler_needed() || filters::were_added() {
        return false;
    }
    with_sampler(|thread| {
        if let SamplerThread::None = thread {
            sampler::begin();
            // Without a thread, stacks are read at drops alone.
            if let Ok(started) = internal_thread::spawn("headway-stacks", sampler::run) {
                *thread = SamplerThread::Running(started);
            }
        }
        !matches!(thread, SamplerThread::None)
    })
}

/// Tells the sampler's thread to end, before `stop_sampler`. Returns at once.
pub fn begin_to_stop_sampler() {
    sampler::stop();
}

pub fn stop_sampler() {
    let running = with_sampler(|thread| match std::mem::replace(thread, SamplerThread::Ending) {
        SamplerThread::Running(running) => Some(running),
        other => {
            *thread = other;
            None
        }
    });
    if let Some(running) = running {
        sampler::stop();
        running.join();
        with_sampler(|thread| *thread = SamplerThread::None);
    }
}

/// Lets the thread read event loops that are late. Called before the meter is installed.
pub fn prepare_to_read_loops(py: Attached) {
    let Some(layout) = frame_layout::layout(py) else { return };
    // SAFETY: a C string.
    let own = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyGILState_GetThisThreadState".as_ptr()) };
    if !own.is_null() {
        // SAFETY: every CPython exports this symbol, as a function of this type.
        let own = unsafe { std::mem::transmute::<*mut c_void, OwnThreadState>(own) };
        headway_gil::prepare_to_read_loops(layout, own, start_sampler);
    }
}

fn refuse(py: Attached, reason: &str) -> Raised {
    Exception::RuntimeError.raise(py, reason)
}

fn begin<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (ledger,): (Option<&CStr>,) = arguments(py, "profile_begin", given)?;
    if !headway_gil::is_installed() {
        return Err(refuse(py, "the meter is not installed"));
    }
    if !py.is_main_interpreter() {
        return Err(refuse(py, "a profile is begun from the main interpreter only"));
    }
    let unknown = "this CPython keeps frames in a way that is not known";
    let layout = frame_layout::layout(py).ok_or_else(|| refuse(py, unknown))?;
    // SAFETY: a thread state is attached.
    let state = unsafe { PyThreadState_Get() } as usize;
    let verify = |calls: &[Frame]| frame_layout::matches(py, calls);
    match headway_gil::begin_profile(layout, state, ledger, verify) {
        Ok(()) => {
            start_sampler();
            Ok(Object::none(py))
        }
        Err(NotBegun::IsOn) => Err(refuse(py, "a profile is on already")),
        Err(NotBegun::NoGil) => Err(refuse(py, "there is no GIL to wait for, and no lock is seen")),
        Err(NotBegun::UnknownFrames) => Err(refuse(py, unknown)),
        Err(NotBegun::Memory(errno)) => {
            Err(refuse(py, &std::io::Error::from_raw_os_error(errno).to_string()))
        }
    }
}

fn report<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    begin_reported(py).to_python(py)
}

/// Lets a reporter read the profile, which is begun if none is on. Returns whether it can.
pub fn begin_reported(py: Attached) -> bool {
    if headway_gil::is_installed() {
        headway_gil::begin_to_read_loops();
    }
    let can = headway_gil::is_installed() && py.is_main_interpreter() && !cfg!(Py_GIL_DISABLED);
    let begun = can.then(|| frame_layout::layout(py)).flatten().is_some_and(|layout| {
        // SAFETY: a thread state is attached.
        let state = unsafe { PyThreadState_Get() } as usize;
        let verify = |calls: &[Frame]| frame_layout::matches(py, calls);
        headway_gil::begin_reported_profile(layout, state, verify).is_ok()
    });
    if begun {
        start_sampler();
    }
    begun
}

/// Ends a profile that only a reporter reads.
pub fn end_reported() {
    if headway_gil::end_reported_profile() {
        stop_sampler();
        // Another thread may have begun a profile meanwhile.
        start_sampler();
    }
}

fn read<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    or_none(py, py.detach(headway_gil::read_profile))
}

fn end<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    let copied = py.detach(|| {
        if !headway_gil::profile_is_reported() {
            stop_sampler();
        }
        let ended = headway_gil::end_profile();
        // Another thread may have begun a profile meanwhile.
        start_sampler();
        ended
    });
    or_none(py, copied)
}

fn is_on<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    headway_gil::profile_is_on().to_python(py)
}

fn read_ledger<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (fd,): (i32,) = arguments(py, "profile_read_ledger", given)?;
    match headway_gil::read_profile_in_ledger(ledger::opened(py, &fd)?) {
        Ok(profile) => or_none(py, profile),
        Err(error) => Err(refuse(py, &Refusal::Ledger(error).to_string())),
    }
}

fn or_none<'py>(py: Attached<'py>, profile: Option<Profile>) -> PyResult<Object<'py>> {
    match profile {
        Some(profile) => profile_dict(py, &profile),
        None => Ok(Object::none(py)),
    }
}

fn profile_dict<'py>(py: Attached<'py>, profile: &Profile) -> PyResult<Object<'py>> {
    let frame = |frame: &Frame| tuple(py, &[&frame.function, &frame.file, &frame.line]);
    let stack = |stack: &Vec<u32>| list(py, stack, |index| index.to_python(py));
    let charge = |charge: &Charge| {
        tuple(
            py,
            &[
                &charge.kind,
                &charge.gil,
                &charge.stack,
                &charge.thread,
                &charge.waiter,
                &charge.charged_ns,
                &charge.readings,
            ],
        )
    };
    let gil = |gil: &GilSums| {
        tuple(
            py,
            &[
                &gil.serial,
                &u64::try_from(gil.interpreter).ok(),
                &gil.name,
                &gil.waited_ns,
                &gil.handoff_ns,
                &gil.held_not_recorded_ns,
                &gil.waits_not_recorded_ns,
            ],
        )
    };
    let thread = |(native_id, name): &(u32, String)| tuple(py, &[native_id, name]);
    dict(
        py,
        &[
            ("began_wall_ns", &profile.began_wall_ns),
            ("wall_ns", &profile.wall_ns),
            ("frames", &list(py, &profile.frames, frame)?),
            ("stacks", &list(py, &profile.stacks, stack)?),
            ("charges", &list(py, &profile.charges, charge)?),
            ("gils", &list(py, &profile.gils, gil)?),
            ("threads", &list(py, &profile.threads, thread)?),
        ],
    )
}
