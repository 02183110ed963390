//! Saves the ledger when the program replaces itself by exec.
//!
//! libpython's `execv`, `execve` and `fexecve` are hooked. In the process that reports, a call that
//! can succeed does one of two things first:
//!
//! - If the new image is the same interpreter, or a script for it, HEADWAY in its environment
//!   passes the settings and the ledger on, and `headway.meter.start` continues with them. A
//!   ledger in memory is copied to a memfd.
//! - Any other image cannot report, so the report is made before the exec.
//!
//! After an exec that fails, the program continues and reports at its end. Failures that can be
//! foreseen make no report before; other failures (ENOMEM, ETXTBSY) make one, with a message.
//!
//! All other calls are passed on: those of forked and vforked children, and of a process that has
//! reported. `_posixsubprocess` is an object of its own and not hooked. In the process that reports
//! a hook may allocate: a Python thread calls it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use headway_gil::Hook;

use super::{ARMED, PREPARED, REPORTING, STATE, may_report, original, report};

/// The data with which the new image continues the measurement.
pub struct Successor {
    /// The settings in HEADWAY, after `run:`.
    pub settings: CString,
    /// The interpreter that can continue: `sys.executable`.
    pub interpreter: CString,
    /// True if the ledger is in a file that the new image finds by its name.
    pub in_file: bool,
}

/// The beginning of an environment's entry with settings.
const SETTINGS: &[u8] = b"HEADWAY=run:";

/// Null if no image can continue. Writer: `announce` (Release), attached; readers: the hooks
/// (Acquire). A replaced value is leaked.
static SUCCESSOR: AtomicPtr<Successor> = AtomicPtr::new(ptr::null_mut());

pub fn announce(successor: Successor) {
    SUCCESSOR.store(Box::into_raw(Box::new(successor)), Release);
}

/// libpython's own functions. Writer: `patch_for_good`, before the slots; readers: the hooks
/// (Acquire).
static EXECV: AtomicUsize = AtomicUsize::new(0);
static EXECVE: AtomicUsize = AtomicUsize::new(0);
static FEXECVE: AtomicUsize = AtomicUsize::new(0);

type Words = *const *const c_char;

pub fn hooks() -> [Hook; 3] {
    [
        Hook { symbol: b"execv", replacement: execv as *const c_void, original: &EXECV },
        Hook { symbol: b"execve", replacement: execve as *const c_void, original: &EXECVE },
        Hook { symbol: b"fexecve", replacement: fexecve as *const c_void, original: &FEXECVE },
    ]
}

unsafe extern "C" {
    static environ: Words;
}

unsafe extern "C" fn execv(path: *const c_char, arguments: Words) -> c_int {
    if !may_report() {
        // SAFETY: the type of execv, in its hook; the caller's own call.
        return unsafe {
            let real: unsafe extern "C" fn(*const c_char, Words) -> c_int = original(&EXECV);
            real(path, arguments)
        };
    }
    // SAFETY: the caller's path and arguments; execv is execve with this environment.
    unsafe {
        let environment = environ;
        replace(CStr::from_ptr(path), arguments, environment, |environment| {
            libc::execve(path, arguments, environment)
        })
    }
}

unsafe extern "C" fn execve(path: *const c_char, arguments: Words, environment: Words) -> c_int {
    // SAFETY: the type of execve, in its hook.
    let real: unsafe extern "C" fn(*const c_char, Words, Words) -> c_int =
        unsafe { original(&EXECVE) };
    // SAFETY: the caller's own call, except for the environment.
    unsafe {
        match may_report() {
            false => real(path, arguments, environment),
            true => replace(CStr::from_ptr(path), arguments, environment, |environment| {
                real(path, arguments, environment)
            }),
        }
    }
}

unsafe extern "C" fn fexecve(fd: c_int, arguments: Words, environment: Words) -> c_int {
    // SAFETY: the type of fexecve, in its hook.
    let real: unsafe extern "C" fn(c_int, Words, Words) -> c_int = unsafe { original(&FEXECVE) };
    if !may_report() {
        // SAFETY: the caller's own call.
        return unsafe { real(fd, arguments, environment) };
    }
    let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    // SAFETY: the caller's own call, except for the environment.
    unsafe {
        replace(&path, arguments, environment, |environment| real(fd, arguments, environment))
    }
}

