//! The last report of a process that a signal such as SIGTERM ends, if the program leaves the
//! signal at its default.
//!
//! Python code cannot run then: the main thread may be in a C call that never returns. So a C-level
//! handler copies the ledger to a memfd, starts a prepared command that reports it, waits for the
//! command for a limited time, and lets the signal end the process. Python does not see the
//! handler: CPython filled in `signal.getsignal()` before, and it stays SIG_DFL. A program that
//! sets a handler of its own replaces this one; if it restores the default, `defaults` restores the
//! handler.
//!
//! `replaced` saves the ledger when the program replaces itself by exec. `privileges` keeps the
//! report's file reachable when the program gives up its rights.
//!
//! `arm` and `disarm` run in the thread that calls `_native.report_on_signals`, attached.
//! `on_signal` runs in any thread, at any point, so that it makes only async-signal-safe calls
//! (signal-safety(7), raw system calls, `headway_gil::write_ledger`).
//!
//! A forked child inherits the handler but does not own the measurement: there the handler has the
//! effect of the default.

use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use headway_python::attached::Attached;
use headway_python::convert::{FromPython, arguments, tuple};
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};

mod defaults;
mod privileges;
mod replaced;

use defaults::SIGNALS;

/// The time for which the ending process waits for its report, with its sockets open. After that,
/// the command continues by itself.
const PATIENCE_MS: u32 = 10_000;
const POLL_MS: u32 = 2;
const POLL_NS: c_long = POLL_MS as c_long * 1_000_000;

/// The handler's data, made before any signal.
struct Prepared {
    /// The process that reports.
    owner: libc::pid_t,
    /// Null-terminated arrays for execve; their strings are leaked with them.
    arguments: Box<[*const c_char]>,
    environment: Box<[*const c_char]>,
    /// The file to remove: always, or with `keep_ledger` only after the command has succeeded.
    ledger: Option<CString>,
    keep_ledger: bool,
    /// The number of the thread that reports to a recorder; 0 if there is none.
    waker: u32,
    /// True if the report is written to a file only, and nothing to stderr.
    quiet: bool,
    /// The messages, with the ledger's path, for a command that cannot be started, for no file to
    /// copy the counters to, and for a copy that fails.
    no_command: CString,
    no_file: CString,
    no_copy: CString,
}

/// Writer: `arm` (Release); readers: `on_signal` and the hooks (Acquire). A replaced value is
/// leaked, since a handler may be reading it.
static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(ptr::null_mut());

/// | STATE | meaning | set by | next |
/// |---|---|---|---|
/// | `DISARMED` | signals make no report | `disarm`, initially | `ARMED` |
/// | `ARMED` | the next signal or exec reports | `arm`, `replaced` | `REPORTING`, `DISARMED` |
/// | `REPORTING` | a report is made; signals end the process | `on_signal` | none: the end |
/// | `REPORTING` | a report is made; signals end the process | `replaced` | `ARMED` |
///
/// Release and Acquire: `ARMED` publishes `PREPARED`.
static STATE: AtomicU32 = AtomicU32::new(DISARMED);
const DISARMED: u32 = 0;
const ARMED: u32 = 1;
const REPORTING: u32 = 2;

pub static FUNCTIONS: Methods<5> = Methods::new([
    function(
        c"report_on_signals",
        report_on_signals,
        c"report_on_signals(command: list[bytes] | None, ledger: bytes | None, keep_ledger: bool,\n\
          waker: int = 0, json: bytes | None = None, quiet: bool = False)\n\
          \n\
          Makes SIGTERM and other signals whose default ends the process run `command` first,\n\
          while they are at their default: with the ledger on its stdin and stdout redirected to\n\
          stderr. Then the file `ledger` is removed (with `keep_ledger`: only if the command\n\
          succeeded). Meanwhile the reporter with this telemetry_waker() reports to its recorder.\n\
          `json` is a file that the command writes: it is opened before the program gives up\n\
          rights, and is then descriptor 3 of the command. With `quiet` nothing is written to stderr\n\
          before an exec. A command of None restores the default.",
    ),
    function(
        c"await_signal_report",
        await_signal_report,
        c"await_signal_report()\n\
          \n\
          If a signal has begun to report in another thread, does not return: the signal ends the\n\
          process, whose exit status must not be that of a normal end.",
    ),
    function(
        c"report_after_exec",
        report_after_exec,
        c"report_after_exec(settings: bytes, interpreter: bytes, in_file: bool)\n\
          \n\
          Continues the measurement if the program replaces itself, by exec, by `interpreter`:\n\
          HEADWAY is set there to `run:`, `settings`, `:`, a descriptor of a copy of the ledger (-1\n\
          with `in_file`), `:` and the run. If another program replaces it, or\n\
          report_after_exec() was not called, the command of report_on_signals() runs before.",
    ),
    function(
        c"kept_open",
        kept_open,
        c"kept_open() -> tuple[int, int]\n\
          \n\
          Descriptors of the report's file and of the ledger's folder, which were opened when the\n\
          program gave up rights; -1 for one that was not opened, or is closed.",
    ),
    END,
]);

