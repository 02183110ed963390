//! Wakes the monitor, which sleeps while there is nothing to supervise.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::Thread;

#[derive(Default)]
pub struct MonitorHandle {
    thread: OnceLock<Thread>,
    /// The monitor sets it before a long sleep, and the thread that wakes the monitor clears it. To
    /// avoid lost wake-ups, the monitor checks for work again after setting it, and other threads
    /// change what the monitor checks before they read it: `SeqCst` on both sides.
    asleep: AtomicBool,
}

impl MonitorHandle {
    /// The calling thread is the monitor.
    pub fn set_current_thread(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Announces that the monitor goes to sleep. Afterwards the monitor must check for work again.
    pub fn announce_sleep(&self) {
        self.asleep.store(true, SeqCst);
    }

    /// The monitor is awake. True if another thread woke it.
    pub fn end_sleep(&self) -> bool {
        !self.asleep.swap(false, SeqCst)
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
}
