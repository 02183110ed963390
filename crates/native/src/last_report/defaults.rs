//! Keeps the handler installed when the program restores a signal's default.
//!
//! Servers install a handler of their own and restore the previous action when they end. Python's
//! `signal` module and `faulthandler` use libpython's `sigaction` for this, which is hooked here.
//! The program sees SIG_DFL in the place of `on_signal`: the hook returns the default as the old
//! action, and the signal ends the process as the default would. C code outside libpython that
//! calls `sigaction` itself is not hooked: if it restores the default, the signal makes no report.
//!
//! The hook runs in any thread, in signal handlers and in vforked children: it makes one system
//! call and reads atomics.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use headway_gil::Hook;

use super::{handled_action, is_on_signal, may_report, original};

/// The signals that make a report: their default ends the process and leaves no core file.
pub const SIGNALS: [c_int; 7] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// libpython's own `sigaction`. Writer: `patch_for_good`, before the slot; reader: the hook
/// (Acquire).
static SIGACTION: AtomicUsize = AtomicUsize::new(0);

pub fn hook() -> Hook {
    Hook { symbol: b"sigaction", replacement: sigaction as *const c_void, original: &SIGACTION }
}

type Action = libc::sigaction;

unsafe extern "C" fn sigaction(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the type of sigaction, in its hook.
    let real: unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int =
        unsafe { original(&SIGACTION) };
    // SAFETY: null, or the caller's action.
    let default = unsafe { action.as_ref() }.is_some_and(|it| it.sa_sigaction == libc::SIG_DFL);
    let handled = handled_action();
    let given = match default && SIGNALS.contains(&signal) && may_report() {
        true => &raw const handled,
        false => action,
    };
    // SAFETY: the caller's own call, except for the action.
    let result = unsafe { real(signal, given, old) };
    // SAFETY: null, or the caller's memory, which the call filled.
    if let Some(old) = unsafe { old.as_mut() } {
        if result == 0 && is_on_signal(old) {
            // SAFETY: zero bytes are the default action, with no flags and an empty mask.
            *old = unsafe { std::mem::zeroed() };
        }
    }
    result
}