fn report_on_signals<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let none = Object::none(py);
    let (required, optional) = given.split_at(given.len().min(3));
    let (command, ledger, keep_ledger): (Option<&Object>, Option<&CStr>, bool) =
        arguments(py, "report_on_signals", required)?;
    let (waker, json, quiet): (u32, Option<&CStr>, bool) = match optional {
        [] => (0, None, false),
        [waker] => (u32::from_python(waker)?, None, false),
        more => arguments(py, "report_on_signals", more)?,
    };
    let Some(command) = command else {
        disarm();
        return await_signal_report(py, &[]);
    };
    let words = command.items()?;
    let words = words.iter().map(|word| <&CStr>::from_python(word).map(CStr::to_owned));
    let words = words.collect::<PyResult<Vec<_>>>()?;
    let ledger = ledger.map(CStr::to_owned);
    privileges::announce(json.map(CStr::to_owned), ledger.clone());
    arm(words, ledger, keep_ledger, waker, quiet);
    Ok(none)
}

fn await_signal_report<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    py.detach(|| {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: POLL_NS };
        // The limit is for a program that has set a handler meanwhile and goes on.
        for _ in 0..2 * PATIENCE_MS / POLL_MS {
            if STATE.load(Acquire) != REPORTING {
                break;
            }
            // SAFETY: a valid timespec. The sleep may end early.
            unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
        }
    });
    Ok(Object::none(py))
}

fn report_after_exec<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (settings, interpreter, in_file): (&CStr, &CStr, bool) =
        arguments(py, "report_after_exec", given)?;
    replaced::announce(replaced::Successor {
        settings: settings.to_owned(),
        interpreter: interpreter.to_owned(),
        in_file,
    });
    Ok(Object::none(py))
}

fn kept_open<'py>(py: Attached<'py>, _: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (file, folder) = privileges::kept_open();
    tuple(py, &[&file, &folder])
}

/// Returns a leaked, null-terminated array for execve.
fn exec_array(words: impl IntoIterator<Item = CString>) -> Box<[*const c_char]> {
    let leaked = words.into_iter().map(|word| word.into_raw().cast_const());
    leaked.chain([ptr::null()]).collect()
}

fn arm(command: Vec<CString>, ledger: Option<CString>, keep_ledger: bool, waker: u32, quiet: bool) {
    use std::os::unix::ffi::OsStringExt;
    // SAFETY: getpid has no preconditions.
    let owner = unsafe { libc::getpid() };
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let mut entry = name.into_vec();
        entry.push(b'=');
        entry.extend(value.into_vec());
        CString::new(entry).ok()
    });
    let kept = ledger.as_deref().filter(|_| keep_ledger);
    let prepared = Box::new(Prepared {
        owner,
        arguments: exec_array(command),
        environment: exec_array(environment),
        no_command: failure_line("Python cannot be started from here", kept),
        no_file: failure_line("memfd_create, which copies the counters, is refused", kept),
        no_copy: failure_line("memory or a limit of files is too small for the counters", kept),
        ledger,
        keep_ledger,
        waker,
        quiet,
    });
    PREPARED.store(Box::into_raw(prepared), Release);
    STATE.store(ARMED, Release);
    // An interpreter without such slots makes these calls unnoticed, like a program's own C code,
    // and reports at its end.
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

fn failure_line(reason: &str, ledger: Option<&CStr>) -> CString {
    let place = ledger.map(|path| format!(": the counters are in {}", path.to_string_lossy()));
    let line = format!("headway run: no report, since {reason}{}\n", place.unwrap_or_default());
    CString::new(line).unwrap_or_default()
}

/// Returns libpython's own function, from the cell of its hook.
///
/// # Safety
/// `F` is the type of the function. The hook was called, so that the cell was stored before.
unsafe fn original<F: Copy>(cell: &AtomicUsize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: the cell has the address of a function of the type that the caller names.
    unsafe { std::mem::transmute_copy(&cell.load(Acquire)) }
}

