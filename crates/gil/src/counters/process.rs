//! The counters of one process.

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use headway_measure::clock;

use super::event_loop::LoopCounters;
use super::gil::GilCounters;
use super::late_line::{LATE_LINES, LateLine};
use super::state;
use super::text::{Name, Text};
use super::thread::ThreadCounters;

/// GILs per process. The last two indices are [`NO_GIL`] and [`ENDED_GILS`].
pub const GILS: usize = 64;
/// The index of the sum of GILs that ended; never that of a live GIL.
pub const ENDED_GILS: usize = GILS - 1;
/// The index under which threads count their waits without a GIL; see `parked_waits`.
pub const NO_GIL: usize = GILS - 2;
/// Rows per process: pairs of a thread and a GIL. A row is an index into
/// [`ProcessCounters::threads`].
pub const ROWS: usize = 2048;
/// Event loops per process. The last one is a sum of loops that ended.
pub const LOOPS: usize = 32;
/// Bytes of a command line that are stored; the rest of a longer one is left out.
pub const COMMAND_BYTES: usize = 1024;

/// The counters of one process. All zero bytes are a process that has measured nothing.
#[repr(C, align(4096))]
pub struct ProcessCounters {
    pub pid: AtomicI32,
    /// 1 if the interpreter's GIL was enabled when the program last reported it, else 0.
    pub gil_enabled: AtomicU32,
    /// The switch interval of the main interpreter, as the program last reported it.
    pub switch_interval_us: AtomicU64,
    pub opened_ns: AtomicU64,
    /// When the process stopped measuring; 0 while it measures.
    pub closed_ns: AtomicU64,
    /// Events of threads that found no free row. Writers: hooks, by atomic addition.
    pub unmeasured: AtomicU64,
    /// Rows below this one have been in use. Writers: threads that take a free row, by an atomic
    /// maximum with release, before the row gets a state. Read with acquire.
    pub high_water: AtomicU32,
    /// The policy in force, as an index into `headway_sched::PolicyName::ALL`.
    pub policy: AtomicU32,
    /// 1 if the waits of a free-threaded build are counted; see `parked_waits`.
    pub sees_parks: AtomicU32,
    /// Own GILs that found no room in the table of GILs when their interpreters were made, or when
    /// the meter was installed. Writers: holders of the lock of the table.
    pub unmeasured_gils: AtomicU32,
    /// Threads that waited for events and found no room for a loop. Writers: hooks, by atomic
    /// addition.
    pub unmeasured_loops: AtomicU32,
    /// From which duration on an iteration of an event loop is late. Writer: the program.
    pub late_loop_ns: AtomicU64,
    /// The CPU time of the process when its counters opened.
    pub cpu_opened_ns: AtomicU64,
    /// The CPU time of the process when its counters closed; while they are open, when the process
    /// last made a snapshot.
    pub cpu_noted_ns: AtomicU64,
    pub python: Name,
    /// The process that forked this one; 0 if it was started by exec.
    pub forked_from: AtomicI32,
    /// The parent process when the counters opened; 0 if it is not known.
    pub parent_pid: AtomicI32,
    /// The arguments of the process as the kernel has them, separated by zero bytes; of a forked
    /// process, those of its parent. Empty if they cannot be read.
    pub command: Text<COMMAND_BYTES>,
    pub gils: [GilCounters; GILS],
    pub loops: [LoopCounters; LOOPS],
    pub late_lines: [LateLine; LATE_LINES],
    pub threads: [ThreadCounters; ROWS],
}

impl ProcessCounters {
    /// The counters of a row. For hooks: an impossible row wraps instead of panicking.
    #[inline]
    pub fn thread(&self, row: u32) -> &ThreadCounters {
        &self.threads[row as usize % ROWS]
    }

    /// The counters of a GIL. For hooks: an impossible index wraps instead of panicking.
    #[inline]
    pub fn gil(&self, index: usize) -> &GilCounters {
        &self.gils[index % GILS]
    }

    /// The counters of a loop. For hooks: an impossible index wraps instead of panicking.
    #[inline]
    pub fn event_loop(&self, index: usize) -> &LoopCounters {
        &self.loops[index % LOOPS]
    }

