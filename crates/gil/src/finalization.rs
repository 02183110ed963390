//! The phases of CPython's end, and what Headway may do in each.
//!
//! | phase | frees the state of a waiting thread | a hook reads its thread's | stacks |
//! |---|---|---|---|
//! | [`Running`](Phase::Running) | nobody | directly | are requested |
//! | [`ForkedChild`](Phase::ForkedChild) | nobody: no thread waits | directly | no |
//! | [`Finalizing`](Phase::Finalizing) | the finalizing thread | through the kernel | no |
//!
//! CPython sets its own flag with the main GIL held, before it frees the first thread state of
//! another thread, and clears it where an embedding program starts Python again. So a thread that
//! holds a GIL or its mutex, finds `Running` and does not let go of it reads its own thread state
//! safely. `docs/design/finalization.md` describes what CPython does in each phase.
//!
//! [`phase`] may be called anywhere, also in hooks and signal handlers.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// `Py_IsFinalizing`, which reads a variable of the runtime.
pub type IsFinalizing = unsafe extern "C" fn() -> c_int;

/// An [`IsFinalizing`]; 0 while no function is known. Writer: [`know`]. Readers: any thread. A
/// function pointer orders nothing, so relaxed.
static IS_FINALIZING: AtomicUsize = AtomicUsize::new(0);
/// True from the fork to the initialization of the main GIL in the child. Writer: the only thread
/// of the child. Relaxed.
static IS_FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Running,
    ForkedChild,
    Finalizing,
}

impl Phase {
    /// Whether CPython keeps the thread state and the frames of a thread that holds a GIL, or a
    /// GIL's mutex, until the thread lets go of it.
    #[inline(always)]
    pub fn keeps_own_thread_state(self) -> bool {
        self != Self::Finalizing
    }

    /// Whether a thread may be interrupted to write its own Python stack, for which it follows its
    /// thread state without a GIL.
    pub fn allows_stack_requests(self) -> bool {
        self == Self::Running
    }
}

/// Makes CPython's function known, before anything else of Headway runs.
pub fn know(is_finalizing: IsFinalizing) {
    IS_FINALIZING.store(is_finalizing as usize, Relaxed);
}

/// The present phase; `Finalizing`, in which the least is allowed, while no function is known.
/// Not inlined, so that `scripts/check_hooks.py` finds the call of CPython's function by this name.
#[inline(never)]
pub fn phase() -> Phase {
    let is_finalizing = IS_FINALIZING.load(Relaxed);
    // SAFETY: `know` stored a function of this type. It reads a variable of the runtime, which is
    // static memory.
    let is_finalizing = is_finalizing == 0
        || unsafe { std::mem::transmute::<usize, IsFinalizing>(is_finalizing)() != 0 };
    if is_finalizing {
        Phase::Finalizing
    } else if IS_FORKED_CHILD.load(Relaxed) {
        Phase::ForkedChild
    } else {
        Phase::Running
    }
}

/// The process is a forked child, whose main GIL CPython initializes again next.
pub fn begin_forked_child() {
    IS_FORKED_CHILD.store(true, Relaxed);
}

/// The main GIL was initialized again. Returns whether a forked child expected it.
pub fn end_forked_child() -> bool {
    IS_FORKED_CHILD.swap(false, Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI32;

    static FLAG: AtomicI32 = AtomicI32::new(0);

    unsafe extern "C" fn is_finalizing() -> c_int {
        FLAG.load(SeqCst)
    }

    #[test]
    fn each_phase_allows_what_cpython_keeps_alive() {
        let allows = || (phase().keeps_own_thread_state(), phase().allows_stack_requests());
        assert_eq!((phase(), allows()), (Phase::Finalizing, (false, false)), "nothing is known");
        know(is_finalizing);
        assert_eq!((phase(), allows()), (Phase::Running, (true, true)));
        begin_forked_child();
        assert_eq!((phase(), allows()), (Phase::ForkedChild, (true, false)));
        FLAG.store(1, SeqCst);
        assert_eq!((phase(), allows()), (Phase::Finalizing, (false, false)));
        FLAG.store(0, SeqCst);
        assert!(end_forked_child());
        assert!(!end_forked_child(), "an embedding program starts Python again");
        assert_eq!((phase(), allows()), (Phase::Running, (true, true)));
    }
}
