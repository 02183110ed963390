//! Makes a thread write its own Python stack to stderr, without the GIL: by a signal whose handler is
//! faulthandler's (`faulthandler.register`, see `headway.server.limits`). The handler runs in the
//! thread itself, also where that is stuck in C code and holds the GIL.

use std::time::Duration;

/// Time for the handler, so that what is said next does not come in the middle of a stack. Enough for a
/// hundred lines; a thread that gets no core for so long is late, and no harm done.
const WRITING: Duration = Duration::from_millis(30);

/// The thread exists, or the signal goes nowhere. A call in C that it interrupts is begun afresh
/// (SA_RESTART), but for sleeps and polls: those end early, and CPython's own go on by themselves.
pub fn write(native_id: i32, signal: i32) {
    // SAFETY: no pointers. The process has a handler for the signal, or passed no signal.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), native_id, signal) };
    if sent == 0 {
        std::thread::sleep(WRITING);
    }
}
