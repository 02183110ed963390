//! Accepts connections from the listeners into the table.
//!
//! Runs on the thread that polls, and on the thread that stops the server. If there are no
//! descriptors or slots left, connections without a request are closed (`eviction`). If there are
//! none to close, accepting pauses until a connection closes, one can be evicted, or the monitor
//! tries again. If other processes share the listeners, this process leaves the listeners to them
//! from time to time (`accept_balancing`).

use crate::connection::deadline::Deadlines;
use crate::connection::preamble::Preamble;
use crate::connection::state::{Connection, FirstRequest};
use crate::connection::table::{MAX_CONNECTIONS, Table};
use crate::http::Limits;
use crate::net::epoll::Epoll;
use crate::net::handover::Known;
use crate::net::listener::{Accepted, Listener};
use crate::net::socket::{self, Direction};
use crate::pool::accept_balancing::AcceptBalancing;
use crate::pool::eviction::Eviction;
use crate::pool::scheduler::PoolScheduler;
use crate::request::ThreadScheduling;
use crate::stderr::{OncePerMinute, log_to_stderr};
use headway_measure::clock::now_ns;
use headway_threads::lock::Lock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// Listening sockets of one server.
pub const MAX_LISTENERS: usize = 64;
/// These, and a queue of connections that another process hands over.
pub const MAX_SOURCES: usize = MAX_LISTENERS + 1;
/// The connections that are accepted before ready connections get their turn.
const ACCEPTS_PER_EVENT: usize = 64;
/// The connections that are accepted when the server stops: as many as the queue can hold with
/// Linux's default of `net.core.somaxconn`. The limit ends the loop if clients keep connecting.
const ACCEPTS_AT_STOP: usize = 4_096;

/// The parts of a server that handle a new connection.
pub struct Admission {
    pub table: Arc<Table>,
    pub scheduler: Arc<PoolScheduler>,
    pub preamble: Arc<Preamble>,
    pub deadlines: Deadlines,
    pub limits: Arc<Limits>,
}

pub struct Acceptor {
    admission: Admission,
    epoll: Arc<Epoll>,
    /// The data of the first listener's events; the others follow.
    first_data: u64,
    /// Empty once the server has stopped accepting.
    listeners: Lock<Vec<Listener>>,
    /// There was no room. A close, an eviction or the monitor resumes accepting. Written by the
    /// threads that accept, close and monitor, `SeqCst`. A close just before the pause does not see
    /// the flag; then the monitor resumes.
    paused: AtomicBool,
    /// No other process hands connections over any more. Written by the threads that accept, read
    /// by those that register listeners; relaxed, because a listener that is registered once too
    /// often is removed again.
    is_handover_over: AtomicBool,
    shortage_report: OncePerMinute,
    eviction: Eviction,
    balancing: AcceptBalancing,
    max_connections: usize,
}

impl Acceptor {
    /// Takes ownership of the listeners. Their events have `first_data` and the following numbers.
    pub fn new(
        admission: Admission,
        epoll: Arc<Epoll>,
        first_data: u64,
        listeners: Vec<Listener>,
        are_shared: bool,
        max_connections: usize,
    ) -> io::Result<Self> {
        for (listener, data) in listeners.iter().take(MAX_SOURCES).zip(first_data..) {
            listener.set_nonblocking()?;
            epoll.add_listener(listener.fd(), data)?;
        }
        let eviction =
            Eviction::new(Arc::clone(&admission.table), Arc::clone(&admission.scheduler));
        Ok(Self {
            admission,
            epoll,
            first_data,
            listeners: Lock::new(listeners),
            paused: AtomicBool::new(false),
            is_handover_over: AtomicBool::new(false),
            shortage_report: OncePerMinute::default(),
            eviction,
            balancing: AcceptBalancing::new(are_shared, ACCEPTS_PER_EVENT),
            max_connections: max_connections.min(MAX_CONNECTIONS),
        })
    }

