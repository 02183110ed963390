//! Complete responses that a thread or the monitor sends later.
//!
//! There are two kinds. A *deferred* response waits for a moment while its thread runs further
//! requests, so that several responses are sent together (`pool::worker`). A *handed off* response
//! belongs to the request that the thread is running: the application has not returned yet, and the
//! monitor sends the response, or the part for which the socket had no room, in the meantime. PEP
//! 3333 requires this, and no thread has to wait for a slow client.
//!
//! Deferring must not cost the client time: a response waits for at most `DEFERRED_NS` by its
//! thread's clock, and the monitor sends overdue responses, whatever the application is doing.

use crate::connection::state::Connection;
use crate::connection::table::Queued;
use crate::net::socket::{self, Transfer};
use crate::net::tls::TlsSession;
use crate::stats::RequestRecord;
use headway_threads::lock::Lock;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// How long a response is deferred while its thread runs other requests.
const DEFERRED_NS: u64 = 500_000;
/// A thread whose batch is open for longer is stuck in one request, and the monitor closes it.
const STUCK_NS: u64 = 10_000_000;
/// Bytes that the monitor sends at a time, so that the lock is held briefly however fast the
/// client reads.
const BYTES_PER_SEND: usize = 262_144;
/// A longer response is sent at once.
const SMALL_BYTES: usize = 16_384;

/// A connection whose response is framed and unsent.
pub struct Deferred {
    pub connection: Queued,
    /// The record of the request without the time of sending.
    pub record: RequestRecord,
}

/// The deferred and handed-off responses of one thread.
#[derive(Default)]
pub struct DeferredResponses {
    /// The time since which responses may be deferred; 0 if they may not. Written under the lock by
    /// the thread and the monitor. The monitor reads it without the lock before it sleeps:
    /// `SeqCst`, see `pool::monitor_handle`.
    open_since_ns: AtomicU64,
    /// The monitor has the rest of a response to send, whether or not responses may be deferred.
    /// Written by the thread and the monitor, read like `open_since_ns`.
    has_rest: AtomicBool,
    contents: Lock<Contents>,
}

#[derive(Default)]
struct Contents {
    deferred: Vec<Deferred>,
    /// The complete response of the request that the thread is running.
    handed_off: Option<HandedOff>,
}

/// A response taken from a connection. The connection's thread reclaims it before it closes `fd`.
struct HandedOff {
    fd: RawFd,
    tls: Option<Box<TlsSession>>,
    bytes: Vec<u8>,
    sent: usize,
}

impl DeferredResponses {
    /// Lets responses be deferred from now on.
    pub fn open(&self, now_ns: u64) {
        let _contents = self.contents.lock();
        self.open_since_ns.store(now_ns, SeqCst);
    }

    pub fn is_open(&self) -> bool {
        self.open_since_ns.load(SeqCst) != 0
    }

    /// Whether the monitor has something to do.
    fn needs_monitor(&self, now_ns: u64) -> bool {
        self.is_due(now_ns) || self.has_rest()
    }

    pub fn is_due(&self, now_ns: u64) -> bool {
        self.is_open() && now_ns.saturating_sub(self.open_since_ns.load(SeqCst)) > DEFERRED_NS
    }

    /// Defers a response. Returns it if the monitor has closed the batch meanwhile.
    pub fn defer(&self, response: Deferred) -> Option<Deferred> {
        let mut contents = self.contents.lock();
        if !self.is_open() {
            return Some(response);
        }
        contents.deferred.push(response);
        None
    }

    /// Moves the deferred responses to the end of `out`. Called by the thread that deferred them.
    pub fn close(&self, out: &mut Vec<Deferred>) {
        let mut contents = self.contents.lock();
        out.append(&mut contents.deferred);
        self.open_since_ns.store(0, SeqCst);
    }

    /// Hands off a complete response, which the monitor sends if the application goes on for long.
    /// False if responses may not be deferred or this one is not small. Does not wait for the lock:
    /// the GIL is held, and in a forked child the lock may be held for ever.
    pub fn hand_off(&self, connection: &mut Connection) -> bool {
        let Some(mut contents) = self.contents.try_lock() else { return false };
        // This is read under the lock, because the monitor ignores the responses of a batch that it
        // has closed.
        let open = self.is_open() && is_small(connection);
        if open {
            contents.handed_off = Some(HandedOff::of(connection));
        }
        open
    }

