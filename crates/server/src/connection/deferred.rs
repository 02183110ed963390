//! Responses that are complete and wait for a moment, so that several go out in one burst.
//!
//! Sending to a client on this machine, such as a proxy, wakes it. Where its core has fallen
//! asleep since the last response, that costs the sender 10 to 20 µs, and the application's next
//! request runs on colder caches. So a thread with more requests at hand runs those first. Django's
//! hello then takes 0.8 of the CPU time.
//!
//! It must not cost the client: a response is held only while requests are short (see `burst`),
//! for `HELD_NS` at most by its thread's own clock, and the monitor sends what is overdue, whatever
//! the thread's application is doing: a response that is held here, and one whose application is
//! not done with it (`hand_off`: it is in its `close()`, say). And it goes on with the rest of one that
//! the socket had no room for, while the application is not done (`hand_off_rest`): PEP 3333 has a
//! server guarantee that, and no thread waits for a slow client.

use crate::connection::state::Connection;
use crate::connection::table::Queued;
use crate::net::socket::{self, Transfer};
use crate::net::tls::TlsSession;
use crate::stats::RequestRecord;
use headway_reporter::lock::Lock;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, MutexGuard};

/// How long a response is held while its thread runs others.
const HELD_NS: u64 = 500_000;
/// A thread that runs one request for so long gets no attention for what may come.
const STUCK_NS: u64 = 10_000_000;
/// How much of what is entrusted goes out at a time: nobody waits for the lock for long, however fast the
/// client reads.
const SENT_BYTES: usize = 262_144;
/// What is larger goes out at once.
const HELD_BYTES: usize = 16_384;

/// A connection whose response is framed and unsent.
pub struct Deferred {
    pub connection: Queued,
    /// Of the request, but for the sending.
    pub record: RequestRecord,
}

/// What one thread holds.
#[derive(Default)]
pub struct DeferredResponses {
    /// Since when responses may be put in; 0: they may not. Written under the lock, read without it
    /// by the monitor before it sleeps: `SeqCst`, see `Monitor::asleep`.
    open_since_ns: AtomicU64,
    /// The monitor has the rest of a response to go on with, be the box open or not. As above.
    has_rest: AtomicBool,
    contents: Lock<Contents>,
}

#[derive(Default)]
struct Contents {
    /// Owns the connections.
    held: Vec<Deferred>,
    /// The complete response of the request that the thread is running.
    handed_off: Option<HandedOff>,
}

/// It was the peer's, which stays the thread's: it takes it back before it closes `fd`.
struct HandedOff {
    fd: RawFd,
    tls: Option<Box<TlsSession>>,
    bytes: Vec<u8>,
    sent: usize,
}

