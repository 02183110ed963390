//! A last report for a process that a signal ends (SIGTERM, say), where the program leaves it at its
//! default.
//!
//! Python code cannot run then: the main thread may be in a C call that never returns. So a C-level
//! handler copies the ledger to a memfd, starts a prepared command that reports it, waits a
//! while for that, and lets the signal end the process as it would have. Python does not see the
//! handler: `signal.getsignal()` was filled in before it and stays SIG_DFL. A program that sets a
//! handler of its own simply replaces it; where it puts the default back, so does `defaults` the
//! handler.
//!
//! `replaced` sees to the books when the program replaces itself by exec, `privileges` keeps the way
//! to the report's file open when it gives up its rights.
//!
//! Knows nothing of what the command does or what a ledger holds. `arm` and `disarm` run in the
//! thread that calls `_native.report_on_signals`, with a thread state; `on_signal` in whichever
//! thread the kernel chose, at any point of it, so there only async-signal-safe calls are made
//! (signal-safety(7), raw system calls, `headway_gil::write_ledger`).
//!
//! A forked child inherits the handler and is not the owner: there it does what the default would.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use pyo3_ffi::*;

use crate::{Methods, method};

mod defaults;
mod privileges;
mod replaced;

use defaults::SIGNALS;

/// How long the dying process waits for its report: it holds on to its sockets meanwhile. The
/// command goes on by itself after that.
const PATIENCE_MS: u32 = 10_000;
const POLL_MS: u32 = 2;
const POLL_NS: c_long = POLL_MS as c_long * 1_000_000;

/// What the handler needs, made before any signal.
struct Prepared {
    /// The process that reports.
    owner: libc::pid_t,
    /// Null-terminated arrays for execve; their strings are leaked with them.
    arguments: Box<[*const c_char]>,
    environment: Box<[*const c_char]>,
    /// A file to remove: in any case, or once the command has succeeded.
    ledger: Option<CString>,
    keep_ledger: bool,
    /// Of the thread that reports to a recorder; 0 if there is none.
    bell: u32,
    /// The line that says where the books are if the command cannot be started.
    failure: CString,
}

/// Writers: `arm`, under the GIL or its critical section; reader: `on_signal`. A replaced one is
/// leaked, since a handler may be reading it.
static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(ptr::null_mut());

/// | STATE | meaning | set by | next |
/// |---|---|---|---|
/// | `DISARMED` | a signal ends the process, no more | `disarm`, initially | `ARMED` |
/// | `ARMED` | the next signal reports | `arm` | `REPORTING`, `DISARMED` |
/// | `REPORTING` | a report is being made; another signal ends the process at once | `on_signal` | `DISARMED` |
static STATE: AtomicU32 = AtomicU32::new(DISARMED);
const DISARMED: u32 = 0;
const ARMED: u32 = 1;
const REPORTING: u32 = 2;

