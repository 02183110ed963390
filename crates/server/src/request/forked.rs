//! Detects a child process that the application forks and that returns from the application. The
//! child shares sockets and epoll with the server and has none of its threads, so it must neither
//! answer nor clean up.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of forks between the server's start and this process. Written in a new child before
/// it has a second thread, read by worker threads; relaxed.
static FORKS: AtomicU32 = AtomicU32::new(0);
static FORK_HANDLER: Once = Once::new();

extern "C" fn note_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// Starts to count forks.
pub fn watch_forks() {
    FORK_HANDLER.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it adds to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
    });
}

/// The process that received a request.
#[derive(Clone, Copy, Debug)]
pub struct Ancestry(u32);

impl Ancestry {
    pub fn here() -> Self {
        Self(FORKS.load(Relaxed))
    }

    /// Does not return in a child of that process.
    pub fn leave_forked_child(self) {
        if FORKS.load(Relaxed) != self.0 {
            leave();
        }
    }
}

#[cold]
fn leave() -> ! {
    const MESSAGE: &[u8] = b"headway serve: a forked child returned from the application or sent \
        something of its response; it should end with os._exit()\n";
    // SAFETY: pointer and length are those of the message; `_exit` does not return.
    unsafe {
        libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(70)
    }
}
