//! The bytes before the first request of a connection: the PROXY protocol header and the TLS
//! handshake. Also decides which clients' fields about a request's origin are believed.
//!
//! Settings never change while a server runs: the next generation of workers reads certificates
//! again. Most connections have no preamble and do not use this module.

use crate::connection::state::{Connection, Forwarding, Stage};
use crate::http::Rejection;
use crate::http::forwarding::{Believed, Origin, read_origin};
use crate::net::networks::Networks;
use crate::net::socket::{self, PeerAddress, Transfer};
use crate::net::tls::{HANDSHAKE_RECORD, TlsSession};
use crate::stderr::log_to_stderr;
use proxy_header::{ParseConfig, ProxyHeader};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The longest PROXY header: 107 bytes in version 1; the addresses and a few records of hundreds of
/// bytes in version 2.
const MAX_HEADER_BYTES: usize = 4_096;

/// The beginning of a header of version 2 with the command LOCAL: signature, version, command.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20";

#[derive(Default)]
pub struct Preamble {
    /// For connections over TCP; those of UNIX sockets come from the same machine.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The addresses whose connections must begin with a PROXY header.
    pub proxy_protocol_from: Networks,
    /// The addresses whose fields about a request's origin are believed.
    pub trusted_proxies: Networks,
    pub believed: Believed,
    /// Connections refused for their PROXY header. Written by all workers, relaxed: a count.
    pub refused: AtomicU64,
}

/// The progress of a connection's preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// HTTP follows.
    Done,
    /// More of the preamble must arrive first.
    Wait,
    /// Like `Wait`, and no byte has arrived.
    Silent,
    /// HTTP follows, and the answer is this rejection.
    Refused(Rejection),
    Close,
}

impl Preamble {
    /// Sets the preamble that a new connection must send.
    pub fn admit(&self, connection: &mut Connection) {
        let is_unix = connection.address.ip.is_empty();
        if !self.proxy_protocol_from.is_empty() {
            connection.owes_proxy_header =
                self.proxy_protocol_from.contains_peer(&connection.address.ip);
        }
        if let Some(config) = self.tls.as_ref().filter(|_| !is_unix) {
            // This fails only for a configuration that `read_config` does not produce.
            connection.tls = TlsSession::new(config).ok().map(Box::new);
        }
        if connection.owes_proxy_header || connection.tls.is_some() {
            connection.stage = Stage::Preamble { silent: true };
        }
        self.set_forwarding(connection);
    }

    /// Decides by the client's address whether its statements about origins are believed.
    pub fn set_forwarding(&self, connection: &mut Connection) {
        if !self.trusted_proxies.is_empty() {
            let is_trusted = self.trusted_proxies.contains_peer(&connection.address.ip);
            connection.forwarding = match is_trusted {
                true => Forwarding::Believed(self.believed),
                false => Forwarding::Hidden,
            };
        }
    }

    /// Continues with the preamble, without waiting.
    pub fn proceed(&self, connection: &mut Connection) -> Handshake {
        if connection.owes_proxy_header {
            match self.take_proxy_header(connection) {
                Handshake::Done => {
                    connection.owes_proxy_header = false;
                    connection.stage = Stage::Preamble { silent: true };
                    // The TLS handshake has a deadline of its own.
                    connection.deadline.stage = None;
                }
                other => return other,
            }
        }
        match &mut connection.tls {
            Some(_) if connection.stage == (Stage::Preamble { silent: true }) => {
                expect_tls(connection)
            }
            Some(_) => shake_hands(connection),
            None => Handshake::Done,
        }
    }

    fn take_proxy_header(&self, connection: &mut Connection) -> Handshake {
        let mut seen = [0; MAX_HEADER_BYTES];
        let fd = connection.socket.as_fd();
        let count = match socket::peek(fd, &mut seen) {
            Transfer::Moved(count) => count,
            Transfer::WouldBlock | Transfer::Unfinished => return Handshake::Silent,
            Transfer::Ended => return Handshake::Close,
        };
        match read_proxy_header(&seen[..count]) {
            Ok((source, length)) => {
                // This takes only the header, so that the following bytes stay in the socket.
                if socket::receive(fd, &mut seen[..length]) != Transfer::Moved(length) {
                    return Handshake::Close;
                }
                // Without an address (LOCAL, UNKNOWN) the proxy itself is the client.
                if let Some(source) = source {
                    let ip = source.ip().to_canonical().to_string();
                    connection.address = PeerAddress { ip, port: source.port() };
                    self.set_forwarding(connection);
                }
                Handshake::Done
            }
            Err(proxy_header::Error::BufferTooShort) if count < MAX_HEADER_BYTES => {
                if connection.hangup {
                    return Handshake::Close;
                }
                connection.stage = Stage::Preamble { silent: false };
                Handshake::Wait
            }
            Err(_) => {
                self.note_refusal(&connection.address);
                Handshake::Close
            }
        }
    }

    /// Reports the first refusal, whose most likely cause is a wrong setting. If all were reported,
    /// clients could fill the log.
    fn note_refusal(&self, address: &PeerAddress) {
        if self.refused.fetch_add(1, Relaxed) == 0 {
            let ip = if address.ip.is_empty() { "a UNIX socket" } else { &address.ip };
            log_to_stderr(&format!(
                "a connection from {ip} (proxy-protocol-from) was closed: it did not begin with a \
                 PROXY protocol header. Further ones are not reported."
            ));
        }
    }

    /// The origin of the current request as a trusted proxy states it.
    pub fn origin_of(&self, connection: &Connection) -> Option<Box<Origin>> {
        let Forwarding::Believed(believed) = connection.forwarding else { return None };
        let (head, bytes) = connection.http.head();
        let is_trusted = |ip| self.trusted_proxies.contains(ip);
        Some(Box::new(read_origin(head, bytes, believed, is_trusted)))
    }
}

/// The client by the header (`None`: the sender itself), and the header's length.
fn read_proxy_header(seen: &[u8]) -> Result<(Option<SocketAddr>, usize), proxy_header::Error> {
    if let Some(rest) = seen.strip_prefix(LOCAL) {
        // A health check: its family and the rest of the header are ignored (2.2).
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

/// Checks that the client begins with TLS. Some clients use `http` by mistake.
fn expect_tls(connection: &mut Connection) -> Handshake {
    let mut first = [0];
    match socket::peek(connection.socket.as_fd(), &mut first) {
        Transfer::Moved(_) => {}
        Transfer::WouldBlock | Transfer::Unfinished => return Handshake::Silent,
        Transfer::Ended => return Handshake::Close,
    }
    match first[0] {
        HANDSHAKE_RECORD => {
            connection.stage = Stage::Preamble { silent: false };
            shake_hands(connection)
        }
        b'A'..=b'Z' | b'a'..=b'z' => {
            connection.tls = None;
            Handshake::Refused(Rejection::PlainHttp)
        }
        _ => Handshake::Close,
    }
}

fn shake_hands(connection: &mut Connection) -> Handshake {
    let Some(tls) = &mut connection.tls else { return Handshake::Done };
    match tls.shake_hands(connection.socket.as_fd()) {
        Transfer::Moved(_) => Handshake::Done,
        Transfer::WouldBlock | Transfer::Unfinished => Handshake::Wait,
        Transfer::Ended => Handshake::Close,
    }
}