/// Returns the action of a signal that reports. Async-signal-safe.
fn handled_action() -> libc::sigaction {
    // SAFETY: zero bytes are a valid action; the set is our own. SA_ONSTACK: runtimes with small
    // stacks of their own need it.
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

/// Returns whether this process reports and has not reported yet. Async-signal-safe.
fn may_report() -> bool {
    // SAFETY: null, or a leaked `Prepared` that never changes; getpid has no preconditions.
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
    // A signal that reports goes on to end the process.
    let _ = STATE.compare_exchange(ARMED, DISARMED, Release, Relaxed);
}

/// Returns the handler of `signal` as a number, such as `SIG_DFL`.
fn action_of(signal: c_int) -> Option<usize> {
    // SAFETY: zeroed memory is a valid sigaction, and is only read if the call filled it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &mut action) == 0).then_some(action.sa_sigaction)
    }
}

/// Restores the default action of a signal. Async-signal-safe.
fn restore_default(signal: c_int) {
    // SAFETY: SIG_DFL with no flags is a valid action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// The handler. It may use only the functions that signal-safety(7) lists, raw system calls, and
/// atomics.
extern "C" fn on_signal(signal: c_int) {
    // SAFETY: errno is this thread's own. It is restored because the interrupted code may be about
    // to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: null, or a leaked `Prepared` that never changes.
    if let Some(prepared) = unsafe { PREPARED.load(Acquire).as_ref() } {
        // SAFETY: getpid has no preconditions.
        let owner = unsafe { libc::getpid() } == prepared.owner;
        if owner && STATE.compare_exchange(ARMED, REPORTING, AcqRel, Relaxed).is_ok() {
            if prepared.waker != 0 {
                headway_threads::waker::wake_for_signal(prepared.waker);
            }
            report(prepared);
        }
    }
    restore_default(signal);
    // SAFETY: the signal is blocked until this handler returns, and then ends the process.
    unsafe {
        // A filter of system calls may forbid tgkill, by which `raise` sends it to this thread.
        if libc::raise(signal) != 0 {
            libc::kill(libc::getpid(), signal);
        }
        *libc::__errno_location() = errno;
    }
}

/// Runs the command with a copy of the ledger. If a step fails, there is no report.
fn report(prepared: &Prepared) {
    // SAFETY: raw system calls on a descriptor of our own; `clone` without flags is a fork without
    // fork handlers and without a SIGCHLD, so that the program's other threads notice nothing.
    let reported = unsafe {
        let copy = libc::memfd_create(c"headway-ledger".as_ptr(), libc::MFD_CLOEXEC);
        if copy < 0 {
            return say(&prepared.no_file);
        }
        if headway_gil::write_ledger(copy).is_err() || libc::lseek(copy, 0, libc::SEEK_SET) != 0 {
            libc::close(copy);
            return say(&prepared.no_copy);
        }
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            become_command(prepared, copy);
        }
        libc::close(copy);
        if child < 0 {
            say(&prepared.no_command);
        }
        child > 0 && wait_for(child as libc::pid_t)
    };
    let unneeded = prepared.ledger.as_ref().filter(|_| reported || !prepared.keep_ledger);
    if let Some(ledger) = unneeded {
        // SAFETY: a C string. The file may be gone already.
        unsafe { libc::unlink(ledger.as_ptr()) };
    }
}

/// In the new process: runs the command with the ledger on stdin, stdout redirected to stderr, and
/// no other descriptors.
///
/// # Safety
/// Only in a process that was just cloned from a handler; `copy` is open.
unsafe fn become_command(prepared: &Prepared, copy: c_int) -> ! {
    // SAFETY: system calls on our own process; the arrays are null-terminated arrays of C strings,
    // and read without a check that could panic.
    unsafe {
        let (json, _) = privileges::kept_open();
        if copy == 0 {
            libc::fcntl(0, libc::F_SETFD, 0);
        } else {
            libc::dup2(copy, 0);
        }
        libc::dup2(2, 1);
        // The number of the report's file is above 3: see `privileges`. Without such a file,
        // descriptor 3 must not be another file.
        let first_unneeded = match json >= 0 && libc::dup2(json, 3) == 3 {
            true => 4,
            false => {
                libc::close(3);
                3
            }
        };
        // Linux before 5.9 has no such call, and the command inherits inheritable descriptors.
        let last = c_int::MAX as c_long;
        libc::syscall(libc::SYS_close_range, first_unneeded as c_long, last, 0 as c_long);
        let mut nothing: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut nothing);
        libc::pthread_sigmask(libc::SIG_SETMASK, &nothing, ptr::null_mut());
        libc::execve(
            prepared.arguments.as_ptr().read(),
            prepared.arguments.as_ptr(),
            prepared.environment.as_ptr(),
        );
        say(&prepared.no_command);
        libc::_exit(127)
    }
}

/// Async-signal-safe.
fn say(line: &CStr) {
    let bytes = line.to_bytes();
    // SAFETY: the bytes live as long as the call.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

/// Returns whether the command succeeded within `PATIENCE_MS`.
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
        // SAFETY: a valid timespec. The sleep may end early.
        unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
    }
    false
}
