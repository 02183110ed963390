//! What lies between a new connection and its first request: the PROXY protocol header, the TLS
//! handshake; and whose word about where a request comes from is believed.
//!
//! Most connections pass none of it and never come here. Settings never change while a server
//! runs: certificates are read again by the next generation of workers. Any worker thread, as the
//! owner of the peer.

use crate::connection::state::{Connection, Forwarding, Stage};
use crate::http::Rejection;
use crate::http::forwarding::{Believed, Origin, read_origin};
use crate::limits::log_to_stderr;
use crate::net::networks::Networks;
use crate::net::socket::{self, PeerAddress, Transfer};
use crate::net::tls::{HANDSHAKE_RECORD, TlsSession};
use proxy_header::{ParseConfig, ProxyHeader};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A PROXY header is no longer: 107 bytes in version 1, and the addresses and a few records of
/// hundreds of bytes in version 2.
const MAX_HEADER_BYTES: usize = 4_096;

/// How a header of version 2 begins that says LOCAL: the signature, version and command.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20";

#[derive(Default)]
pub struct Preamble {
    /// For connections by TCP; those of UNIX sockets come from the same machine.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who must begin with a PROXY header.
    pub proxy_protocol_from: Networks,
    /// Whose fields about a request's origin are believed.
    pub trusted_proxies: Networks,
    pub believed: Believed,
    /// Connections refused for their PROXY header; relaxed, a count.
    pub refused: AtomicU64,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreambleStep {
    /// HTTP follows.
    Passed,
    /// Something must come first.
    Wait,
    /// The same, and nothing has come at all.
    Silent,
    /// HTTP follows, and is to be answered with this.
    Refused(Rejection),
    Close,
}

impl Preamble {
    /// Says what a new connection has to pass.
    pub fn admit(&self, connection: &mut Connection) {
        let is_unix = connection.address.ip.is_empty();
        if !self.proxy_protocol_from.is_empty() {
            connection.owes_proxy_header =
                self.proxy_protocol_from.contains_peer(&connection.address.ip);
        }
        if let Some(config) = self.tls.as_ref().filter(|_| !is_unix) {
            // It fails for a configuration that `read_config` does not make.
            connection.tls = TlsSession::new(config).ok().map(Box::new);
        }
        if connection.owes_proxy_header || connection.tls.is_some() {
            connection.stage = Stage::Opening { silent: true };
        }
        self.judge(connection);
    }

    /// Whether the peer's address makes its word count.
    fn judge(&self, connection: &mut Connection) {
        if !self.trusted_proxies.is_empty() {
            connection.forwarding = match self.trusted_proxies.contains_peer(&connection.address.ip)
            {
                true => Forwarding::Believed(self.believed),
                false => Forwarding::Hidden,
            };
        }
    }

    /// Goes on with what the connection has to pass, without waiting.
    pub fn pass(&self, connection: &mut Connection) -> PreambleStep {
        if connection.owes_proxy_header {
            match self.take_proxy_header(connection) {
                PreambleStep::Passed => {
                    connection.owes_proxy_header = false;
                    connection.stage = Stage::Opening { silent: true };
                    // What follows has a time of its own.
                    connection.deadline_stage = None;
                }
                other => return other,
            }
        }
        match &mut connection.tls {
            Some(_) if connection.stage == (Stage::Opening { silent: true }) => greet(connection),
            Some(_) => shake_hands(connection),
            None => PreambleStep::Passed,
        }
    }

