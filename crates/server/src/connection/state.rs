//! One open connection: its socket, its protocol state, and what of a response is still unsent.
//!
//! A peer is touched by one thread at a time, the owner of its slot's word.

use crate::http::connection::Finished;
use crate::http::forwarding::{Believed, Origin};
use crate::http::{self, Limits};
use crate::net::sendfile::FileBody;
use crate::net::socket::{self, Direction, PeerAddress, Transfer};
use crate::net::tls::TlsSession;
use crate::request::body::RequestBody;
use headway_measure::clock::now_ns;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub struct Connection {
    pub socket: OwnedFd,
    pub address: PeerAddress,
    /// Which of the server's listeners accepted it.
    pub listener: u8,
    /// Between the socket and everything else, where the listener speaks TLS.
    pub tls: Option<Box<TlsSession>>,
    /// The PROXY protocol header is still to come.
    pub owes_proxy_header: bool,
    /// Its handshake was under way when the server stopped: it has yet to be answered once.
    pub owes_first_request: bool,
    pub forwarding: Forwarding,
    /// What a trusted peer says of where the current request began.
    pub origin: Option<Box<Origin>>,
    pub http: http::Connection,
    /// The decoded body of the current request, as far as it was received.
    pub body: RequestBody,
    /// Framed bytes of the response; `[..sent]` is out.
    pub outgoing: Vec<u8>,
    pub sent: usize,
    /// What of the response follows `outgoing`.
    pub file: Option<Box<FileBody>>,
    /// `http`, `body` and `outgoing` have memory, perhaps a thread's.
    has_buffers: bool,
    pub stage: Stage,
    pub accepted_ns: u64,
    /// A complete head has come, of this request or of an earlier one.
    pub has_sent_request: bool,
    /// More may be read: an event came, or the last read filled all the space there was.
    pub readable: bool,
    /// The peer has shut down its sending side: read to the end, since no event may follow.
    pub hangup: bool,
    /// When the thread that polls saw the event that this turn answers; before any, the connection.
    pub noticed_ns: u64,
    /// When the current stage must be over, and which stage of the current request that was set for.
    pub deadline_ns: u64,
    pub deadline_stage: Option<Stage>,
    /// Bytes of a response went out, or were dropped while lingering, since the deadline was set, or
    /// before it.
    pub moved: bool,
    /// How much of a response had gone out when the deadline was set, and the peer had not taken.
    pub unacknowledged_bytes: libc::c_int,
    /// Set by the monitor when the deadline has passed.
    pub expired: bool,
    pub progress: Progress,
}

/// What the connection is waiting for when no thread works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What comes before HTTP: see `preamble`. Silent: nothing has come yet.
    Opening { silent: bool },
    /// The first byte of a request.
    Idle,
    /// The rest of a head, or of a body that is dropped before it.
    Head,
    /// The rest of a body that is gathered before the application is called.
    Body,
    /// Room in the socket for the rest of a response; then what is said here.
    Writing(Finished),
    /// Everything is sent and FIN too. What still comes is dropped: see `lingering`.
    /// Expecting: something is known to come.
    Lingering { since_ns: u64, expecting: bool },
}

/// What the fields about a request's origin are worth on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Nobody is trusted, so they mean nothing to the server and are the application's to read.
    Unknown,
    /// The peer is trusted as to these.
    Believed(Believed),
    /// Others are trusted, this peer is not: the application does not get them.
    Hidden,
}

/// How far a request has come, in case it takes several turns to arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Beginning of `queue_time`: when the event that brought the first bytes was seen.
    pub noticed_ns: u64,
    /// Beginning of `server_time`: when a thread took it up.
    pub started_ns: u64,
}

impl Connection {
    pub fn new(socket: OwnedFd, address: PeerAddress, limits: Arc<Limits>) -> Self {
        Self {
            socket,
            address,
            listener: 0,
            tls: None,
            owes_proxy_header: false,
            owes_first_request: false,
            forwarding: Forwarding::Unknown,
            origin: None,
            http: http::Connection::new(limits),
            body: RequestBody::default(),
            outgoing: Vec::new(),
            sent: 0,
            file: None,
            has_buffers: false,
            stage: Stage::Idle,
            accepted_ns: now_ns(),
            has_sent_request: false,
            readable: true,
            hangup: false,
            noticed_ns: now_ns(),
            deadline_ns: 0,
            deadline_stage: None,
            moved: false,
            unacknowledged_bytes: 0,
            expired: false,
            progress: Progress::default(),
        }
    }

    /// When the connection was accepted, if no complete head has come yet and nothing is left to
    /// send; otherwise 0.
    pub fn without_request_since_ns(&self) -> u64 {
        match self.stage {
            Stage::Body | Stage::Writing(_) => 0,
            Stage::Opening { .. } | Stage::Idle | Stage::Head | Stage::Lingering { .. } => {
                if self.has_sent_request { 0 } else { self.accepted_ns }
            }
        }
    }

