//! One open connection: its socket, its protocol state, and the unsent part of a response.

use crate::connection::body::RequestBody;
use crate::http::connection::Finished;
use crate::http::forwarding::{Believed, Origin};
use crate::http::{self, Limits};
use crate::net::sendfile::FileBody;
use crate::net::socket::PeerAddress;
use crate::net::tls::TlsSession;
use headway_measure::clock::now_ns;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub struct Connection {
    pub socket: OwnedFd,
    pub address: PeerAddress,
    /// The index of the listener that accepted the connection.
    pub listener: u8,
    /// The TLS session between the socket and HTTP, if the listener speaks TLS.
    pub tls: Option<Box<TlsSession>>,
    /// The client has yet to send its PROXY protocol header.
    pub owes_proxy_header: bool,
    pub first_request: FirstRequest,
    pub forwarding: Forwarding,
    /// The origin of the current request as a trusted proxy reports it.
    pub origin: Option<Box<Origin>>,
    pub http: http::Connection,
    /// The received part of the current request's body, decoded.
    pub body: RequestBody,
    /// Framed bytes of the response; `[..sent]` is sent.
    pub outgoing: Vec<u8>,
    pub sent: usize,
    /// The part of the response that follows `outgoing`.
    pub file: Option<Box<FileBody>>,
    /// `http`, `body` and `outgoing` have buffers of a worker's pool.
    pub(super) has_buffers: bool,
    pub stage: Stage,
    pub accepted_ns: u64,
    /// There may be more to read: an event came, or the last read filled all the space.
    pub readable: bool,
    /// The client closed its sending side: read to the end, because no event may follow.
    pub hangup: bool,
    /// When the polling thread saw the last event; before any, when the connection was accepted.
    pub noticed_ns: u64,
    /// Another process has the connection, and this one only closes its descriptor.
    pub is_handed_over: bool,
    pub deadline: Deadline,
    pub times: RequestTimes,
}

/// The event that the connection waits for while no thread works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The PROXY protocol header or the TLS handshake. Silent: nothing of it has arrived.
    Preamble { silent: bool },
    /// The first byte of a request.
    Idle,
    /// The rest of a head, or of a body that is dropped before it.
    Head,
    /// The rest of a body that is gathered before the application is called.
    Body,
    /// Room in the socket for the rest of a response.
    Writing(Finished),
    /// The end of the client's bytes, which are dropped after the last response and FIN.
    /// `expecting` means that some bytes are known to come.
    Lingering { since_ns: u64, expecting: bool },
}

/// Whether a connection has begun to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRequest {
    /// No complete head has arrived.
    Awaited,
    /// As `Awaited`; it is answered even though the server stops, because the handshake was under
    /// way when it stopped.
    Promised,
    /// A complete head has arrived.
    Arrived,
}

/// The deadline of a stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    pub at_ns: u64,
    /// The stage for which it was set; `None` if none is set.
    pub stage: Option<Stage>,
    /// Since it was set, bytes of a response were sent, or bytes were dropped while lingering.
    pub moved: bool,
    /// Sent bytes that the client's kernel had not acknowledged when it was set.
    pub unacknowledged_bytes: i32,
    /// Set by the monitor when it has passed.
    pub expired: bool,
}

/// The arrival of the current request, which may take several turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTimes {
    /// The beginning of `queue_time`: when the event that brought the first bytes was seen.
    pub noticed_ns: u64,
    /// The beginning of `server_time`: when a thread took the request up.
    pub started_ns: u64,
}

/// Whether the fields about a request's origin are believed on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// No proxy is trusted, so the server ignores the fields, and the application may read them.
    Unknown,
    /// The client is a trusted proxy, and these fields are believed.
    Believed(Believed),
    /// Other addresses are trusted and this one is not: the application does not get the fields.
    Hidden,
}

impl Connection {
    pub fn new(socket: OwnedFd, address: PeerAddress, limits: Arc<Limits>) -> Self {
        Self {
            socket,
            address,
            listener: 0,
            tls: None,
            owes_proxy_header: false,
            first_request: FirstRequest::Awaited,
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
            readable: true,
            hangup: false,
            noticed_ns: now_ns(),
            is_handed_over: false,
            deadline: Deadline::default(),
            times: RequestTimes::default(),
        }
    }

    /// Begins a request that a thread took at `now_ns`.
    pub fn begin_request(&mut self, now_ns: u64) {
        self.times = RequestTimes { noticed_ns: self.noticed_ns, started_ns: now_ns };
    }

    /// When the connection was accepted, if no complete head has arrived yet and nothing is left
    /// to send; otherwise 0.
    pub fn without_request_since_ns(&self) -> u64 {
        match self.stage {
            Stage::Body | Stage::Writing(_) => 0,
            Stage::Preamble { .. } | Stage::Idle | Stage::Head | Stage::Lingering { .. } => {
                if self.first_request == FirstRequest::Arrived { 0 } else { self.accepted_ns }
            }
        }
    }

    /// The client's address and port, from a trusted proxy if there is one. Port 0 means unknown.
    pub fn client(&self) -> (&str, u16) {
        match self.origin.as_deref() {
            Some(Origin { ip: Some(ip), port, .. }) => (ip, *port),
            _ => (&self.address.ip, self.address.port),
        }
    }
}