static METHODS: Methods<4> = Methods([
    method(
        c"report_on_signals",
        report_on_signals,
        c"report_on_signals(command: list[bytes] | None, ledger: bytes | None, keep_ledger: bool,\n\
          bell: int = 0, json: bytes | None = None)\n\
          \n\
          Has SIGTERM and other signals whose default ends the process, while they are at it,\n\
          first run `command` with the ledger on its stdin and stdout turned to stderr, then\n\
          remove the file `ledger` (with\n\
          `keep_ledger`: only if the command succeeded). Meanwhile the reporter with this\n\
          telemetry_bell() tells its recorder. `json` is a file that the command writes: it is\n\
          opened before the program gives up rights, and is then descriptor 3 of the command. None\n\
          takes all that back.",
    ),
    method(
        c"report_after_exec",
        report_after_exec,
        c"report_after_exec(settings: bytes, interpreter: bytes, in_file: bool)\n\
          \n\
          Has the program go on being measured where it replaces itself, by exec, by `interpreter`:\n\
          HEADWAY_RUN is set there to `settings`, `:`, a descriptor of a copy of the ledger (-1 with\n\
          `in_file`), `:` and the run. Where it becomes anything else, or report_after_exec() was\n\
          not called, the command of report_on_signals() runs before.",
    ),
    method(
        c"kept_open",
        kept_open,
        c"kept_open() -> tuple[int, int]\n\
          \n\
          Descriptors of the report's file and of the ledger's folder, which were opened when the\n\
          program gave up rights; -1 for one that was not, or is closed.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn report_on_signals(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let mut command: *mut PyObject = ptr::null_mut();
    let mut ledger: *mut PyObject = ptr::null_mut();
    let mut keep_ledger: c_int = 0;
    let mut bell: c_uint = 0;
    let mut json: *mut PyObject = ptr::null_mut();
    // SAFETY: `O` stores a borrowed reference that lives as long as `arguments`, `p` an int, `I` an
    // unsigned one.
    let parsed = unsafe {
        PyArg_ParseTuple(
            arguments,
            c"OOp|IO:report_on_signals".as_ptr(),
            &mut command,
            &mut ledger,
            &mut keep_ledger,
            &mut bell,
            &mut json,
        )
    };
    if parsed == 0 {
        return ptr::null_mut();
    }
    // SAFETY: they are live objects for as long as `arguments` is.
    unsafe {
        if command == Py_None() {
            disarm();
        } else {
            let Some(words) = c_strings(command) else { return ptr::null_mut() };
            let Some(ledger) = optional_path(ledger) else { return ptr::null_mut() };
            let Some(json) = optional_path(json) else { return ptr::null_mut() };
            privileges::announce(json, ledger.clone());
            arm(words, ledger, keep_ledger != 0, bell);
        }
    }
    crate::gil::none()
}

unsafe extern "C" fn report_after_exec(
    _module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let mut settings: *const c_char = ptr::null();
    let mut interpreter: *const c_char = ptr::null();
    let mut in_file: c_int = 0;
    // SAFETY: `y` stores C strings that live as long as `arguments`, and are copied; `p` an int.
    unsafe {
        let format = c"yyp:report_after_exec".as_ptr();
        if PyArg_ParseTuple(arguments, format, &mut settings, &mut interpreter, &mut in_file) == 0 {
            return ptr::null_mut();
        }
        replaced::announce(replaced::Successor {
            settings: CStr::from_ptr(settings).to_owned(),
            interpreter: CStr::from_ptr(interpreter).to_owned(),
            in_file: in_file != 0,
        });
    }
    crate::gil::none()
}

unsafe extern "C" fn kept_open(_module: *mut PyObject, _arguments: *mut PyObject) -> *mut PyObject {
    let (file, folder) = privileges::kept_open();
    // SAFETY: two ints, as the format says.
    unsafe { Py_BuildValue(c"(ii)".as_ptr(), file, folder) }
}

/// A copy of a bytes object, `Some(None)` of None or null; `None` with a Python exception set if it is
/// neither.
///
/// # Safety
/// `path` is a live object or null, and a thread state is attached.
unsafe fn optional_path(path: *mut PyObject) -> Option<Option<CString>> {
    // SAFETY: as the caller promises.
    unsafe {
        match path.is_null() || path == Py_None() {
            true => Some(None),
            false => c_string(path).map(Some),
        }
    }
}

/// A copy of a bytes object; `None` with a Python exception set if it is none.
///
/// # Safety
/// `bytes` is a live object or null with an exception set, and a thread state is attached.
unsafe fn c_string(bytes: *mut PyObject) -> Option<CString> {
    // SAFETY: PyBytes_AsString checks for bytes; the string is copied before anything else runs.
    unsafe {
        let text = if bytes.is_null() { ptr::null_mut() } else { PyBytes_AsString(bytes) };
        (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
    }
}

/// The elements of a list of bytes; `None` with a Python exception set if it is none.
///
/// # Safety
/// `list` is a live object, and a thread state is attached.
unsafe fn c_strings(list: *mut PyObject) -> Option<Vec<CString>> {
    // SAFETY: PyList_GetItem checks the type and the index, and gives a borrowed reference.
    unsafe {
        let length = PyList_Size(list);
        if length < 0 {
            return None;
        }
        (0..length).map(|index| c_string(PyList_GetItem(list, index))).collect()
    }
}

/// A leaked array for execve, with its null at the end.
fn exec_array(words: impl IntoIterator<Item = CString>) -> Box<[*const c_char]> {
    let leaked = words.into_iter().map(|word| word.into_raw().cast_const());
    leaked.chain([ptr::null()]).collect()
}

fn arm(command: Vec<CString>, ledger: Option<CString>, keep_ledger: bool, bell: u32) {
    use std::os::unix::ffi::OsStringExt;
    // SAFETY: getpid has no preconditions.
    let owner = unsafe { libc::getpid() };
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let mut entry = name.into_vec();
        entry.push(b'=');
        entry.extend(value.into_vec());
        CString::new(entry).ok()
    });
    let prepared = Box::new(Prepared {
        owner,
        arguments: exec_array(command),
        environment: exec_array(environment),
        failure: failure_line(ledger.as_deref().filter(|_| keep_ledger)),
        ledger,
        keep_ledger,
        bell,
    });
    PREPARED.store(Box::into_raw(prepared), Release);
    STATE.store(ARMED, Release);
    // An interpreter without such slots is like a program whose C code makes these calls: it has
    // the report at its end.
    let anchor = crate::host::anchor();
    let _ = headway_gil::patch_for_good(anchor, &replaced::hooks());
    let _ = headway_gil::patch_for_good(anchor, &privileges::hooks());
    // PID 1 of a container ignores signals that are at their default; a handler would change that.
    if owner == 1 {
        return;
    }
    let _ = headway_gil::patch_for_good(anchor, &[defaults::hook()]);
    let action = handled_action();
    for signal in SIGNALS {
        if action_of(signal) == Some(libc::SIG_DFL) {
            // SAFETY: a valid action; `on_signal` is async-signal-safe.
            unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        }
    }
}

fn failure_line(ledger: Option<&CStr>) -> CString {
    let place = ledger.map(|path| format!(": the books are in {}", path.to_string_lossy()));
    let line = format!(
        "headway run: no report, since Python cannot be started from here{}\n",
        place.unwrap_or_default()
    );
    CString::new(line).unwrap_or_default()
}

/// The action with which a signal reports. Async-signal-safe.
fn handled_action() -> libc::sigaction {
    // SAFETY: zero bytes are a valid action; the set is our own. SA_ONSTACK: runtimes with small
    // stacks of their own ask for it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        action
    }
}