    /// Moves what the socket has into the connection, without waiting.
    pub fn receive(&mut self) -> Transfer {
        let space = self.http.space();
        let room = space.len();
        let transfer = match &mut self.tls {
            None => socket::receive(self.socket.as_fd(), space),
            Some(tls) => tls.receive(self.socket.as_fd(), space),
        };
        match transfer {
            Transfer::Moved(count) => {
                self.http.filled(count);
                // A short read has emptied the socket: what comes later brings an event.
                self.readable = count == room || self.hangup || self.tls.is_some();
            }
            Transfer::WouldBlock => self.readable = false,
            Transfer::Unfinished => {}
            Transfer::Ended => {
                self.http.peer_closed();
                self.readable = false;
            }
        }
        transfer
    }

    /// Sends what is unsent, without waiting. `Moved` means all of it.
    pub fn send(&mut self) -> Transfer {
        let left = |connection: &Self| {
            let file = connection.file.as_ref().map_or(0, |file| file.left());
            (connection.outgoing.len() - connection.sent) as u64 + file
        };
        let before = left(self);
        let transfer = match self.tls {
            None => self.send_plain(),
            Some(_) => self.send_encrypted(),
        };
        self.moved |= left(self) < before;
        transfer
    }

    fn send_plain(&mut self) -> Transfer {
        while self.sent < self.outgoing.len() {
            let more = self.file.is_some();
            match socket::send(self.socket.as_fd(), &self.outgoing[self.sent..], more) {
                Transfer::Moved(count) => self.sent += count,
                other => return other,
            }
        }
        let moved = self.sent;
        self.outgoing.clear();
        self.sent = 0;
        let Some(file) = &mut self.file else { return Transfer::Moved(moved) };
        let transfer = file.send(self.socket.as_fd());
        if matches!(transfer, Transfer::Moved(_)) {
            self.file = None;
        }
        transfer
    }

    /// Whether `send` may have something to do.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.outgoing.len() || self.file.is_some() || self.tls.is_some()
    }

    fn send_encrypted(&mut self) -> Transfer {
        let Some(tls) = &mut self.tls else { return Transfer::Ended };
        let socket = self.socket.as_fd();
        while self.sent < self.outgoing.len() {
            match tls.send(socket, &self.outgoing[self.sent..]) {
                Transfer::Moved(count) => self.sent += count,
                other => return other,
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        if let Some(file) = &mut self.file {
            match file.send_by(|block| tls.send(socket, block)) {
                Transfer::Moved(_) => self.file = None,
                other => return other,
            }
        }
        tls.flush(socket)
    }

    /// Tells the peer that all was sent. False if that has to wait for room: call again.
    pub fn close_sending(&mut self) -> bool {
        if let Some(tls) = &mut self.tls {
            if tls.close(self.socket.as_fd()) == Transfer::WouldBlock {
                return false;
            }
        }
        socket::shut_down_sending(self.socket.as_fd());
        true
    }

    /// Sends the end of the TLS session if no request is under way.
    pub fn close_tls_session_if_idle(&mut self) {
        if self.stage == Stage::Idle && self.tls.is_some() {
            self.close_sending();
        }
    }

    /// The client's address and port, if need be by a proxy's word. Port 0: unknown.
    pub fn client(&self) -> (&str, u16) {
        match self.origin.as_deref() {
            Some(Origin { ip: Some(ip), port, .. }) => (ip, *port),
            _ => (&self.address.ip, self.address.port),
        }
    }

    /// Lets a file follow what is in `outgoing`.
    pub fn append_file(&mut self, file: FileBody) {
        socket::set_nonblocking(self.socket.as_fd());
        self.file = Some(Box::new(file));
    }

    /// False if nothing came, or the peer took nothing, for `timeout_ms`, or if the waiting is called off.
    pub fn wait_ready(
        &self,
        direction: Direction,
        timeout_ms: i32,
        is_called_off: impl Fn() -> bool,
    ) -> bool {
        // Nothing wakes the thread when the waiting is called off, so it looks.
        const LOOK_MS: i32 = 100;
        let socket = self.socket.as_fd();
        let (mut unacknowledged_bytes, mut left_ms) =
            (socket::unacknowledged_bytes(socket), timeout_ms);
        loop {
            let step_ms = left_ms.min(LOOK_MS);
            if socket::wait_ready(socket, direction, step_ms) {
                return true;
            }
            if is_called_off() {
                return false;
            }
            left_ms -= step_ms;
            if left_ms <= 0 {
                let before = std::mem::replace(
                    &mut unacknowledged_bytes,
                    socket::unacknowledged_bytes(socket),
                );
                if direction == Direction::Receive || unacknowledged_bytes >= before {
                    return false;
                }
                left_ms = timeout_ms;
            }
        }
    }

    /// Takes a thread's spare memory for the request that begins, unless one is under way.
    pub fn borrow_buffers(&mut self, buffers: &mut BufferPool) {
        if !self.has_buffers {
            self.has_buffers = true;
            let Buffers { received, body, outgoing } = buffers.lend();
            self.http.lend_buffer(received);
            (self.body, self.outgoing) = (RequestBody::with_memory(body), outgoing);
        }
    }

    /// Gives the memory to a thread, which need not be the one that it came from. Only between
    /// requests or at the end.
    pub fn return_buffers(&mut self, buffers: &mut BufferPool) {
        if std::mem::take(&mut self.has_buffers) {
            let received = self.http.take_buffer();
            let mut body = std::mem::take(&mut self.body).into_memory();
            body.clear();
            // What this client has not taken must not go to the next.
            let mut outgoing = std::mem::take(&mut self.outgoing);
            outgoing.clear();
            buffers.keep(Buffers { received, body, outgoing });
        }
    }
}

/// As many as the responses of a burst need, which are short.
const KEPT_BUFFERS: usize = 16;
/// Of these, so many with more memory than that.
const KEPT_LARGE_BUFFERS: usize = 2;
const SHORT_BYTES: usize = 16_384;
const LARGE_BYTES: usize = 131_072;

/// What a thread lends to the connections that it runs. One that has to wait in the middle of a
/// request keeps its memory meanwhile. So an idle connection costs little more than its `Peer`.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// The last is the next to be lent.
    buffers: Vec<Buffers>,
    /// How many of them are large.
    large: usize,
}