    /// Opens empty counters, except for those of threads, which `free_list` resets.
    pub fn reset(&self, now_ns: u64, python: &str, gil_enabled: bool) {
        self.gils.iter().for_each(|gil| gil.state.store(state::FREE, Relaxed));
        self.gils[ENDED_GILS].clear();
        for each in self.loops.iter().filter(|each| each.state.load(Relaxed) != state::FREE) {
            each.clear();
            each.state.store(state::FREE, Relaxed);
        }
        self.late_lines.iter().for_each(LateLine::clear);
        self.python.set(python.as_bytes());
        // A forked process that installs the meter again keeps its origin.
        if self.parent_pid.load(Relaxed) == 0 {
            // SAFETY: getppid has no preconditions.
            self.parent_pid.store(unsafe { libc::getppid() }, Relaxed);
            self.command.set(&command_of_this_process());
        }
        self.gil_enabled.store(gil_enabled as u32, Relaxed);
        self.unmeasured.store(0, Relaxed);
        self.unmeasured_gils.store(0, Relaxed);
        self.unmeasured_loops.store(0, Relaxed);
        self.sees_parks.store(0, Relaxed);
        self.open_cpu_time();
        self.closed_ns.store(0, Relaxed);
        self.opened_ns.store(now_ns, Relaxed);
    }

    /// Opens the counters of a forked child of the process that `parent` belongs to.
    pub fn begin_like(&self, parent: &ProcessCounters, now_ns: u64) {
        self.python.copy_from(&parent.python);
        let parent_pid = parent.pid.load(Relaxed);
        self.parent_pid.store(parent_pid, Relaxed);
        self.forked_from.store(parent_pid, Relaxed);
        self.command.copy_from(&parent.command);
        self.gil_enabled.store(parent.gil_enabled.load(Relaxed), Relaxed);
        self.policy.store(parent.policy.load(Relaxed), Relaxed);
        self.switch_interval_us.store(parent.switch_interval_us.load(Relaxed), Relaxed);
        self.sees_parks.store(parent.sees_parks.load(Relaxed), Relaxed);
        self.late_loop_ns.store(parent.late_loop_ns.load(Relaxed), Relaxed);
        self.open_cpu_time();
        self.opened_ns.store(now_ns, Relaxed);
    }

    /// The arguments of the process. Each ends with a zero byte if it was stored completely.
    pub fn arguments(&self) -> Vec<String> {
        let mut buffer = [0; COMMAND_BYTES];
        let command = self.command.get(&mut buffer);
        let command = command.strip_suffix(b"\0").unwrap_or(command);
        match command.is_empty() {
            true => Vec::new(),
            false => command
                .split(|byte| *byte == 0)
                .map(|argument| String::from_utf8_lossy(argument).into_owned())
                .collect(),
        }
    }

    fn open_cpu_time(&self) {
        let cpu_ns = clock::process_cpu_ns();
        self.cpu_opened_ns.store(cpu_ns, Relaxed);
        self.cpu_noted_ns.store(cpu_ns, Relaxed);
    }
}

/// The beginning of the command line. Allocates: not for hooks.
fn command_of_this_process() -> Vec<u8> {
    use std::io::Read;
    let mut command = Vec::new();
    if let Ok(file) = std::fs::File::open("/proc/self/cmdline") {
        // After an error, the bytes that were read are still the beginning.
        let _ = file.take(COMMAND_BYTES as u64 + 4).read_to_end(&mut command);
    }
    command
}

/// The counters of this process; null before the first install. Writers: an install and a forked
/// child, while no other thread runs a hook. Readers: all threads, relaxed. Never unmapped.
static OF_THIS_PROCESS: AtomicPtr<ProcessCounters> = AtomicPtr::new(std::ptr::null_mut());

pub fn set_of_this_process(process: &'static ProcessCounters) {
    OF_THIS_PROCESS.store(std::ptr::from_ref(process).cast_mut(), Relaxed);
}

/// Forgets the counters in a forked child, because they are the parent's.
pub fn forget_process() {
    OF_THIS_PROCESS.store(std::ptr::null_mut(), Relaxed);
}

/// The counters of this process; `None` before the first install.
#[inline]
pub fn of_this_process() -> Option<&'static ProcessCounters> {
    // SAFETY: null, or a mapping that is never unmapped.
    unsafe { OF_THIS_PROCESS.load(Relaxed).as_ref() }
}
