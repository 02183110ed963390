//! Installs and removes the meter. Runs in one thread at a time, which holds the main GIL.

use std::ffi::{CString, c_void};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use headway_measure::{clock, tsc};
use headway_threads::c_library::KEYS_WITHOUT_ALLOCATION;

use crate::counters::mapping::{self, MappingError};
use crate::counters::{self, aggregation, free_list};
use crate::gil::addresses::{self, Addresses};
use crate::hook::slots::{self, SlotError};
use crate::hook::{self, elf, loading};
use crate::installation::{self, Change, is_installed};
use crate::loops::{self, reader};
use crate::parked_waits::{self, ThreadStates};
use crate::queue::{self, waiters};
use crate::registry::interpreter_list::NewestInterpreter;
use crate::registry::interpreters::{self, InterpreterId};
use crate::registry::thread_end::end_of_thread;
use crate::registry::{gils, threads};
use crate::{events, fork, learning, membarrier, profile, registry_lock};

/// Facts about the CPython that the meter is installed into.
pub struct Host {
    /// The address of a function in the object that has `take_gil`, such as `PyEval_RestoreThread`.
    pub anchor: *const c_void,
    /// True if a GIL is enabled; false on a free-threaded build that runs without.
    pub gil_enabled: bool,
    /// The address of the main `PyInterpreterState`.
    pub main_interpreter: usize,
    /// True if an own GIL lies inside its `PyInterpreterState` (CPython 3.12 and later).
    pub gil_in_interpreter: bool,
    /// The addresses and IDs of the interpreters that exist.
    pub interpreters: Vec<(usize, i64)>,
    /// `PyInterpreterState_Head`, which returns the newest interpreter. Called without a thread
    /// state.
    pub newest_interpreter: NewestInterpreter,
    /// `PyInterpreterState_GetID`.
    pub interpreter_id: InterpreterId,
    /// Starts a thread that calls `this_thread_is_the_probe`, takes the GIL and drops it. Drops the
    /// caller's GIL once `probe_waits` returns true, or `probe_sleeps` has for a while, takes it
    /// again, and returns when the thread has ended. Returns false if the probe never waited.
    pub contend: fn() -> bool,
    /// The caller's thread state, the last holder of the main GIL.
    pub thread_state: usize,
    /// On a free-threaded build, with its GIL enabled or not: how a thread finds its thread state.
    /// With `None`, the waits of such a build are not counted.
    pub thread_states: Option<ThreadStates>,
    /// The version of the interpreter, for the report.
    pub python: String,
}

/// Where the counters of this process lie.
pub enum Location {
    /// Memory that is shared with forked children and lost with the last of them.
    Memory,
    /// A new file, which any process may read.
    File(CString),
    /// An empty, open file. The caller may close the descriptor afterwards.
    Descriptor(i32),
    /// The file of a run that another process began, and the run's identity.
    Join(CString, u64),
}

/// Why the meter was not installed or removed. The process runs as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Slots(SlotError),
    Ledger(MappingError),
    /// The counters lie elsewhere already and cannot be moved.
    LedgerInUse,
    /// The process has used up the pthread keys that need no allocation.
    NoKey,
    /// A thread that took the GIL was not seen to do so.
    ProbeUnseen,
    /// Another thread is installing or removing the meter.
    Busy,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let strerror = |errno: &i32| std::io::Error::from_raw_os_error(*errno);
        match self {
            Self::Slots(SlotError::NoObject) => {
                write!(f, "the interpreter is statically linked: it has no table of calls to hook")
            }
            Self::Slots(SlotError::NoSlot(symbol)) => {
                write!(f, "the interpreter does not call {symbol} through its table of calls")
            }
            Self::Slots(SlotError::NoFunction(symbol)) => write!(f, "{symbol} was not found"),
            Self::Slots(SlotError::Protected(errno)) => {
                write!(f, "the interpreter's table of calls is protected: {}", strerror(errno))
            }
            Self::Ledger(MappingError::Open(errno)) => {
                write!(f, "the ledger cannot be opened: {}", strerror(errno))
            }
            Self::Ledger(MappingError::Map(errno)) => {
                write!(f, "the ledger cannot be mapped: {}", strerror(errno))
            }
            Self::Ledger(MappingError::NotALedger) => {
                write!(f, "the file is not a ledger of this run")
            }
            Self::LedgerInUse => write!(f, "this process has its counters elsewhere already"),
            Self::NoKey => write!(
                f,
                "all {KEYS_WITHOUT_ALLOCATION} pthread keys that need no allocation are in use"
            ),
            Self::ProbeUnseen => {
                write!(
                    f,
                    "a thread that waited for the GIL was not seen to wait as in known CPythons"
                )
            }
            Self::Busy => write!(f, "another thread installs or removes the meter right now"),
        }
    }
}

/// The `cond` of the main GIL once it is learned; 0 before. Writer and reader: install.
static MAIN_COND: AtomicUsize = AtomicUsize::new(0);

