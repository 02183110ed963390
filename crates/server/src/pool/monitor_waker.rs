//! How other threads wake the monitor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::Thread;

#[derive(Default)]
pub struct MonitorWaker {
    thread: OnceLock<Thread>,
    /// Set by the monitor before it sleeps for long, cleared by the thread that wakes it. No wake-up is
    /// lost: the monitor looks once more after it has set it, and the others change what the monitor
    /// looks at before they test it; `SeqCst` on both sides.
    asleep: AtomicBool,
}

impl MonitorWaker {
    /// The calling thread is the monitor.
    pub fn join(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Costs a load unless the monitor sleeps.
    pub fn wake_if_asleep(&self) {
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            self.wake();
        }
    }

    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The monitor is about to sleep; what it would miss is to be looked at after this.
    pub fn fall_asleep(&self) {
        self.asleep.store(true, SeqCst);
    }

    /// Whether another thread woke the monitor.
    pub fn wake_up(&self) -> bool {
        !self.asleep.swap(false, SeqCst)
    }
}
