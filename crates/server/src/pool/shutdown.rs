//! How a server comes to its end: every request that was sent before is answered, or none is.

use crate::pool::Pool;
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Connections taken from the listen queue when the server stops: as many as the queue can hold
/// where `net.core.somaxconn` is as Linux sets it, and an end if clients keep coming.
const ACCEPTS_AT_STOP: usize = 4_096;

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;
const ABORTED: u8 = 2;

/// How near the end is.
#[derive(Default)]
pub struct End {
    /// RUNNING, then STOPPING, then ABORTED.
    phase: AtomicU8,
    /// Until when a stopping server keeps connections that have no request; 0 while it runs.
    /// Written by `stop`, read by all threads; relaxed, since `phase` is changed after it.
    keep_idle_until_ns: AtomicU64,
    /// Calls of `stop`. Written by it after what it changes and before it looks at connections,
    /// read by threads around a turn: `SeqCst`, like the words.
    stops: AtomicU32,
}

impl End {
    pub fn stops(&self) -> u32 {
        self.stops.load(SeqCst)
    }

    pub fn keep_idle_until_ns(&self) -> u64 {
        self.keep_idle_until_ns.load(Relaxed)
    }
}

impl<A: Application> Pool<A> {
    /// Stops accepting, lets every request that was sent before end, then lets `work` return.
    ///
    /// Connections without a request are closed, or kept for up to `keep_idle_ns`: a client may be
    /// sending its next request on one, and would lose it. That request is answered with
    /// `Connection: close`. Called again it only changes for how long they are kept.
    ///
    /// A client whose connection waits in the listen queue may have sent its request long ago,
    /// and closing the listener would reset it; so the queue is emptied first. Then the phase
    /// changes, not before: a server without connections is over as soon as it is STOPPING.
    pub fn stop(&self, keep_idle_ns: u64) {
        let listeners =
            std::mem::take(&mut *self.listeners.lock().expect("no panic under this lock"));
        for (index, listener) in listeners.iter().enumerate() {
            self.epoll.remove(listener.fd());
            self.accept(listener, index, ACCEPTS_AT_STOP);
        }
        self.end.keep_idle_until_ns.store(now_ns().saturating_add(keep_idle_ns), Relaxed);
        if self.end.phase.compare_exchange(RUNNING, STOPPING, SeqCst, SeqCst) == Err(ABORTED) {
            return;
        }
        drop(listeners);
        self.end.stops.fetch_add(1, SeqCst);
        for slot in self.table.slots() {
            if let Some(mut connection) = slot.claim() {
                // A request may have come that no event has reported yet.
                connection.readable = true;
                self.submit(connection);
            }
        }
        self.wake_everyone();
    }

    /// Lets `work` return as soon as each thread's application does, whatever is open.
    pub fn abort(&self) {
        self.end.phase.store(ABORTED, SeqCst);
        self.wake_everyone();
    }

    pub(crate) fn wake_everyone(&self) {
        self.parking.wake_all();
        self.kick.kick();
        self.monitor.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.end.phase.load(SeqCst) != RUNNING
    }

    /// Whether a connection without a request may stay open for now.
    pub(crate) fn keeps_idle(&self) -> bool {
        now_ns() < self.end.keep_idle_until_ns()
    }

    pub fn is_over(&self) -> bool {
        match self.end.phase.load(SeqCst) {
            RUNNING => false,
            STOPPING => self.table.open() == 0,
            _ => true,
        }
    }
}