    /// Hands off the rest of a response, for which the socket has no room yet.
    pub fn hand_off_rest(&self, connection: &mut Connection) {
        self.contents.lock().handed_off = Some(HandedOff::of(connection));
        self.has_rest.store(true, SeqCst);
    }

    /// If there is a rest, the monitor may be sending it, and `reclaim` may wait for the lock.
    pub fn has_rest(&self) -> bool {
        self.has_rest.load(SeqCst)
    }

    /// Ends `hand_off` and `hand_off_rest`: returns the unsent bytes to the connection.
    pub fn reclaim(&self, connection: &mut Connection) {
        if let Some(mut response) = self.contents.lock().handed_off.take() {
            response.bytes.append(&mut connection.outgoing);
            (connection.outgoing, connection.sent) = (response.bytes, response.sent);
            connection.tls = response.tls;
        }
        self.has_rest.store(false, SeqCst);
    }

    /// Called by the monitor: sends the handed-off response as far as the socket takes it, and
    /// takes the deferred ones if they are due.
    fn take_overdue(&self, now_ns: u64, out: &mut Vec<Deferred>) {
        let mut contents = self.contents.lock();
        let all_sent = contents.handed_off.as_mut().is_none_or(HandedOff::send);
        if all_sent {
            self.has_rest.store(false, SeqCst);
        }
        if !self.is_due(now_ns) {
            return;
        }
        out.append(&mut contents.deferred);
        let open_ns = now_ns.saturating_sub(self.open_since_ns.load(SeqCst));
        if all_sent && open_ns > STUCK_NS {
            self.open_since_ns.store(0, SeqCst);
        }
    }
}

impl HandedOff {
    fn of(connection: &mut Connection) -> Self {
        Self {
            fd: connection.socket.as_raw_fd(),
            tls: connection.tls.take(),
            bytes: std::mem::take(&mut connection.outgoing),
            sent: std::mem::take(&mut connection.sent),
        }
    }

    /// Sends as much as the socket accepts, up to `BYTES_PER_SEND`. True if nothing more can be
    /// done.
    fn send(&mut self) -> bool {
        // SAFETY: the thread closes the descriptor only after `reclaim`, which needs the lock that
        // the caller holds.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let end = self.bytes.len().min(self.sent + BYTES_PER_SEND);
        while self.sent < end {
            let unsent = &self.bytes[self.sent..end];
            let transfer = match &mut self.tls {
                None => socket::send(fd, unsent, false),
                Some(tls) => tls.send(fd, unsent),
            };
            match transfer {
                Transfer::Moved(count) => self.sent += count,
                // The thread finds the end of the connection too.
                Transfer::Ended => return true,
                Transfer::WouldBlock | Transfer::Unfinished => return false,
            }
        }
        let flushed = self.tls.as_mut().is_none_or(|tls| tls.flush(fd) != Transfer::WouldBlock);
        flushed && end == self.bytes.len()
    }
}

/// Whether the unsent part of the response is short, and nothing but bytes.
pub fn is_small(connection: &Connection) -> bool {
    connection.tls.is_none()
        && connection.file.is_none()
        && connection.outgoing.len() <= SMALL_BYTES
}

/// The responses of all threads, for the monitor. Locked before those of any thread.
#[derive(Default)]
pub struct AllDeferredResponses(Lock<Vec<Arc<DeferredResponses>>>);

impl AllDeferredResponses {
    /// Adds the deferred responses of the calling thread.
    pub fn join(&self) -> Arc<DeferredResponses> {
        let responses = Arc::default();
        self.0.lock().push(Arc::clone(&responses));
        responses
    }

    pub fn leave(&self, responses: &Arc<DeferredResponses>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, responses));
    }

    /// Whether the monitor may have something to do although no thread wakes it.
    pub fn are_used(&self) -> bool {
        self.0.lock().iter().any(|responses| responses.is_open() || responses.has_rest())
    }

    /// Sends what was handed off, and moves the deferred responses that are overdue to the end of
    /// `out`.
    pub fn take_overdue(&self, now_ns: u64, out: &mut Vec<Deferred>) {
        for responses in self.0.lock().iter().filter(|responses| responses.needs_monitor(now_ns)) {
            responses.take_overdue(now_ns, out);
        }
    }
}

#[cfg(test)]
#[path = "deferred_tests.rs"]
mod tests;
