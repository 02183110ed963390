//! Threads of Headway in a user's program. No signal to the process reaches them, their stacks are
//! small, and a panic ends its thread's work, not the program.

use std::ffi::CString;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::{Duration, Instant};

use crate::process_end::Counted;
use crate::{c_library, fork};

/// The stack of each thread. None of them runs Python code.
const STACK_BYTES: usize = 256 * 1024;

/// Panics that `survive` caught. Written by the threads that panic, read by any; relaxed: a count.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// A thread of Headway. Dropping it lets the thread run on.
#[derive(Debug)]
pub struct InternalThread {
    handle: ManuallyDrop<JoinHandle<()>>,
    pid: u32,
    /// 0 until the thread runs. Written by the thread, read by the one that joins it, which orders
    /// the two; relaxed.
    native_id: Arc<AtomicI32>,
}

/// Starts a thread. `name` is the kernel's name of the thread, of up to 15 bytes.
pub fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<InternalThread> {
    fork::follow();
    let native_id = Arc::new(AtomicI32::new(0));
    let own_id = Arc::clone(&native_id);
    let mut counted = Counted::start();
    let _blocked = SignalsBlocked::begin();
    let handle = Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(move || {
        counted.begin();
        // SAFETY: no preconditions.
        own_id.store(unsafe { libc::gettid() }, Relaxed);
        survive(name, work);
        drop(counted);
    })?;
    // The thread gives itself its name once it runs, and the program may list its threads before.
    if let Ok(name) = CString::new(name) {
        c_library::name_thread(&handle, &name);
    }
    Ok(InternalThread { handle: ManuallyDrop::new(handle), pid: std::process::id(), native_id })
}

impl InternalThread {
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits until the thread has ended and the kernel has removed it. The kernel wakes a thread
    /// that joins another one a moment earlier, and CPython warns of a fork while the kernel counts
    /// a second thread.
    pub fn join(mut self) {
        const REMOVAL_LIMIT: Duration = Duration::from_millis(20);
        // `survive` has caught a panic.
        // SAFETY: the handle is not used again: the thread belongs to another process for `drop`.
        let _ = unsafe { ManuallyDrop::take(&mut self.handle) }.join();
        self.pid = 0;
        let native_id = self.native_id.load(Relaxed);
        let began = Instant::now();
        // SAFETY: signal 0 is not sent; the thread's ID cannot belong to another process.
        while unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), native_id, 0) } == 0
            && began.elapsed() < REMOVAL_LIMIT
        {
            yield_now();
        }
    }
}

impl Drop for InternalThread {
    fn drop(&mut self) {
        // A forked child has no such thread, which must not be detached there.
        if self.pid == std::process::id() {
            // SAFETY: the handle is not used again.
            unsafe { ManuallyDrop::drop(&mut self.handle) }
        }
    }
}

/// Blocks signals in threads that are started during its life. Signals to the process must reach
/// the program's threads: a handler interrupts their system calls, and a signal that they block is
/// read by signalfd or sigwait.
struct SignalsBlocked(libc::sigset_t);
impl SignalsBlocked {
    fn begin() -> Self {
        // SAFETY: all zero bytes are a valid set; both sets are live.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Runs `work`. Catches a panic, counts it, and reports on stderr, after the line of Rust's panic
/// hook, that the work has stopped; returns `None` then.
pub fn survive<T>(name: &str, work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|_| {
            let count = PANICS.fetch_add(1, Relaxed) + 1;
            eprintln!(
                "headway: internal error {count} (above): {name} has stopped, the program goes on"
            );
        })
        .ok()
}

pub fn panics() -> u64 {
    PANICS.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_counted_and_ends_only_its_thread() {
        let before = panics();
        let thread = spawn("headway-test", || panic!("on purpose")).unwrap();
        thread.join();
        assert!(panics() > before);
        assert_eq!(survive("headway-test", || 7), Some(7));
    }
}
