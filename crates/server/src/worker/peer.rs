//! One open connection: its socket, its protocol state, and what of a response is still unsent.
//!
//! A peer is touched by one thread at a time, the owner of its slot's word.

use super::exchange::Progress;
use super::socket::{self, Direction, PeerAddress, Transfer};
use crate::http::connection::Finished;
use crate::http::{Connection, Limits};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub struct Peer {
    pub socket: OwnedFd,
    pub address: PeerAddress,
    pub http: Connection,
    /// The decoded body of the current request, as far as it was received.
    pub body: Vec<u8>,
    /// Framed bytes of the response; `[..sent]` is out.
    pub outgoing: Vec<u8>,
    pub sent: usize,
    /// `http`, `body` and `outgoing` have memory, perhaps a thread's.
    has_buffers: bool,
    pub stage: Stage,
    /// More may be read: an event came, or the last read filled all the space there was.
    pub readable: bool,
    /// The peer has shut down its sending side: read to the end, since no event may follow.
    pub hangup: bool,
    /// When the thread that polls saw the event that this turn answers.
    pub noticed_ns: u64,
    /// When the current stage must be over, and which stage that was set for.
    pub deadline_ns: u64,
    pub deadline_stage: Stage,
    /// Set by the monitor when the deadline has passed.
    pub expired: bool,
    pub progress: Progress,
}

/// What the connection is waiting for when no thread works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first byte of a request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body that is gathered before the application is called.
    Body,
    /// Room in the socket for the rest of a response; then what is said here.
    Writing(Finished),
    /// Everything is sent and FIN too. What still comes is dropped, since closing with unread
    /// bytes would send RST, and RST can destroy the response on its way.
    Lingering,
}

impl Peer {
    pub fn new(socket: OwnedFd, address: PeerAddress, limits: Arc<Limits>) -> Self {
        Self {
            socket,
            address,
            http: Connection::new(limits),
            body: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            has_buffers: false,
            stage: Stage::Idle,
            readable: true,
            hangup: false,
            noticed_ns: 0,
            deadline_ns: 0,
            deadline_stage: Stage::Lingering,
            expired: false,
            progress: Progress::default(),
        }
    }

    /// Moves what the socket has into the connection, without waiting.
    pub fn receive(&mut self) -> Transfer {
        let space = self.http.space();
        let room = space.len();
        let transfer = socket::receive(self.socket.as_fd(), space);
        match transfer {
            Transfer::Moved(count) => {
                self.http.filled(count);
                // A short read has emptied the socket: what comes later brings an event.
                self.readable = count == room || self.hangup;
            }
            Transfer::WouldBlock => self.readable = false,
            Transfer::Ended => {
                self.http.peer_closed();
                self.readable = false;
            }
        }
        transfer
    }

    /// Sends what is unsent, without waiting. `Moved` means all of it.
    pub fn send(&mut self) -> Transfer {
        while self.sent < self.outgoing.len() {
            match socket::send(self.socket.as_fd(), &self.outgoing[self.sent..]) {
                Transfer::Moved(count) => self.sent += count,
                other => return other,
            }
        }
        let moved = self.sent;
        self.outgoing.clear();
        self.sent = 0;
        Transfer::Moved(moved)
    }

    pub fn wait_ready(&self, direction: Direction, timeout_ms: i32) -> bool {
        socket::wait_ready(self.socket.as_fd(), direction, timeout_ms)
    }

    /// Takes a thread's spare memory for the request that begins, unless one is under way.
    pub fn borrow_buffers(&mut self, spare: &mut Buffers) {
        if !self.has_buffers {
            self.has_buffers = true;
            self.http.lend_buffer(std::mem::take(&mut spare.received));
            self.body = std::mem::take(&mut spare.body);
            self.outgoing = std::mem::take(&mut spare.outgoing);
        }
    }

    /// Gives the memory to a thread, which need not be the one that it came from. Only between
    /// requests or at the end.
    pub fn return_buffers(&mut self, spare: &mut Buffers) {
        if std::mem::take(&mut self.has_buffers) {
            spare.received = kept(self.http.take_buffer());
            spare.body = kept(std::mem::take(&mut self.body));
            spare.outgoing = kept(std::mem::take(&mut self.outgoing));
        }
    }
}

/// Memory for one request and its response. Each thread keeps a set and lends it to the connection
/// that it runs; one that has to wait in the middle of a request keeps it, and the thread begins
/// another. So an idle connection costs little more than its `Peer`.
#[derive(Debug, Default)]
pub struct Buffers {
    received: Vec<u8>,
    body: Vec<u8>,
    outgoing: Vec<u8>,
}

/// What a large request or response needed is given back.
fn kept(buffer: Vec<u8>) -> Vec<u8> {
    const KEPT_BYTES: usize = 131_072;
    if buffer.capacity() > KEPT_BYTES { Vec::new() } else { buffer }
}