/// Installs the meter with empty counters. Has no effect if it is installed. The caller holds the
/// main GIL, and is the only thread that does until this returns, except during `contend`.
pub fn install(host: &Host, location: Location) -> Result<(), Refusal> {
    let _change = Change::begin().ok_or(Refusal::Busy)?;
    if is_installed() {
        return Ok(());
    }
    if elf::Object::containing(host.anchor).is_none() {
        return Err(Refusal::Slots(SlotError::NoObject));
    }
    prepare_counters(location)?;
    if !threads::create_key(end_of_thread) {
        return Err(Refusal::NoKey);
    }
    let no_memory = Refusal::Ledger(MappingError::Map(0));
    let process = counters::of_this_process().ok_or(no_memory)?;
    tsc::use_if_reliable();
    fork::register();
    membarrier::register();
    interpreters::know_functions(host.newest_interpreter, host.interpreter_id);
    if let Some(states) = host.thread_states {
        parked_waits::know(states);
    }
    slots::patch(host.anchor, &hook::hooks(host.thread_states.is_some()))
        .map_err(Refusal::Slots)?;
    let learned = learn(host).inspect_err(|_| slots::unpatch())?;
    slots::patch_again();
    loading::search_all(host.anchor);

    let now_ns = clock::now_ns();
    loops::begin_anew();
    {
        // Threads end, and are aggregated, without the GIL.
        let _registry = registry_lock::lock();
        gils::keep_main_only();
        threads::forget_links();
        aggregation::forget_ended();
        free_list::reset(process);
        process.reset(now_ns, &host.python, host.gil_enabled);
        process.policy.store(queue::policy() as u32, Relaxed);
    }
    free_list::prepare(process);
    if host.thread_states.is_some() {
        parked_waits::open(process);
    }
    if let Some(main_addresses) = learned {
        let main = gils::know_main(main_addresses);
        let main_interpreter = host.gil_in_interpreter.then_some(host.main_interpreter);
        addresses::learn_interpreter(main_addresses, main_interpreter);
        // SAFETY: the caller holds this GIL, and hooks read no GIL before the installation begins.
        unsafe {
            events::open(main, process, now_ns);
            events::open_held(main, main.locked(), process);
        }
        interpreters::match_interpreters(|| host.interpreters.clone(), process);
    } else {
        learning::watch_for_any_gil();
    }
    installation::begin();
    Ok(())
}

fn prepare_counters(location: Location) -> Result<(), Refusal> {
    match (mapping::header().is_some(), location) {
        (true, Location::Memory) if counters::of_this_process().is_some() => return Ok(()),
        // A forked child of a process that had removed the meter.
        (true, Location::Memory) => Ok(()),
        (true, _) => return Err(Refusal::LedgerInUse),
        (false, Location::Memory) => mapping::create_anonymous(),
        (false, Location::File(path)) => mapping::create_file(&path),
        (false, Location::Descriptor(..0)) => Err(MappingError::Open(libc::EBADF)),
        (false, Location::Descriptor(fd)) => {
            // SAFETY: the caller of `install` passes an open descriptor.
            mapping::create_in(unsafe { BorrowedFd::borrow_raw(fd) })
        }
        (false, Location::Join(path, run)) => mapping::join_file(&path, run),
    }
    .map_err(Refusal::Ledger)?;
    let no_memory = Refusal::Ledger(MappingError::Map(libc::ENOMEM));
    counters::set_of_this_process(mapping::claim().ok_or(no_memory)?);
    Ok(())
}

/// The main GIL's addresses; `None` without a GIL to learn them from.
fn learn(host: &Host) -> Result<Option<Addresses>, Refusal> {
    if !host.gil_enabled {
        return Ok(None);
    }
    let known = MAIN_COND.load(Relaxed);
    if known != 0 {
        return Ok(Some(Addresses::of_cond(known)));
    }
    learning::watch_for_probe();
    let contended = (host.contend)();
    // The place of the holder confirms those of the fields beside it.
    // SAFETY: the main GIL is static memory of CPython's, with fields before `cond`.
    let is_known = |gil: &Addresses| unsafe { gil.read_last_holder() } == host.thread_state;
    let learned = learning::learned().filter(|_| contended).filter(is_known);
    let learned = learned.ok_or(Refusal::ProbeUnseen)?;
    MAIN_COND.store(learned.cond, Relaxed);
    Ok(Some(learned))
}

/// Removes the meter. The counters close and stay readable. The caller holds the main GIL. Threads
/// inside a hook finish there, because the code stays loaded.
pub fn uninstall() -> Result<(), Refusal> {
    let _change = Change::begin().ok_or(Refusal::Busy)?;
    if !is_installed() {
        return Ok(());
    }
    if let Some(process) = counters::of_this_process() {
        gils::close_all(process);
        profile::close(clock::now_ns());
        process.cpu_noted_ns.store(clock::process_cpu_ns(), Relaxed);
        process.closed_ns.store(clock::now_ns(), Relaxed);
    }
    installation::end();
    reader::end();
    slots::unpatch();
    counters::of_this_process().into_iter().for_each(waiters::wake_all);
    gils::all().iter().for_each(|gil| gil.forced_switch.set_in_use(false));
    Ok(())
}