/// Saves the ledger and execs, also after a panic. Returns only if exec failed, with its errno.
///
/// # Safety
/// `arguments` and `environment` are as execve takes them.
unsafe fn replace(
    path: &CStr,
    arguments: Words,
    environment: Words,
    exec: impl FnOnce(Words) -> c_int,
) -> c_int {
    let mut exec = Some(exec);
    let mut exec_once = |environment| exec.take().map_or(-1, |exec| exec(environment));
    // SAFETY: the caller's arrays.
    let saved = || unsafe { save_and(path, arguments, environment, &mut exec_once) };
    let result = catch_unwind(AssertUnwindSafe(saved));
    result.unwrap_or_else(|_| exec_once(environment))
}

/// # Safety
/// As of `replace`.
unsafe fn save_and(
    path: &CStr,
    arguments: Words,
    environment: Words,
    exec: impl FnOnce(Words) -> c_int,
) -> c_int {
    // SAFETY: null, or a leaked value that never changes.
    let successor = unsafe { SUCCESSOR.load(Acquire).as_ref() };
    let image = Image::of(path);
    // SAFETY: the caller's arrays.
    unsafe {
        match (image, successor) {
            (Image::None, _) => exec(environment),
            _ if are_too_long(arguments, environment) => exec(environment),
            (Image::Program(interpreter), Some(successor))
                if !has_settings(environment)
                    && is_same_file(
                        interpreter.as_deref().unwrap_or(path),
                        &successor.interpreter,
                    )
                    && imports_site(if interpreter.is_some() {
                        ptr::null()
                    } else {
                        arguments
                    }) =>
            {
                pass_on(successor, environment, exec)
            }
            _ => report_and(path, || exec(environment)),
        }
    }
}

/// The kind of the file at a path, as exec treats it.
enum Image {
    /// No executable file.
    None,
    /// A program, or a script with the interpreter of its first line.
    Program(Option<CString>),
}

impl Image {
    fn of(path: &CStr) -> Self {
        use std::io::Read;
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: a C string.
        if unsafe { libc::access(path.as_ptr(), libc::X_OK) } != 0 {
            return Self::None;
        }
        let name = std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
        match std::fs::metadata(name) {
            Ok(metadata) if metadata.is_file() => {}
            _ => return Self::None,
        }
        let mut head = [0; 256];
        // A program that cannot be read can still be executed.
        let Ok(length) = std::fs::File::open(name).and_then(|mut file| file.read(&mut head)) else {
            return Self::Program(None);
        };
        match &head[..length] {
            [b'#', b'!', line @ ..] => {
                let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
                let line = line[..end].trim_ascii();
                let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
                Self::Program(Some(CString::new(word).unwrap_or_default()))
            }
            [0x7f, b'E', b'L', b'F', ..] => Self::Program(None),
            _ => Self::None,
        }
    }
}

/// Returns whether both paths are the same name of the same file. The interpreter of a virtual
/// environment is a link to a file that other environments link to as well, and each environment
/// has different packages.
fn is_same_file(one: &CStr, other: &CStr) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = |name: &CStr| {
        let name = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let folder = name.parent()?.canonicalize().ok()?;
        Some((folder, name.canonicalize().ok()?))
    };
    path(one).is_some_and(|one| Some(one) == path(other))
}

/// Returns whether an interpreter with these arguments imports `site`, and with it
/// `headway.meter.start`. It does not with -S, nor with options such as --version. Null
/// arguments are unknown.
///
/// # Safety
/// `arguments` is null or as execve takes them.
unsafe fn imports_site(arguments: Words) -> bool {
    // SAFETY: a null-terminated array of C strings.
    let word = |index| unsafe {
        let word = *arguments.add(index);
        (!word.is_null()).then(|| CStr::from_ptr(word).to_bytes())
    };
    if arguments.is_null() || word(0).is_none() {
        return true;
    }
    let mut index = 1;
    while let Some([b'-', options @ ..]) = word(index) {
        if options.is_empty() || options == b"-" {
            break;
        }
        let end = options.iter().position(|option| b"cmXW".contains(option));
        if options[..end.unwrap_or(options.len())].iter().any(|option| b"SVh?-".contains(option)) {
            return false;
        }
        match end.map(|at| (options[at], at + 1 == options.len())) {
            Some((b'c' | b'm', _)) => break,
            // The value is the next word.
            Some((_, true)) => index += 2,
            _ => index += 1,
        }
    }
    true
}

