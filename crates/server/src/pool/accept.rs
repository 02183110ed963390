//! Accepting: from the listeners to connections in the slab.
//!
//! Run by the thread that polls, and by who stops the server. Where there is no room, for want of
//! descriptors or slots, connections without a request are closed (`eviction`); without any to close, the
//! listeners are left alone until something closes, one can be evicted, or the monitor tries again; where other processes share them, they are left to those now and then (`balancing`).

use crate::connection::deadline::Timeouts;
use crate::connection::preamble::Preamble;
use crate::connection::state::Connection;
use crate::http::Limits;
use crate::limits::log_to_stderr;
use crate::net::socket::{self, Accepted, Direction, Listener};
use crate::pool::accept_balancing::AcceptBalancing;
use crate::pool::dispatcher::{Dispatcher, WAKER_DATA};
use crate::pool::eviction::Eviction;
use headway_measure::clock::now_ns;
use headway_reporter::lock::Lock;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Listening sockets of one server.
pub const MAX_LISTENERS: usize = 64;
/// The epoll data of the first listener; those of the others follow.
pub const FIRST_LISTENER_DATA: u64 = WAKER_DATA - MAX_LISTENERS as u64;
/// Connections accepted before those that are ready get their turn.
const ACCEPTS_PER_EVENT: usize = 64;
/// Connections taken from the listen queue when the server stops: as many as the queue can hold
/// where `net.core.somaxconn` is as Linux sets it, and an end if clients keep coming.
const ACCEPTS_AT_STOP: usize = 4_096;
/// How often it is told that descriptors are wanting.
const WANT_PERIOD_NS: u64 = 60_000_000_000;

pub struct Acceptor {
    dispatcher: Arc<Dispatcher>,
    /// Empty once the server has stopped accepting.
    listeners: Lock<Vec<Listener>>,
    /// Accepting failed for want of descriptors or slots; a close or the monitor turns it on again.
    paused: AtomicBool,
    /// When stderr was last told that it failed for want of descriptors; 0: never. Whoever accepts
    /// writes it, relaxed: the exchange lets one of two tell.
    want_told_ns: AtomicU64,
    eviction: Eviction,
    balancing: AcceptBalancing,
    preamble: Arc<Preamble>,
    timeouts: Timeouts,
    limits: Arc<Limits>,
    max_connections: usize,
}

/// What an [`Acceptor`] is made of.
pub struct AcceptorSettings {
    /// At most `MAX_LISTENERS`.
    pub listeners: Vec<Listener>,
    /// Other processes accept from them too.
    pub shared: bool,
    pub preamble: Arc<Preamble>,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub max_connections: usize,
}

impl Acceptor {
    pub fn new(dispatcher: Arc<Dispatcher>, settings: AcceptorSettings) -> std::io::Result<Self> {
        for (listener, data) in settings.listeners.iter().zip(FIRST_LISTENER_DATA..WAKER_DATA) {
            listener.set_nonblocking()?;
            dispatcher.epoll.add_listener(listener.fd(), data)?;
        }
        Ok(Self {
            dispatcher,
            listeners: Lock::new(settings.listeners),
            paused: AtomicBool::new(false),
            want_told_ns: AtomicU64::new(0),
            eviction: Eviction::default(),
            balancing: AcceptBalancing::new(settings.shared, ACCEPTS_PER_EVENT),
            preamble: settings.preamble,
            timeouts: settings.timeouts,
            limits: Arc::new(settings.limits),
            max_connections: settings.max_connections,
        })
    }

    pub fn accept_some(&self, data: u64, now_ns: u64) {
        let listeners = self.listeners.lock();
        let index = (data - FIRST_LISTENER_DATA) as usize;
        let Some(listener) = listeners.get(index) else { return };
        if !self.accept(listener, index, self.balancing.batch(now_ns)) {
            self.pause_accepting(&listeners);
        } else if self.balancing.step_back(now_ns) {
            listeners.iter().for_each(|listener| self.dispatcher.epoll.remove(listener.fd()));
        }
    }

    /// How long the listeners are left to other processes yet. `None`: we wait for connections too,
    /// behind the others if we were away.
    pub fn time_away_from_listeners(&self) -> Option<u64> {
        if !self.balancing.is_away() {
            return None;
        }
        let remaining_ns = self.balancing.remaining_ns(now_ns());
        if remaining_ns.is_none() {
            let listeners = self.listeners.lock();
            if !self.is_accepting_paused() {
                self.add_listeners(&listeners);
            }
        }
        remaining_ns
    }

    /// How long until the next eviction can make room, if accepting waits for it; accepts again when
    /// that time has come.
    pub fn time_until_eviction(&self) -> Option<u64> {
        if !self.is_accepting_paused() {
            return None;
        }
        match self.eviction.remaining_ns(now_ns())? {
            0 => {
                self.resume_accepting();
                None
            }
            remaining_ns => Some(remaining_ns),
        }
    }