    fn take_proxy_header(&self, connection: &mut Connection) -> PreambleStep {
        let mut seen = [0; MAX_HEADER_BYTES];
        let fd = connection.socket.as_fd();
        let count = match socket::peek(fd, &mut seen) {
            Transfer::Moved(count) => count,
            Transfer::WouldBlock | Transfer::Unfinished => return PreambleStep::Silent,
            Transfer::Ended => return PreambleStep::Close,
        };
        match read_proxy_header(&seen[..count]) {
            Ok((source, length)) => {
                // As much as was seen just now, so that what follows stays in the socket.
                if socket::receive(fd, &mut seen[..length]) != Transfer::Moved(length) {
                    return PreambleStep::Close;
                }
                // Without an address (LOCAL, UNKNOWN) the proxy itself is the client.
                if let Some(source) = source {
                    let ip = source.ip().to_canonical().to_string();
                    connection.address = PeerAddress { ip, port: source.port() };
                    self.judge(connection);
                }
                PreambleStep::Passed
            }
            Err(proxy_header::Error::BufferTooShort) if count < MAX_HEADER_BYTES => {
                if connection.hangup {
                    return PreambleStep::Close;
                }
                connection.stage = Stage::Opening { silent: false };
                PreambleStep::Wait
            }
            Err(_) => {
                self.note_refusal(&connection.address);
                PreambleStep::Close
            }
        }
    }

    /// The first one is worth a line: most likely a setting is wrong. Whoever else comes by that
    /// way could fill the log.
    fn note_refusal(&self, address: &PeerAddress) {
        if self.refused.fetch_add(1, Relaxed) == 0 {
            let ip = if address.ip.is_empty() { "a UNIX socket" } else { &address.ip };
            log_to_stderr(&format!(
                "a connection from {ip} (proxy-protocol-from) was closed: it did not begin with a \
                 PROXY protocol header. Further ones are not reported."
            ));
        }
    }

    /// What the peer says of where the current request began, if its word counts.
    pub fn origin_of(&self, connection: &Connection) -> Option<Box<Origin>> {
        let Forwarding::Believed(believed) = connection.forwarding else { return None };
        let (head, bytes) = connection.http.head();
        let is_trusted = |ip| self.trusted_proxies.contains(ip);
        Some(Box::new(read_origin(head, bytes, believed, is_trusted)))
    }
}

/// Who the header says the client is (`None`: who sent it), and how long it is.
fn read_proxy_header(seen: &[u8]) -> Result<(Option<SocketAddr>, usize), proxy_header::Error> {
    if let Some(rest) = seen.strip_prefix(LOCAL) {
        // A health check: its family is not looked at, nor what else it has (2.2).
        let [_, high, low, ..] = *rest else { return Err(proxy_header::Error::BufferTooShort) };
        let length = LOCAL.len() + 3 + usize::from(u16::from_be_bytes([high, low]));
        return match length <= seen.len() {
            true => Ok((None, length)),
            false => Err(proxy_header::Error::BufferTooShort),
        };
    }
    let (header, length) = ProxyHeader::parse(seen, ParseConfig::default())?;
    Ok((header.proxied_address().map(|proxied| proxied.source), length))
}

/// Looks whether what comes is TLS at all: browsers and people forget the `https`.
fn greet(connection: &mut Connection) -> PreambleStep {
    let mut first = [0];
    match socket::peek(connection.socket.as_fd(), &mut first) {
        Transfer::Moved(_) => {}
        Transfer::WouldBlock | Transfer::Unfinished => return PreambleStep::Silent,
        Transfer::Ended => return PreambleStep::Close,
    }
    match first[0] {
        HANDSHAKE_RECORD => {
            connection.stage = Stage::Opening { silent: false };
            shake_hands(connection)
        }
        b'A'..=b'Z' | b'a'..=b'z' => {
            connection.tls = None;
            PreambleStep::Refused(Rejection::PlainHttp)
        }
        _ => PreambleStep::Close,
    }
}

fn shake_hands(connection: &mut Connection) -> PreambleStep {
    let Some(tls) = &mut connection.tls else { return PreambleStep::Passed };
    match tls.shake_hands(connection.socket.as_fd()) {
        Transfer::Moved(_) => PreambleStep::Passed,
        Transfer::WouldBlock | Transfer::Unfinished => PreambleStep::Wait,
        Transfer::Ended => PreambleStep::Close,
    }
}