/// Returns the words of a null-terminated array; null has no words.
///
/// # Safety
/// `words` is as execve takes it.
unsafe fn words_of(words: Words) -> impl Iterator<Item = *const c_char> {
    // SAFETY: null, or an array that ends with a null.
    let word =
        move |index| unsafe { if words.is_null() { words.cast() } else { *words.add(index) } };
    (0..).map(word).take_while(|word: &*const c_char| !word.is_null())
}

/// Returns whether the kernel refuses these words (E2BIG; see execve(2), "Limits").
///
/// # Safety
/// Both are as execve takes them.
unsafe fn are_too_long(arguments: Words, environment: Words) -> bool {
    const MOST_BYTES: u64 = 6 << 20;
    const LEAST_BYTES: u64 = 128 << 10;
    // SAFETY: zero bytes are a valid limit; the caller's.
    unsafe {
        let mut stack: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_STACK, &mut stack);
        let most = (stack.rlim_cur / 4).clamp(LEAST_BYTES, MOST_BYTES);
        let most_in_a_word = 32 * libc::sysconf(libc::_SC_PAGESIZE) as u64;
        let mut all = 0;
        for word in words_of(arguments).chain(words_of(environment)) {
            let bytes = CStr::from_ptr(word).to_bytes_with_nul().len() as u64;
            all += bytes + size_of::<*const c_char>() as u64;
            if bytes > most_in_a_word || all > most {
                return true;
            }
        }
        false
    }
}

/// Returns whether the environment has settings already. In that case the program becomes
/// `headway run`, which has begun a run of its own.
///
/// # Safety
/// `environment` is as execve takes it.
unsafe fn has_settings(environment: Words) -> bool {
    // SAFETY: the caller's guarantee.
    unsafe {
        words_of(environment).any(|word| CStr::from_ptr(word).to_bytes().starts_with(SETTINGS))
    }
}

/// Execs with the settings and the ledger in the environment.
///
/// # Safety
/// `environment` is as execve takes it.
unsafe fn pass_on(
    successor: &Successor,
    environment: Words,
    exec: impl FnOnce(Words) -> c_int,
) -> c_int {
    let copy = match successor.in_file {
        true => -1,
        false => copy_of_ledger(),
    };
    let run = headway_gil::run_identity().unwrap_or(0);
    let settings = successor.settings.to_bytes();
    let mut entry = [SETTINGS, settings, format!(":{copy}:{run}").as_bytes()].concat();
    entry.push(0);
    // SAFETY: the caller's guarantee.
    let mut words: Vec<_> = unsafe {
        words_of(environment)
            .filter(|word| !CStr::from_ptr(*word).to_bytes().starts_with(b"HEADWAY="))
            .collect()
    };
    words.extend([entry.as_ptr().cast(), ptr::null()]);
    let result = exec(words.as_ptr());
    // Exec has failed.
    if copy >= 0 {
        // SAFETY: errno is this thread's own; the descriptor is ours.
        unsafe {
            let errno = *libc::__errno_location();
            libc::close(copy);
            *libc::__errno_location() = errno;
        }
    }
    result
}

/// Returns a descriptor of a copy of the ledger that exec leaves open; -1 if no copy can be made.
fn copy_of_ledger() -> c_int {
    // SAFETY: system calls on a descriptor of our own.
    unsafe {
        let copy = libc::memfd_create(c"headway-ledger".as_ptr(), 0);
        if copy >= 0 && headway_gil::write_ledger(copy).is_err() {
            libc::close(copy);
            return -1;
        }
        copy
    }
}

/// Reports and execs.
fn report_and(path: &CStr, exec: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: null, or a leaked `Prepared` that never changes.
    let Some(prepared) = (unsafe { PREPARED.load(Acquire).as_ref() }) else { return exec() };
    if STATE.compare_exchange(ARMED, REPORTING, AcqRel, Relaxed).is_err() {
        return exec();
    }
    let name = path.to_string_lossy();
    if !prepared.quiet {
        print(&format!(
            "headway run: the program replaces itself by {name:?}, and is reported until then"
        ));
    }
    report(prepared);
    let result = exec();
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let reason = std::io::Error::from_raw_os_error(errno);
    if !prepared.quiet {
        print(&format!("headway run: the program did not replace itself ({reason}), and goes on"));
    }
    STATE.store(ARMED, Release);
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    result
}

fn print(text: &str) {
    // SAFETY: pointer and length are those of `line`. An error has nowhere else to go.
    unsafe {
        let line = format!("{text}\n");
        libc::write(2, line.as_ptr().cast(), line.len());
    }
}
