//! The functions that replace those of the C library in CPython's global offset table, and their
//! list.
//!
//! Each hook has the same four steps: recognize the object; count what happens; call the original
//! function; count how it ended. Hooks run in every thread of the process.
//!
//! # Rules
//! No hook allocates, panics or changes errno. `scripts/check_hooks.py` shows for the linked module
//! that no hook reaches code that panics or allocates.
//!
//! **With a GIL's mutex held** run the hooks of [`condition`] and [`mutex`], and the waits of
//! [`scheduling`], which release the mutex while they wait. They take no lock, do not block except
//! in the original function and on futexes of the queue, and call no function of CPython. They may
//! read the clock, use atomics, and take a row from the free list. [`semaphores`] follows the same
//! rules with one exception: it calls `PyThreadState_GetUnchecked`, which reads a variable of the
//! thread.
//!
//! **Without a GIL's mutex** run the hooks of [`lifecycle`]: where an interpreter is made or ends,
//! and where a thread is started. They may take the lock of the table of GILs and, under it, the
//! registry lock. That is safe although the caller may hold a GIL, because no holder of either lock
//! waits for a GIL, for a GIL's mutex or for Python. They may also call `PyInterpreterState_Head`
//! and `PyInterpreterState_GetID`. These two read one field each, take no lock, and need no thread
//! state. The work cannot wait until after the hook: the new interpreter's first take must find its
//! GIL in the table, with the interpreter's ID, and the interpreter may end before anything else
//! runs.
//!
//! **Without a GIL** run the hooks of [`polling`]: where a thread waits for events. They take no
//! lock and follow the rules of the hooks with the mutex. [`loading`] has the one hook that may
//! allocate.
//!
//! `extern "C-unwind"`: `pthread_cancel` and `pthread_exit` unwind through the frame of a waiting
//! hook. No waiting hook owns a value that needs dropping.

/// The original function behind a slot, as a function of type `$type`.
macro_rules! original {
    ($cell:ident as $type:ty) => {
        // SAFETY: the slot was written after `$cell` got the original, a function of this type.
        unsafe { std::mem::transmute::<usize, $type>($cell.load(Relaxed)) }
    };
}

mod condition;
pub mod elf;
mod lifecycle;
pub mod loading;
mod mutex;
mod polling;
mod scheduling;
mod semaphores;
pub mod slots;
pub mod thread_start;

use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;

/// One hooked symbol.
pub struct Hook {
    pub symbol: &'static [u8],
    pub replacement: *const c_void,
    /// The address of the original function. Writer: `slots`, with release, before it writes the
    /// slot. Readers: the replacement, relaxed.
    pub original: &'static AtomicUsize,
}

/// The list of hooked symbols; with those of [`semaphores`] if `semaphore_waits` is true.
pub fn hooks(semaphore_waits: bool) -> Vec<Hook> {
    let semaphores = semaphores::hooks().into_iter().filter(|_| semaphore_waits);
    condition::hooks()
        .into_iter()
        .chain(lifecycle::hooks())
        .chain([mutex::hook(), loading::hook()])
        .chain(semaphores)
        .collect()
}
