//! How the addresses of a GIL relate to each other, and the fields that CPython has beside them.
//!
//! A GIL lies in a structure of CPython (`struct _gil_runtime_state`) that has `interval`,
//! `last_holder`, `locked`, `switch_number`, `cond`, `mutex`, `switch_cond` and `switch_mutex`, one
//! behind the other. Install verifies the distances with the main GIL; own-GIL sub-interpreters use
//! the same structure.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const COND_BYTES: usize = size_of::<libc::pthread_cond_t>();
const MUTEX_BYTES: usize = size_of::<libc::pthread_mutex_t>();
/// The distance from `cond` to `switch_cond`.
const SWITCH_COND_AFTER_COND: usize = COND_BYTES + MUTEX_BYTES;

/// The distances of the fields before `cond`, each of 8 bytes with its padding.
const SWITCH_NUMBER_BEFORE_COND: usize = 8;
const LOCKED_BEFORE_COND: usize = 16;
const LAST_HOLDER_BEFORE_COND: usize = 24;
const INTERVAL_BEFORE_COND: usize = 32;

/// The distance from a `PyInterpreterState` to the `cond` of its own GIL; 0 if GILs do not lie in
/// it. Writer: install. Readers: hooks and snapshots, relaxed.
static COND_AFTER_INTERPRETER: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a GIL. CPython frees an own GIL with its interpreter, without notice, so only
/// an event of the GIL follows them.
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

    /// Where the thread state of the last holder is stored.
    pub fn last_holder(self) -> usize {
        self.cond.wrapping_sub(LAST_HOLDER_BEFORE_COND)
    }

    /// Where `locked` is stored: an `int`, 1 while the GIL is held, -1 before it is created.
    pub fn locked(self) -> usize {
        self.cond.wrapping_sub(LOCKED_BEFORE_COND)
    }

    /// The thread state of the last holder.
    ///
    /// # Safety
    /// As `switch_number`.
    pub unsafe fn read_last_holder(self) -> usize {
        // SAFETY: the caller's.
        unsafe { self.field(LAST_HOLDER_BEFORE_COND) as usize }
    }

    /// The number of takes by another thread state than before. CPython writes it with the mutex.
    ///
    /// # Safety
    /// The GIL exists: it is the main GIL, or the caller runs an event of it.
    #[inline(always)]
    pub unsafe fn switch_number(self) -> u64 {
        // SAFETY: the caller's.
        unsafe { self.field(SWITCH_NUMBER_BEFORE_COND) }
    }

    /// The switch interval, in microseconds; CPython waits one microsecond where it is 0.
    ///
    /// # Safety
    /// As `switch_number`.
    #[inline(always)]
    pub unsafe fn interval_us(self) -> u64 {
        // SAFETY: the caller's.
        unsafe { self.field(INTERVAL_BEFORE_COND) }
    }

    /// # Safety
    /// As `switch_number`.
    #[inline(always)]
    unsafe fn field(self, before_cond: usize) -> u64 {
        // SAFETY: the field lies before `cond` in the same structure, which exists, as the caller
        // promises. CPython writes some fields without the mutex, a word at a time.
        unsafe {
            AtomicU64::from_ptr(self.cond.wrapping_sub(before_cond) as *mut u64).load(Relaxed)
        }
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