impl DeferredResponses {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock()
    }

    /// Called by its thread before it runs a request whose response may be held.
    pub fn open(&self, now_ns: u64) {
        let _contents = self.lock();
        self.open_since_ns.store(now_ns, SeqCst);
    }

    pub fn is_open(&self) -> bool {
        self.open_since_ns.load(SeqCst) != 0
    }

    /// Whether the monitor has something to do.
    fn wants_attention(&self, now_ns: u64) -> bool {
        self.is_due(now_ns) || self.has_rest()
    }

    pub fn is_due(&self, now_ns: u64) -> bool {
        self.is_open() && now_ns.saturating_sub(self.open_since_ns.load(SeqCst)) > HELD_NS
    }

    /// Gives the connection back if the box is closed.
    pub fn hold(&self, held: Deferred) -> Option<Deferred> {
        let mut contents = self.lock();
        if !self.is_open() {
            return Some(held);
        }
        contents.held.push(held);
        None
    }

    /// Moves everything held to the end of `out`, whose owner owns it now. Called by its thread.
    pub fn close(&self, out: &mut Vec<Deferred>) {
        let mut contents = self.lock();
        out.append(&mut contents.held);
        self.open_since_ns.store(0, SeqCst);
    }

    /// Lets the monitor send what the peer has to, should the application take its time yet. False
    /// if it is not for this box. Waits for nobody: the GIL is held, and in a forked child the lock may
    /// be too, for ever.
    pub fn hand_off(&self, connection: &mut Connection) -> bool {
        let Some(mut contents) = self.contents.try_lock() else { return false };
        // Under the lock: the monitor looks no more into a box that it has closed.
        let open = self.is_open() && is_small(connection);
        if open {
            contents.handed_off = Some(HandedOff::of(connection));
        }
        open
    }

    /// Lets the monitor go on with what the socket has no room for yet.
    pub fn hand_off_rest(&self, connection: &mut Connection) {
        self.lock().handed_off = Some(HandedOff::of(connection));
        self.has_rest.store(true, SeqCst);
    }

    /// The monitor may be sending more than a few bytes just now: `reclaim` would have to wait.
    pub fn has_rest(&self) -> bool {
        self.has_rest.load(SeqCst)
    }

    /// The end of `hand_off` and `hand_off_rest`: gives back what is unsent.
    pub fn reclaim(&self, connection: &mut Connection) {
        if let Some(mut handed_off) = self.lock().handed_off.take() {
            handed_off.bytes.append(&mut connection.outgoing);
            (connection.outgoing, connection.sent) = (handed_off.bytes, handed_off.sent);
            connection.tls = handed_off.tls;
        }
        self.has_rest.store(false, SeqCst);
    }

    /// The monitor's part: sends what is entrusted as far as the socket takes it, and takes what
    /// is held.
    fn take_overdue(&self, now_ns: u64, out: &mut Vec<Deferred>) {
        let mut contents = self.lock();
        let all_sent = contents.handed_off.as_mut().is_none_or(HandedOff::send);
        if all_sent {
            self.has_rest.store(false, SeqCst);
        }
        if !self.is_due(now_ns) {
            return;
        }
        out.append(&mut contents.held);
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

    /// As far as the socket takes it, up to `SENT_BYTES`; true if nothing more can be done.
    fn send(&mut self) -> bool {
        // SAFETY: open until its thread has taken it back, which needs the lock that we hold.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let end = self.bytes.len().min(self.sent + SENT_BYTES);
        while self.sent < end {
            let unsent = &self.bytes[self.sent..end];
            let transfer = match &mut self.tls {
                None => socket::send(fd, unsent, false),
                Some(tls) => tls.send(fd, unsent),
            };
            match transfer {
                Transfer::Moved(count) => self.sent += count,
                // The thread will find that too.
                Transfer::Ended => return true,
                Transfer::WouldBlock | Transfer::Unfinished => return false,
            }
        }
        let flushed = self.tls.as_mut().is_none_or(|tls| tls.flush(fd) != Transfer::WouldBlock);
        flushed && end == self.bytes.len()
    }
}

/// Whether the rest of the response is worth holding, and nothing but bytes.
pub fn is_small(connection: &Connection) -> bool {
    connection.tls.is_none() && connection.file.is_none() && connection.outgoing.len() <= HELD_BYTES
}

/// The outboxes of all threads, for the monitor. Locked before any of them.
#[derive(Default)]
pub struct DeferredOfThreads(Lock<Vec<Arc<DeferredResponses>>>);

impl DeferredOfThreads {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<DeferredResponses>>> {
        self.0.lock()
    }

    /// One for the calling thread, until it leaves.
    pub fn join(&self) -> Arc<DeferredResponses> {
        let deferred = Arc::default();
        self.lock().push(Arc::clone(&deferred));
        deferred
    }

    pub fn leave(&self, deferred: &Arc<DeferredResponses>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, deferred));
    }

    /// Whether time alone may make them want attention.
    pub fn are_used(&self) -> bool {
        self.lock().iter().any(|deferred| deferred.is_open() || deferred.has_rest())
    }

    /// Sends what the threads are overdue with; moves what they held to the end of `out`, whose
    /// owner owns it now.
    pub fn take_overdue(&self, now_ns: u64, out: &mut Vec<Deferred>) {
        for deferred in self.lock().iter().filter(|deferred| deferred.wants_attention(now_ns)) {
            deferred.take_overdue(now_ns, out);
        }
    }
}

#[cfg(test)]
#[path = "deferred_tests.rs"]
mod tests;