    /// Accepts from the listener whose event has `data`.
    pub fn accept_some(&self, data: u64, now_ns: u64) {
        let listeners = self.listeners.lock();
        let index = (data - self.first_data) as usize;
        let Some(listener) = listeners.get(index) else { return };
        if !self.accept(listener, index, self.balancing.batch(now_ns)) {
            self.pause(&listeners);
        } else if self.balancing.leave(now_ns) {
            listeners.iter().for_each(|listener| self.epoll.remove(listener.fd()));
        }
    }

    /// Whether only this process receives what comes with `data`: connections that are handed to it
    /// alone.
    pub fn is_alone_at(&self, data: u64) -> bool {
        let listeners = self.listeners.lock();
        let listener = listeners.get((data - self.first_data) as usize);
        !self.balancing.is_shared() && matches!(listener, Some(Listener::Handover(_)))
    }

    /// How long a poll may last before accepting needs attention. Returns to the listeners, or
    /// resumes, if that time has come.
    pub fn remaining_ns(&self) -> Option<u64> {
        let times_ns = [self.time_away_ns(), self.time_until_eviction_ns()];
        times_ns.into_iter().flatten().min()
    }

    /// The time for which the listeners are left to other processes. `None` if this process waits
    /// for connections too, behind the others if it was away.
    fn time_away_ns(&self) -> Option<u64> {
        if !self.balancing.is_away() {
            return None;
        }
        let remaining_ns = self.balancing.remaining_ns(now_ns());
        if remaining_ns.is_none() {
            let listeners = self.listeners.lock();
            if !self.is_paused() {
                self.add_listeners(&listeners);
            }
        }
        remaining_ns
    }

    fn time_until_eviction_ns(&self) -> Option<u64> {
        if !self.is_paused() {
            return None;
        }
        let remaining_ns = self.eviction.remaining_ns();
        if remaining_ns == Some(0) {
            self.resume();
            return None;
        }
        remaining_ns
    }

    /// Stops accepting, after emptying the listen queues: a client whose connection is in a queue
    /// may have sent its request long ago, and closing the listener would reset the connection. The
    /// queue of handed-over connections is left to a successor, unless it is shut down. The caller
    /// closes the listeners by dropping them.
    pub fn stop(&self) -> Vec<Listener> {
        let listeners = std::mem::take(&mut *self.listeners.lock());
        for (index, listener) in listeners.iter().enumerate() {
            self.epoll.remove(listener.fd());
            if listener.has_other_receivers() {
                continue;
            }
            self.accept(listener, index, ACCEPTS_AT_STOP);
        }
        listeners
    }

    /// Accepts from the listener of that index until its queue is empty, at most `limit`
    /// connections. False if there is no room for more.
    fn accept(&self, listener: &Listener, index: usize, limit: usize) -> bool {
        for _ in 0..limit {
            if self.admission.table.open() >= self.max_connections {
                // If there is no connection to accept, no other connection must be evicted.
                if !socket::wait_ready(listener.fd(), Direction::Receive, 0) {
                    return true;
                }
                if !self.eviction.make_room(&"max-connections is reached") {
                    return false;
                }
            }
            match listener.accept() {
                Accepted::Nothing => return true,
                Accepted::Exhausted(error) => {
                    if self.eviction.make_room(&error) {
                        continue;
                    }
                    self.report_shortage(&error);
                    return false;
                }
                Accepted::Connection(socket, address) => {
                    let limits = Arc::clone(&self.admission.limits);
                    let mut connection = Box::new(Connection::new(socket, address, limits));
                    connection.listener = index as u8;
                    if !self.admission.admit(connection) {
                        return false;
                    }
                }
                Accepted::HandedOver(socket, known) => {
                    if !self.admission.admit_handed_over(socket, known) {
                        return false;
                    }
                }
                Accepted::Over => {
                    // It would be readable for ever.
                    self.epoll.remove(listener.fd());
                    self.is_handover_over.store(true, Relaxed);
                    return true;
                }
            }
        }
        true
    }

