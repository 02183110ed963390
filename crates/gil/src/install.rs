//! Installs and removes the meter. Runs in one thread at a time, which holds the main GIL.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use headway_measure::clock;

use crate::counters;
use crate::counters::free_list;
use crate::counters::mapping;
use crate::counters::mapping::RegionError;
use crate::hook;
use crate::hook::elf;
use crate::hook::slots;
use crate::hook::slots::SlotError;
use crate::parked_waits;
use crate::parked_waits::ThreadStates;
use crate::queue::waiters;
use crate::registry::gil::EPOCH;
use crate::registry::{gils, threads};
use crate::{events, fork, learning, queue};

/// What the engine needs to know of the CPython that it is installed into.
pub struct Host {
    /// Address of a function in the object that holds `take_gil`, such as `PyEval_RestoreThread`.
    pub anchor: *const c_void,
    /// Whether there is a GIL to contend for now; `false` in a free-threaded build that runs without.
    pub gil_enabled: bool,
    /// Address of the main `PyInterpreterState`.
    pub main_interpreter: usize,
    /// Whether an own GIL lies inside its `PyInterpreterState` (CPython 3.12 and later).
    pub gil_in_interpreter: bool,
    /// Addresses and ids of the interpreters that exist now.
    pub interpreters: Vec<(usize, i64)>,
    /// `PyInterpreterState_Head`: the interpreter that was made last. Called without a thread state.
    pub newest_interpreter: unsafe extern "C" fn() -> *mut c_void,
    /// `PyInterpreterState_GetID`.
    pub interpreter_id: unsafe extern "C" fn(*mut c_void) -> i64,
    /// Starts a thread that calls [`this_thread_is_the_probe`], takes the GIL and drops it; drops the
    /// caller's GIL once [`probe_waits`], and returns with it when the thread has ended. `false` if
    /// the probe never waited.
    pub contend: fn() -> bool,
    /// In a free-threaded build, with its GIL on or off: how a thread tells what it waits for. `None` where there is no
    /// telling, and then these waits are not counted.
    pub thread_states: Option<ThreadStates>,
    /// The interpreter's version, for the report.
    pub python: String,
}

pub use learning::{probe_waits, this_thread_is_the_probe};

/// Where the books of this process are kept.
pub enum Place {
    /// Shared with forked children, lost with the last of them.
    Memory,
    /// A file, created or emptied; any process may read it.
    File(CString),
    /// An empty file that is open, of which the caller may close the descriptor.
    Descriptor(i32),
    /// The file of a run that another process began, and the run's identity.
    Join(CString, u64),
}

/// Why the meter was not installed. The process runs on as it did before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Slots(SlotError),
    Ledger(RegionError),
    /// A ledger is in use already, and cannot be moved.
    LedgerInUse,
    /// The process has used up the pthread keys that need no allocation.
    NoKey,
    /// A thread that took the GIL was not seen to do so.
    ProbeUnseen,
    /// Another thread installs or removes the meter now.
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
            Self::Ledger(RegionError::Open(errno)) => {
                write!(f, "the ledger cannot be opened: {}", strerror(errno))
            }
            Self::Ledger(RegionError::Map(errno)) => {
                write!(f, "the ledger cannot be mapped: {}", strerror(errno))
            }
            Self::Ledger(RegionError::NotALedger) => {
                write!(f, "the file is not a ledger of this run")
            }
            Self::LedgerInUse => write!(f, "this process keeps its books elsewhere already"),
            Self::NoKey => write!(f, "all 32 pthread keys that need no allocation are in use"),
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

/// 1 while a thread installs or removes the meter. Set by swap; cleared by that thread, or by a forked
/// child that has only another.
static CHANGING: AtomicU32 = AtomicU32::new(0);

struct Changing;

impl Changing {
    fn begin() -> Result<Self, Refusal> {
        if CHANGING.swap(1, Acquire) == 1 { Err(Refusal::Busy) } else { Ok(Self) }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.store(0, Release);
    }
}

/// In a forked child: whoever was installing is not here any more.
pub fn forget_change_under_way() {
    CHANGING.store(0, Relaxed);
}

static NEXT_EPOCH: AtomicU32 = AtomicU32::new(1);
static NEWEST_INTERPRETER: AtomicUsize = AtomicUsize::new(0);
static INTERPRETER_ID: AtomicUsize = AtomicUsize::new(0);
/// Addresses of the main GIL, once learned: `cond`, or 0.
static MAIN_COND: AtomicUsize = AtomicUsize::new(0);

/// The id of the interpreter at an address if it is the one made last. For the thread that is making
/// it, and never with a GIL's mutex held.
pub fn id_if_newest(interpreter: usize) -> Option<i64> {
    let newest = NEWEST_INTERPRETER.load(Relaxed);
    let get_id = INTERPRETER_ID.load(Relaxed);
    if newest == 0 || get_id == 0 {
        return None;
    }
    // SAFETY: stored by `install` from functions of these types. Both read one field; the id is asked of
    // an interpreter only that is the newest of CPython's own list.
    unsafe {
        let newest: unsafe extern "C" fn() -> *mut c_void = std::mem::transmute(newest);
        let get_id: unsafe extern "C" fn(*mut c_void) -> i64 = std::mem::transmute(get_id);
        let newest = newest();
        (newest as usize == interpreter).then(|| get_id(newest))
    }
}

