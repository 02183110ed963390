//! How near a server is to its end.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;
const ABORTED: u8 = 2;

#[derive(Default)]
pub struct Phase {
    /// | value | the server |
    /// |---|---|
    /// | RUNNING | accepts connections and answers requests |
    /// | STOPPING | answers the requests that were sent; it is over once no connection is open |
    /// | ABORTED | is over |
    ///
    /// It only grows. Written by the threads that stop the server, read by all; `SeqCst`, as the
    /// ownership words: a thread that gives a connection up sees the change, or the thread that stops
    /// the server sees the connection.
    phase: AtomicU8,
    /// Until when a stopping server keeps connections that have no request; 0 while it runs. Written
    /// before `phase` changes, read by all threads, relaxed.
    keep_idle_until_ns: AtomicU64,
    /// Calls of `count_stop`. Written after `phase` and before the connections are looked at, read by
    /// threads around a turn; `SeqCst`.
    stops: AtomicU32,
}

impl Phase {
    pub fn is_stopping(&self) -> bool {
        self.phase.load(SeqCst) != RUNNING
    }

    /// Whether the server is over, which has so many open connections.
    pub fn is_over(&self, open_connections: impl FnOnce() -> usize) -> bool {
        match self.phase.load(SeqCst) {
            RUNNING => false,
            STOPPING => open_connections() == 0,
            _ => true,
        }
    }

    /// False if the server was aborted before.
    pub fn stop(&self, keep_idle_until_ns: u64) -> bool {
        self.keep_idle_until_ns.store(keep_idle_until_ns, Relaxed);
        self.phase.compare_exchange(RUNNING, STOPPING, SeqCst, SeqCst) != Err(ABORTED)
    }

    pub fn abort(&self) {
        self.phase.store(ABORTED, SeqCst);
    }

    /// The thread that stops the server is about to look at all connections.
    pub fn count_stop(&self) {
        self.stops.fetch_add(1, SeqCst);
    }

    pub fn stops(&self) -> u32 {
        self.stops.load(SeqCst)
    }

    pub fn keep_idle_until_ns(&self) -> u64 {
        self.keep_idle_until_ns.load(Relaxed)
    }
}
