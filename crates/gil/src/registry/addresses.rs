//! How the addresses of a GIL relate to each other.
//!
//! A GIL lies in a structure of CPython (`struct _gil_runtime_state`) that has `cond`, `mutex`,
//! `switch_cond` and `switch_mutex`, one behind the other. The distances are learned from the main
//! GIL; own-GIL sub-interpreters use the same structure.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const COND_BYTES: usize = size_of::<libc::pthread_cond_t>();
const MUTEX_BYTES: usize = size_of::<libc::pthread_mutex_t>();
/// The distance from `cond` to `switch_cond`.
const SWITCH_COND_AFTER_COND: usize = COND_BYTES + MUTEX_BYTES;

/// The distance from a `PyInterpreterState` to the `cond` of its own GIL; 0 if GILs do not lie in
/// it. Writer: install. Readers: hooks and snapshots, relaxed.
static COND_AFTER_INTERPRETER: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a GIL. They are compared, never followed: CPython frees an own GIL with its
/// interpreter, without notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub cond: usize,
    pub switch_cond: usize,
}

impl Addresses {
    /// The addresses of the GIL whose `cond` is at `cond`.
    pub fn of_cond(cond: usize) -> Self {
        Self { cond, switch_cond: cond.wrapping_add(SWITCH_COND_AFTER_COND) }
    }

    /// The addresses of the GIL whose `switch_cond` is at `switch_cond`.
    pub fn of_switch_cond(switch_cond: usize) -> Self {
        Self { cond: switch_cond.wrapping_sub(SWITCH_COND_AFTER_COND), switch_cond }
    }

    pub fn mutex(self) -> usize {
        self.cond.wrapping_add(COND_BYTES)
    }

    /// The interpreter that this GIL lies in; `None` if GILs do not lie in interpreters.
    pub fn interpreter(self) -> Option<usize> {
        distance().map(|distance| self.cond.wrapping_sub(distance))
    }

    /// The addresses of the own GIL that lies in `interpreter`; `None` if GILs do not lie in
    /// interpreters.
    pub fn in_interpreter(interpreter: usize) -> Option<Self> {
        distance().map(|distance| Self::of_cond(interpreter.wrapping_add(distance)))
    }
}

fn distance() -> Option<usize> {
    Some(COND_AFTER_INTERPRETER.load(Relaxed)).filter(|distance| *distance != 0)
}

/// The `cond` of the GIL whose mutex would be at `mutex`.
#[inline(always)]
pub fn cond_of_mutex(mutex: usize) -> usize {
    mutex.wrapping_sub(COND_BYTES)
}

/// Learns where own GILs lie from the main interpreter; `None` if GILs do not lie in interpreters.
pub fn learn_interpreter(main: Addresses, main_interpreter: Option<usize>) {
    let distance = main_interpreter.map_or(0, |interpreter| main.cond.wrapping_sub(interpreter));
    COND_AFTER_INTERPRETER.store(distance, Relaxed);
}