    /// Reports at most once a minute, because a pause may end with the next close and begin again.
    fn report_shortage(&self, error: &io::Error) {
        if self.shortage_report.is_due(now_ns()) {
            log_to_stderr(&format!(
                "new connections wait until others are closed (open: {}): {error}",
                self.admission.table.open()
            ));
        }
    }

    /// Pauses accepting. The last close may have come before the pause, or another program may hold
    /// the descriptors. In both cases the monitor tries again.
    fn pause(&self, listeners: &[Listener]) {
        if !self.paused.swap(true, SeqCst) {
            for listener in listeners {
                self.epoll.remove(listener.fd());
            }
            self.admission.scheduler.wake_monitor_if_asleep();
        }
    }

    /// Resumes accepting, because there may be room again.
    pub fn resume(&self) {
        let listeners = self.listeners.lock();
        if self.paused.swap(false, SeqCst) {
            self.add_listeners(&listeners);
        }
    }

    fn add_listeners(&self, listeners: &[Listener]) {
        for (listener, data) in listeners.iter().zip(self.first_data..) {
            if self.is_handover_over.load(Relaxed) && matches!(listener, Listener::Handover(_)) {
                continue;
            }
            let added = self.epoll.add_listener(listener.fd(), data);
            // A listener that is registered already stays registered. Any other error is a lack of
            // memory.
            if added.is_err_and(|error| error.raw_os_error() != Some(libc::EEXIST)) {
                self.paused.store(true, SeqCst);
            }
        }
    }

    pub fn is_paused(&self) -> bool {
        self.paused.load(SeqCst)
    }
}

impl Admission {
    /// Puts a connection into the table, to wait for its first event. False if the table is full.
    fn admit(&self, mut connection: Box<Connection>) -> bool {
        self.preamble.admit(&mut connection);
        self.insert(connection)
    }

    fn insert(&self, connection: Box<Connection>) -> bool {
        let Some(mut owned) = self.table.insert(connection) else { return false };
        let deadline_ns = self.deadlines.next_ns(&mut owned);
        if owned.register().is_err() {
            owned.close();
            return true;
        }
        if let Err(mut owned) = owned.wait(deadline_ns) {
            // The thread that polls has seen its first event.
            owned.noticed_ns = now_ns();
            self.scheduler.submit(owned);
        }
        // The connection has deadlines now, which only the monitor enforces.
        self.scheduler.wake_monitor_if_asleep();
        true
    }

    /// Puts a connection into the table that another process has handed over. False if the table is
    /// full.
    fn admit_handed_over(&self, socket: OwnedFd, known: Known) -> bool {
        let Known { address, listener, noticed_ns } = known;
        let mut connection = Box::new(Connection::new(socket, address, Arc::clone(&self.limits)));
        connection.listener = listener;
        self.preamble.set_forwarding(&mut connection);
        if noticed_ns == 0 {
            // It is kept like others that have had a request.
            connection.first_request = FirstRequest::Arrived;
            return self.insert(connection);
        }
        connection.noticed_ns = noticed_ns;
        let Some(owned) = self.table.insert(connection) else { return false };
        match owned.register() {
            Ok(()) => self.scheduler.submit_since(owned.queue(), noticed_ns),
            Err(_) => owned.close(),
        }
        self.scheduler.wake_monitor_if_asleep();
        true
    }
}

#[cfg(test)]
impl Acceptor {
    pub fn is_handover_over(&self) -> bool {
        self.is_handover_over.load(Relaxed)
    }

    pub fn pause_now(&self) {
        self.pause(&self.listeners.lock());
    }

    pub fn accept_one(&self) -> bool {
        self.accept(&self.listeners.lock()[0], 0, 1)
    }

    pub fn make_room(&self) -> bool {
        self.eviction.make_room(&"test")
    }

    pub fn unreported_evictions(&self) -> u64 {
        self.eviction.unreported()
    }
}