fn is_on_signal(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_signal as *const () as usize
}

/// Whether this process is the one that reports, and has not done so. Async-signal-safe.
fn may_report() -> bool {
    // SAFETY: null, or a leaked `Prepared` that stays as it was made; getpid has no preconditions.
    let owner = unsafe {
        PREPARED.load(Acquire).as_ref().is_some_and(|prepared| prepared.owner == libc::getpid())
    };
    owner && STATE.load(Acquire) == ARMED
}

fn disarm() {
    for signal in SIGNALS {
        if action_of(signal) == Some(on_signal as *const () as usize) {
            restore_default(signal);
        }
    }
    STATE.store(DISARMED, Release);
}

/// The handler of `signal`, as a number, like `SIG_DFL`.
fn action_of(signal: c_int) -> Option<usize> {
    // SAFETY: zeroed memory is a valid sigaction, and is only read if the call filled it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &mut action) == 0).then_some(action.sa_sigaction)
    }
}

/// Async-signal-safe.
fn restore_default(signal: c_int) {
    // SAFETY: SIG_DFL with no flags is a valid action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// The handler. Allowed: what signal-safety(7) lists, raw system calls, atomics.
extern "C" fn on_signal(signal: c_int) {
    // SAFETY: errno is this thread's own; it is put back because the interrupted code may be about
    // to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: null, or a leaked `Prepared` that stays as it was made.
    if let Some(prepared) = unsafe { PREPARED.load(Acquire).as_ref() } {
        // SAFETY: getpid has no preconditions.
        let owner = unsafe { libc::getpid() } == prepared.owner;
        if owner && STATE.compare_exchange(ARMED, REPORTING, AcqRel, Relaxed).is_ok() {
            if prepared.bell != 0 {
                headway_reporter::ring_for_signal(prepared.bell);
            }
            report(prepared);
            STATE.store(DISARMED, Release);
        }
    }
    restore_default(signal);
    // SAFETY: the signal is blocked until this handler returns, and then ends the process.
    unsafe {
        libc::raise(signal);
        *libc::__errno_location() = errno;
    }
}

/// Runs the command with a copy of the ledger. Any step that fails means no report.
fn report(prepared: &Prepared) {
    // SAFETY: raw system calls on a descriptor of our own; `clone` without flags is a fork without
    // fork handlers and without a SIGCHLD, so that the program's other threads notice nothing.
    let reported = unsafe {
        let copy = libc::memfd_create(c"headway-ledger".as_ptr(), libc::MFD_CLOEXEC);
        if copy < 0 {
            return;
        }
        if headway_gil::write_ledger(copy).is_err() || libc::lseek(copy, 0, libc::SEEK_SET) != 0 {
            libc::close(copy);
            return;
        }
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            become_command(prepared, copy);
        }
        libc::close(copy);
        child > 0 && wait_for(child as libc::pid_t)
    };
    if let Some(ledger) = &prepared.ledger
        && (reported || !prepared.keep_ledger)
    {
        // SAFETY: a C string; if the file is gone already, so much the better.
        unsafe { libc::unlink(ledger.as_ptr()) };
    }
}