/// Memory for one request and its response.
#[derive(Debug, Default)]
struct Buffers {
    received: Vec<u8>,
    body: Vec<u8>,
    outgoing: Vec<u8>,
}

impl BufferPool {
    fn lend(&mut self) -> Buffers {
        let buffers = self.buffers.pop().unwrap_or_default();
        self.large -= usize::from(buffers.are_large());
        buffers
    }

    /// What a large request or response needed is given back to the system.
    fn keep(&mut self, buffers: Buffers) {
        if self.buffers.len() < KEPT_BUFFERS {
            let is_full = self.large == KEPT_LARGE_BUFFERS;
            let buffers = buffers.up_to(if is_full { SHORT_BYTES } else { LARGE_BYTES });
            self.large += usize::from(buffers.are_large());
            self.buffers.push(buffers);
        }
    }
}

impl Buffers {
    fn are_large(&self) -> bool {
        [&self.received, &self.body, &self.outgoing].iter().any(|it| it.capacity() > SHORT_BYTES)
    }

    /// Without those that have more memory.
    fn up_to(mut self, bytes: usize) -> Self {
        for buffer in [&mut self.received, &mut self.body, &mut self.outgoing] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_takes_a_little_is_waited_for() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let connection = Connection::new(one.into(), PeerAddress::default(), Default::default());
        let fill = || {
            while socket::send(connection.socket.as_fd(), &[0; 4_096], false)
                != Transfer::WouldBlock
            {}
        };
        fill();
        assert!(!connection.wait_ready(Direction::Send, 10, || false), "nobody takes anything");
        assert!(!connection.wait_ready(Direction::Send, 600_000, || true), "it is called off");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // There is room for the kernel only when most was taken.
                while !socket::wait_ready(connection.socket.as_fd(), Direction::Send, 20) {
                    other.read_exact(&mut [0; 4_096]).unwrap();
                }
            });
            assert!(connection.wait_ready(Direction::Send, 200, || false));
            reader.join().unwrap();
        });
    }

    #[test]
    fn what_one_client_did_not_take_does_not_go_to_the_next() {
        let mut buffers = BufferPool::default();
        let mut peers = [(); 2].map(|()| {
            let (one, _) = UnixStream::pair().unwrap();
            Connection::new(one.into(), PeerAddress::default(), Default::default())
        });
        peers[0].borrow_buffers(&mut buffers);
        peers[0].outgoing.extend_from_slice(b"the rest of a response");
        peers[0].body.extend_from_slice(b"a body");
        peers[0].return_buffers(&mut buffers);
        peers[1].borrow_buffers(&mut buffers);
        assert!(peers[1].outgoing.is_empty() && peers[1].body.unread().is_empty());
    }

    #[test]
    fn most_of_what_a_thread_keeps_is_small() {
        let mut buffers = BufferPool::default();
        let sized = |bytes| Buffers {
            received: Vec::with_capacity(bytes),
            body: Vec::with_capacity(bytes),
            outgoing: Vec::with_capacity(bytes),
        };
        let kept = |buffers: &BufferPool| -> Vec<usize> {
            buffers.buffers.iter().map(|each| each.outgoing.capacity()).collect()
        };
        for _ in 0..2 * KEPT_BUFFERS {
            buffers.keep(sized(100_000));
        }
        assert_eq!(kept(&buffers), [vec![100_000; 2], vec![0; KEPT_BUFFERS - 2]].concat());
        // What one request after the other needs stays, wherever it came from.
        buffers.buffers.drain(1..3);
        buffers.large = 1;
        buffers.keep(sized(100_000));
        assert_eq!(buffers.lend().outgoing.capacity(), 100_000);
        buffers.keep(sized(LARGE_BYTES + 1));
        assert_eq!((buffers.lend().outgoing.capacity(), buffers.large), (0, 1));
    }
}
