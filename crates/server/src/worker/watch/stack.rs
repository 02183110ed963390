//! Makes a thread write its own Python stack to stderr, without the GIL: by a signal whose handler is
//! faulthandler's (`faulthandler.register`, see `headway.server.limits`). The handler runs in the
//! thread itself, also where that is stuck in C code and holds the GIL.

use std::time::Duration;

/// Time for the handler, so that what is said next does not come in the middle of a stack. Enough for a
/// hundred lines; a thread that gets no core for so long is late, and no harm done.
const WRITING: Duration = Duration::from_millis(30);

/// Does nothing where the signal has no handler, since that would end the process. A call in C that the
/// signal interrupts is begun afresh (SA_RESTART), but for sleeps and polls: those end early, and CPython's
/// own go on by themselves.
pub fn write(native_id: i32, signal: i32) {
    if has_handler(signal) {
        // SAFETY: no pointers; a thread that does not exist gets nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), native_id, signal) };
        std::thread::sleep(WRITING);
    }
}

fn has_handler(signal: i32) -> bool {
    // SAFETY: all zero bytes are a valid `sigaction`, which the call only writes to.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction != libc::SIG_DFL
            && action.sa_sigaction != libc::SIG_IGN
    }
}
