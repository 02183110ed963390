//! `_native.process_*`: what the kernel does for and knows of the calling process, for
//! `headway.server` and `headway.environment`.

use headway_python::attached::Attached;
use headway_python::convert::{ToPython, arguments};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use headway_threads::c_library;
use std::ffi::{CStr, c_int, c_ulong};
use std::io::Error;

pub static FUNCTIONS: Methods<6> = Methods::new([
    function(
        c"process_set_name",
        set_name,
        c"process_set_name(name: bytes)\n\
          \n\
          Sets the name of this thread, and of the process if this is the main thread, to the\n\
          first 15 bytes.",
    ),
    function(
        c"process_end_with_parent",
        end_with_parent,
        c"process_end_with_parent(signal: int)\n\
          \n\
          Makes the kernel send this process the signal when the thread that started it ends. A\n\
          change of user cancels this.",
    ),
    function(
        c"process_adopt_orphans",
        adopt_orphans,
        c"process_adopt_orphans()\n\
          \n\
          Makes this process the new parent of descendants whose parent ends.",
    ),
    function(
        c"process_is_secure",
        is_secure,
        c"process_is_secure() -> bool\n\
          \n\
          Whether the process got rights from its file (set-user-ID, capabilities; AT_SECURE in\n\
          getauxval(3)), so that its environment must not decide what it does.",
    ),
    function(
        c"process_share_arena",
        share_arena,
        c"process_share_arena()\n\
          \n\
          From now on glibc gives no thread a memory arena of its own (M_ARENA_MAX in\n\
          mallopt(3)). Other C libraries have one for all threads, or are left alone.",
    ),
    END,
]);

fn set_name<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (name,): (&CStr,) = arguments(py, "process_set_name", given)?;
    // SAFETY: PR_SET_NAME takes a C string, of which it copies up to 16 bytes.
    unsafe { control(py, libc::PR_SET_NAME, name.as_ptr() as c_ulong) }
}

fn end_with_parent<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (signal,): (c_int,) = arguments(py, "process_end_with_parent", given)?;
    // SAFETY: PR_SET_PDEATHSIG takes a number.
    unsafe { control(py, libc::PR_SET_PDEATHSIG, signal as c_ulong) }
}

fn adopt_orphans<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    () = arguments(py, "process_adopt_orphans", given)?;
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a number.
    unsafe { control(py, libc::PR_SET_CHILD_SUBREAPER, 1) }
}

fn is_secure<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    () = arguments(py, "process_is_secure", given)?;
    // SAFETY: getauxval has no preconditions.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    secure.to_python(py)
}

/// # Safety
/// `argument` is valid for `operation`.
unsafe fn control<'py>(
    py: Attached<'py>,
    operation: c_int,
    argument: c_ulong,
) -> PyResult<Object<'py>> {
    // SAFETY: the caller's argument is valid for the operation.
    match unsafe { libc::prctl(operation, argument, 0, 0, 0) } {
        -1 => Err(Exception::OSError.raise(py, &Error::last_os_error().to_string())),
        _ => Ok(Object::none(py)),
    }
}

fn share_arena<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    () = arguments(py, "process_share_arena", given)?;
    c_library::share_arena();
    Ok(Object::none(py))
}