pub fn is_installed() -> bool {
    EPOCH.load(Acquire) != 0
}

/// Installs the meter with clean books; does nothing if it is installed. The caller holds the main
/// GIL, and is the only thread that does so until this returns, but for the time of `contend`.
pub fn install(host: &Host, place: Place) -> Result<(), Refusal> {
    let _changing = Changing::begin()?;
    if is_installed() {
        return Ok(());
    }
    if elf::Object::containing(host.anchor).is_none() {
        return Err(Refusal::Slots(SlotError::NoObject));
    }
    prepare_ledger(place)?;
    if !threads::prepare_key() {
        return Err(Refusal::NoKey);
    }
    let Some(slot) = counters::slot() else { return Err(Refusal::Ledger(RegionError::Map(0))) };
    fork::register();
    gils::register_memory_barrier();
    NEWEST_INTERPRETER.store(host.newest_interpreter as *const () as usize, Relaxed);
    INTERPRETER_ID.store(host.interpreter_id as *const () as usize, Relaxed);
    if let Some(states) = host.thread_states {
        parked_waits::know(states);
    }
    slots::patch(host.anchor, &hook::hooks(host.thread_states.is_some()))
        .map_err(Refusal::Slots)?;
    let learned = learn(host).inspect_err(|_| slots::unpatch())?;
    slots::patch_again();

    let now_ns = clock::now_ns();
    {
        // Threads end, and are folded, without the GIL.
        let _registry = threads::Registry::lock();
        gils::keep_main_only();
        threads::forget_all();
        free_list::reset(slot);
        slot.reset(now_ns, &host.python, host.gil_enabled);
        slot.policy.store(queue::policy() as u32, Relaxed);
    }
    free_list::prepare(slot);
    if host.thread_states.is_some() {
        parked_waits::open(slot);
    }
    if let Some(addresses) = learned {
        let main = gils::know_main(addresses);
        let cond_after_interpreter = match host.gil_in_interpreter {
            true => addresses.cond.wrapping_sub(host.main_interpreter),
            false => 0,
        };
        learning::set_cond_after_interpreter(cond_after_interpreter);
        // SAFETY: we hold this GIL, and hooks look at no GIL before the epoch is set.
        unsafe {
            main.open(slot, now_ns);
            events::open_held(main, main.locked(), slot);
        }
        gils::match_interpreters(&host.interpreters, slot);
    } else {
        learning::look_for_any_gil();
    }
    EPOCH.store(NEXT_EPOCH.fetch_add(1, Relaxed), SeqCst);
    Ok(())
}

fn prepare_ledger(place: Place) -> Result<(), Refusal> {
    match (mapping::header().is_some(), place) {
        (true, Place::Memory) if counters::slot().is_some() => return Ok(()),
        // A forked child of a process that had removed the meter.
        (true, Place::Memory) => Ok(()),
        (true, _) => return Err(Refusal::LedgerInUse),
        (false, Place::Memory) => mapping::create_anonymous(),
        (false, Place::File(path)) => mapping::create_file(&path),
        (false, Place::Descriptor(fd)) => mapping::create_in(fd),
        (false, Place::Join(path, run)) => mapping::join_file(&path, run),
    }
    .map_err(Refusal::Ledger)?;
    let slot = mapping::claim().ok_or(Refusal::Ledger(RegionError::Map(libc::ENOMEM)))?;
    counters::set_slot(slot);
    Ok(())
}

/// The main GIL's addresses; `None` where there is no GIL to learn them from.
fn learn(host: &Host) -> Result<Option<learning::Addresses>, Refusal> {
    if !host.gil_enabled {
        return Ok(None);
    }
    let known = MAIN_COND.load(Relaxed);
    if known != 0 {
        return Ok(Some(learning::layout().of(known)));
    }
    learning::look_for_probe();
    let contended = (host.contend)();
    let learned = learning::learned().filter(|_| contended).ok_or(Refusal::ProbeUnseen)?;
    MAIN_COND.store(learned.cond, Relaxed);
    Ok(Some(learned))
}

/// Removes the meter. The books close and stay readable. The caller holds the main GIL. Threads inside a
/// hook finish there: the code stays loaded.
pub fn uninstall() -> Result<(), Refusal> {
    let _changing = Changing::begin()?;
    if !is_installed() {
        return Ok(());
    }
    if let Some(slot) = counters::slot() {
        gils::close_all(slot);
        slot.cpu_noted_ns.store(clock::process_cpu_ns(), Relaxed);
        slot.closed_ns.store(clock::now_ns(), Relaxed);
    }
    EPOCH.store(0, SeqCst);
    slots::unpatch();
    counters::slot().into_iter().for_each(waiters::call_all);
    gils::all().iter().for_each(|gil| gil.switch.set_in_use(false));
    Ok(())
}