    /// Takes the listeners away, and accepts what waits in their queues: a client may have sent its
    /// request long ago, and closing the listener would reset its connection.
    pub fn stop(&self) -> Vec<Listener> {
        let listeners = std::mem::take(&mut *self.listeners.lock());
        for (index, listener) in listeners.iter().enumerate() {
            self.dispatcher.epoll.remove(listener.fd());
            self.accept(listener, index, ACCEPTS_AT_STOP);
        }
        listeners
    }

    /// Accepts from the listener of that index until its queue is empty, at most `limit`
    /// connections. False if there is no room for more.
    pub fn accept(&self, listener: &Listener, index: usize, limit: usize) -> bool {
        for _ in 0..limit {
            if !self.has_room() {
                // Without a connection to accept no other has to give way.
                if !socket::wait_ready(listener.fd(), Direction::Receive, 0) {
                    return true;
                }
                if !self.eviction.make_room(&self.dispatcher, &"max-connections is reached") {
                    return false;
                }
            }
            match listener.accept() {
                Accepted::Nothing => return true,
                Accepted::Exhausted(error) => {
                    if self.eviction.make_room(&self.dispatcher, &error) {
                        continue;
                    }
                    self.tell_of_want(&error);
                    return false;
                }
                Accepted::Connection(socket, address) => {
                    let limits = Arc::clone(&self.limits);
                    let mut connection = Box::new(Connection::new(socket, address, limits));
                    connection.listener = index as u8;
                    self.preamble.admit(&mut connection);
                    let Some(mut connection) = self.dispatcher.table.insert(connection) else {
                        return false;
                    };
                    self.dispatcher.counters.note_accepted();
                    let deadline_ns =
                        self.timeouts.next_deadline_ns(&mut connection, &self.dispatcher.phase);
                    // Registered while this thread owns it: afterwards another thread may claim it and
                    // close its descriptor.
                    let data = connection.token().to_data();
                    if self
                        .dispatcher
                        .epoll
                        .add_connection(connection.socket.as_fd(), data)
                        .is_err()
                    {
                        self.dispatcher.close(connection);
                        continue;
                    }
                    if let Some(mut connection) = connection.wait(deadline_ns) {
                        // Its first event came already, to the thread that polls.
                        connection.noticed_ns = now_ns();
                        connection.readable = true;
                        self.dispatcher.submit(connection);
                    }
                    // It has deadlines now, which only the monitor keeps.
                    self.dispatcher.monitor.wake_if_asleep();
                }
            }
        }
        true
    }

    /// Once a minute at most: a pause may end with the next close, and come again.
    fn tell_of_want(&self, error: &std::io::Error) {
        let (told_ns, now_ns) = (self.want_told_ns.load(Relaxed), now_ns());
        let is_due = told_ns == 0 || now_ns.saturating_sub(told_ns) >= WANT_PERIOD_NS;
        if is_due && self.want_told_ns.compare_exchange(told_ns, now_ns, Relaxed, Relaxed).is_ok() {
            log_to_stderr(&format!(
                "new connections wait until others are closed (open: {}): {error}",
                self.dispatcher.table.open()
            ));
        }
    }

    /// The last close may have come before the pause and have seen none; then, or where it is not we
    /// who hold all the descriptors, the monitor tries again.
    pub fn pause_accepting(&self, listeners: &[Listener]) {
        if !self.paused.swap(true, SeqCst) {
            for listener in listeners {
                self.dispatcher.epoll.remove(listener.fd());
            }
            self.dispatcher.monitor.wake_if_asleep();
        }
    }

    /// Something was closed, so there may be room again.
    pub fn resume_accepting(&self) {
        let listeners = self.listeners.lock();
        if self.paused.swap(false, SeqCst) {
            self.add_listeners(&listeners);
        }
    }

    fn add_listeners(&self, listeners: &[Listener]) {
        for (listener, data) in listeners.iter().zip(FIRST_LISTENER_DATA..) {
            let added = self.dispatcher.epoll.add_listener(listener.fd(), data);
            // Want of memory; else it is registered already.
            if added.is_err_and(|error| error.raw_os_error() != Some(libc::EEXIST)) {
                self.paused.store(true, SeqCst);
            }
        }
    }

    /// Connections evicted since the last line on stderr.
    #[cfg(test)]
    pub fn unreported_evictions(&self) -> u64 {
        self.eviction.unreported.load(Relaxed)
    }

    #[cfg(test)]
    pub fn pause(&self) {
        self.pause_accepting(&self.listeners.lock());
    }

    #[cfg(test)]
    pub fn accept_one(&self) -> bool {
        self.accept(&self.listeners.lock()[0], 0, 1)
    }

    #[cfg(test)]
    pub fn make_room(&self, reason: &str) -> bool {
        self.eviction.make_room(&self.dispatcher, &reason)
    }

    pub fn is_accepting_paused(&self) -> bool {
        self.paused.load(SeqCst)
    }

    pub fn has_room(&self) -> bool {
        self.dispatcher.table.open() < self.max_connections
    }
}