/// In the new process: the ledger on stdin, everything that is said on stderr, nothing else open.
///
/// # Safety
/// Only in a process that was just cloned from a handler; `copy` is open.
unsafe fn become_command(prepared: &Prepared, copy: c_int) -> ! {
    // SAFETY: system calls on our own process; the arrays are null-terminated arrays of C strings.
    unsafe {
        let (json, _) = privileges::kept_open();
        if copy == 0 {
            libc::fcntl(0, libc::F_SETFD, 0);
        } else {
            libc::dup2(copy, 0);
        }
        libc::dup2(2, 1);
        // Its number is above 3: see `privileges`. Without it, nothing else may be taken for it.
        let first_unneeded = match json >= 0 && libc::dup2(json, 3) == 3 {
            true => 4,
            false => {
                libc::close(3);
                3
            }
        };
        // Before Linux 5.9 there is no such call, and the command inherits what is inheritable.
        let last = c_int::MAX as c_long;
        libc::syscall(libc::SYS_close_range, first_unneeded as c_long, last, 0 as c_long);
        let mut nothing: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut nothing);
        libc::pthread_sigmask(libc::SIG_SETMASK, &nothing, ptr::null_mut());
        libc::execve(
            prepared.arguments[0],
            prepared.arguments.as_ptr(),
            prepared.environment.as_ptr(),
        );
        let failure = prepared.failure.as_bytes();
        libc::write(2, failure.as_ptr().cast(), failure.len());
        libc::_exit(127)
    }
}

/// Whether the command ended well within our patience.
fn wait_for(child: libc::pid_t) -> bool {
    let mut status: c_int = 0;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: POLL_NS };
    for _ in 0..PATIENCE_MS / POLL_MS {
        // SAFETY: `status` is ours; __WALL also waits for children that send no SIGCHLD.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG | libc::__WALL) };
        if ended == child {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
        if ended < 0 {
            return false;
        }
        // SAFETY: a valid timespec; whether the sleep was whole does not matter.
        unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
    }
    false
}
