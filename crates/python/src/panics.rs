//! Panics in functions that CPython calls. Each such function runs in [`barrier`]: the exception is
//! a SystemError, and the program goes on.
//!
//! A barrier also makes the guards of [`c_api`](crate::c_api) work. Without it the compiler may
//! merge a guard with the check for panics at the end of an `extern "C"` function, which does
//! nothing when `pthread_exit` unwinds.

use crate::attached::Attached;
use crate::exception::{Exception, clear_raised};
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Panics of this module, in any thread. Writers: threads that panic; readers: any; relaxed, a
/// count.
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The thread's last panic, as the hook saw it.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The panics since `report_in_one_line`.
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}

/// From now on panics of this module are counted, and print one line on stderr, with the place.
/// The backtrace follows only if RUST_BACKTRACE is set.
pub fn report_in_one_line() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_hook(Box::new(report)));
}

fn report(info: &PanicHookInfo) {
    COUNT.fetch_add(1, Relaxed);
    let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
    let text = format!("{}{}", message(info.payload()), place.unwrap_or_default());
    let backtrace = Backtrace::capture();
    // A write can fail: stderr may be closed, or its reader gone.
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "headway: internal error: {text}");
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = write!(stderr, "{backtrace}");
    }
    let _ = LAST.try_with(|last| last.replace(Some(text)));
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
        .replace('\n', " ")
}

/// Runs what CPython calls in the attached thread. After a panic an exception is set, and
/// `failure` is returned, which must say so to CPython.
///
/// # Safety
/// The calling thread has a thread state attached.
pub unsafe fn barrier<T>(failure: T, act: impl for<'py> FnOnce(Attached<'py>) -> T) -> T {
    // SAFETY: the caller's.
    let py = unsafe { Attached::assume() };
    match catch_unwind(AssertUnwindSafe(|| act(py))) {
        Ok(result) => result,
        Err(payload) => {
            raise(py, payload);
            failure
        }
    }
}

/// Runs what CPython calls where no exception may be set.
pub fn barrier_without_exception(act: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(act));
}

#[cold]
fn raise(py: Attached, payload: Box<dyn Any + Send>) {
    let last = LAST.try_with(RefCell::take).ok().flatten();
    let text = last.unwrap_or_else(|| message(&*payload));
    // The panic may have come while an exception was on its way.
    clear_raised(py);
    let text = format!("internal error of Headway, the program goes on: {text}");
    Exception::SystemError.raise(py, &text);
}
