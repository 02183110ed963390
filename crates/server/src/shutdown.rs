//! The phase of a server: it runs, it answers what was sent before, or it was aborted.

use headway_measure::clock::now_ns;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;
const ABORTED: u8 = 2;

#[derive(Default)]
pub struct Shutdown {
    /// | value | written by | meaning |
    /// |---|---|---|
    /// | RUNNING | | the server accepts connections |
    /// | STOPPING | `begin`, from RUNNING | over when the last connection is closed |
    /// | ABORTED | `abort` | over, whatever is open |
    ///
    /// Read by all threads, `SeqCst`.
    phase: AtomicU8,
    /// Until when a stopping server keeps connections that have no request; 0 while it runs.
    /// Written by `begin`, read by all threads; relaxed, since `phase` is changed after it.
    keep_idle_until_ns: AtomicU64,
    /// Calls of `begin`. Written by it after what it changes, and before its caller looks at the
    /// connections; read by threads around a turn. `SeqCst`, like the ownership states.
    stops: AtomicU32,
    /// The requests that ended early because the server was aborted. Written by their threads, read
    /// once these have ended; relaxed.
    cut_off: AtomicU32,
}

impl Shutdown {
    /// Stops the server, or changes how long a stopping one keeps idle connections. False if it
    /// was aborted.
    pub fn begin(&self, keep_idle_until_ns: u64) -> bool {
        self.keep_idle_until_ns.store(keep_idle_until_ns, Relaxed);
        if self.phase.compare_exchange(RUNNING, STOPPING, SeqCst, SeqCst) == Err(ABORTED) {
            return false;
        }
        self.stops.fetch_add(1, SeqCst);
        true
    }

    pub fn abort(&self) {
        self.phase.store(ABORTED, SeqCst);
    }

    /// Whether the time that requests have is over.
    pub fn is_aborted(&self) -> bool {
        self.phase.load(SeqCst) == ABORTED
    }

    pub fn note_cut_off(&self) {
        self.cut_off.fetch_add(1, Relaxed);
    }

    pub fn cut_off(&self) -> u32 {
        self.cut_off.load(Relaxed)
    }

    pub fn stops(&self) -> u32 {
        self.stops.load(SeqCst)
    }

    pub fn is_stopping(&self) -> bool {
        self.phase.load(SeqCst) != RUNNING
    }

    pub fn keep_idle_until_ns(&self) -> u64 {
        self.keep_idle_until_ns.load(Relaxed)
    }

    /// Whether a connection without a request may stay open for now.
    pub fn keeps_idle(&self) -> bool {
        now_ns() < self.keep_idle_until_ns()
    }

    /// Whether the server is over, given the number of open connections.
    pub fn is_over(&self, open_connections: impl FnOnce() -> usize) -> bool {
        match self.phase.load(SeqCst) {
            RUNNING => false,
            STOPPING => open_connections() == 0,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopping_server_is_over_when_its_last_connection_is_closed() {
        let shutdown = Shutdown::default();
        assert!(!shutdown.is_stopping() && !shutdown.is_over(|| 0));
        assert!(shutdown.begin(u64::MAX) && shutdown.keeps_idle());
        assert!(shutdown.is_stopping() && !shutdown.is_over(|| 1) && shutdown.is_over(|| 0));
        assert!(shutdown.begin(0) && !shutdown.keeps_idle());
        assert_eq!(shutdown.stops(), 2);
    }

    #[test]
    fn an_aborted_server_is_over_and_does_not_stop() {
        let shutdown = Shutdown::default();
        shutdown.abort();
        assert!(shutdown.is_stopping() && shutdown.is_aborted() && shutdown.is_over(|| 1));
        assert!(!shutdown.begin(0));
        assert_eq!(shutdown.stops(), 0);
    }
}
