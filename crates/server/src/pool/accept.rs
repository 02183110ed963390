//! Accepting: from the listeners to connections in the slab.
//!
//! Run by the thread that polls, and by who stops the server. Where there is no room, for want of
//! descriptors or slots, connections without a request are closed (`eviction`); without any to close, the
//! listeners are left alone until something closes, one can be evicted, or the monitor tries again; where other processes share them, they are left to those now and then (`sharing`).

use crate::connection::state::Connection;
use crate::limits::say_on_stderr;
use crate::net::socket::{self, Accepted, Direction, Listener};
use crate::pool::{FIRST_LISTENER_DATA, Pool};
use crate::request::Application;
use crate::stats::clock::now_ns;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

/// How often it is told that descriptors are wanting.
const WANT_PERIOD_NS: u64 = 60_000_000_000;

impl<A: Application> Pool<A> {
    pub(crate) fn accept_some(&self, data: u64, now_ns: u64) {
        let listeners = self.listeners.lock().expect("no panic under this lock");
        let index = (data - FIRST_LISTENER_DATA) as usize;
        let Some(listener) = listeners.get(index) else { return };
        if !self.accept(listener, index, self.sharing.batch(now_ns)) {
            self.pause_accepting(&listeners);
        } else if self.sharing.step_back(now_ns) {
            listeners.iter().for_each(|listener| self.epoll.remove(listener.fd()));
        }
    }

    /// How long the listeners are left to other processes yet. `None`: we wait for connections too,
    /// behind the others if we were away.
    pub(crate) fn time_away_from_listeners(&self) -> Option<u64> {
        if !self.sharing.is_away() {
            return None;
        }
        let remaining_ns = self.sharing.remaining_ns(now_ns());
        if remaining_ns.is_none() {
            let listeners = self.listeners.lock().expect("no panic under this lock");
            if !self.is_accepting_paused() {
                self.add_listeners(&listeners);
            }
        }
        remaining_ns
    }

    /// Accepts from the listener of that index until its queue is empty, at most `limit`
    /// connections. False if there is no room for more.
    pub(crate) fn accept(&self, listener: &Listener, index: usize, limit: usize) -> bool {
        for _ in 0..limit {
            if !self.has_room() {
                // Without a connection to accept no other has to give way.
                if !socket::wait_ready(listener.fd(), Direction::Receive, 0) {
                    return true;
                }
                if !self.make_room(&"max-connections is reached") {
                    return false;
                }
            }
            match listener.accept() {
                Accepted::Nothing => return true,
                Accepted::Exhausted(error) => {
                    if self.make_room(&error) {
                        continue;
                    }
                    self.tell_of_want(&error);
                    return false;
                }
                Accepted::Connection(socket, address) => {
                    let limits = Arc::clone(&self.limits);
                    let mut connection = Box::new(Connection::new(socket, address, limits));
                    connection.listener = index as u8;
                    self.entrance.admit(&mut connection);
                    let Some(mut connection) = self.table.insert(connection) else {
                        return false;
                    };
                    self.books.note_accepted();
                    let deadline_ns = self.next_deadline_ns(&mut connection);
                    // Registered while this thread owns it: afterwards another thread may claim it and
                    // close its descriptor.
                    let data = connection.token().to_data();
                    if self.epoll.add_connection(connection.socket.as_fd(), data).is_err() {
                        self.discard(connection);
                        continue;
                    }
                    if let Some(mut connection) = connection.wait(deadline_ns) {
                        // Its first event came already, to the thread that polls.
                        connection.noticed_ns = now_ns();
                        connection.readable = true;
                        self.submit(connection);
                    }
                    // It has deadlines now, which only the monitor keeps.
                    self.monitor.wake_if_asleep();
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
            say_on_stderr(&format!(
                "new connections wait until others are closed (open: {}): {error}",
                self.table.open()
            ));
        }
    }

    /// The last close may have come before the pause and have seen none; then, or where it is not we
    /// who hold all the descriptors, the monitor tries again.
    pub(crate) fn pause_accepting(&self, listeners: &[Listener]) {
        if !self.accepting_paused.swap(true, SeqCst) {
            for listener in listeners {
                self.epoll.remove(listener.fd());
            }
            self.monitor.wake_if_asleep();
        }
    }

    /// Something was closed, so there may be room again.
    pub(crate) fn resume_accepting(&self) {
        let listeners = self.listeners.lock().expect("no panic under this lock");
        if self.accepting_paused.swap(false, SeqCst) {
            self.add_listeners(&listeners);
        }
    }

    fn add_listeners(&self, listeners: &[Listener]) {
        for (listener, data) in listeners.iter().zip(FIRST_LISTENER_DATA..) {
            let added = self.epoll.add_listener(listener.fd(), data);
            // Want of memory; else it is registered already.
            if added.is_err_and(|error| error.raw_os_error() != Some(libc::EEXIST)) {
                self.accepting_paused.store(true, SeqCst);
            }
        }
    }

    pub(crate) fn is_accepting_paused(&self) -> bool {
        self.accepting_paused.load(SeqCst)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.table.open() < self.max_connections
    }
}
