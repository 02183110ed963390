//! The end of a connection after its last response: the bytes that still arrive are dropped for a
//! while.
//!
//! Closing with unread bytes would send RST, and so would bytes that arrive after that; and RST
//! can destroy the response on its way (RFC 9112 section 9.6).

use crate::connection::state::{Connection, Stage};
use crate::net::socket::{self, Transfer};
use crate::shutdown::Shutdown;
use headway_measure::clock::now_ns;
use std::os::fd::AsFd;

/// The longest time without a byte.
pub const SILENCE_NS: u64 = 2_000_000_000;
/// The longest time in all, as in nginx and httpd.
const TOTAL_NS: u64 = 30_000_000_000;
/// Bytes dropped in one turn, before other connections get theirs.
const BYTES_PER_TURN: usize = 262_144;

/// The next step of a connection that lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lingered {
    Wait,
    /// More has arrived, but other connections go first.
    Yield,
    Close,
}

/// How a connection lingers. `None`: its client sends nothing more, because it has closed its
/// sending side or asked for this end.
pub fn begin_lingering(connection: &Connection) -> Option<Stage> {
    let expecting = match socket::peek(connection.socket.as_fd(), &mut [0]) {
        Transfer::Ended => return None,
        Transfer::Moved(_) => true,
        Transfer::WouldBlock | Transfer::Unfinished => !connection.http.is_drained(),
    };
    let lingers = expecting || !connection.http.is_asked_to_close();
    lingers.then(|| Stage::Lingering { since_ns: now_ns(), expecting })
}

/// Drops what arrives until the client has closed too, or `until_ns`.
pub fn linger(connection: &mut Connection, until_ns: u64) -> Lingered {
    let mut dropped = [0; 16_384];
    for _ in 0..BYTES_PER_TURN / dropped.len() {
        match socket::receive(connection.socket.as_fd(), &mut dropped) {
            Transfer::Moved(_) => connection.deadline.moved = true,
            Transfer::Ended => return Lingered::Close,
            Transfer::WouldBlock | Transfer::Unfinished if now_ns() < until_ns => {
                return Lingered::Wait;
            }
            Transfer::WouldBlock | Transfer::Unfinished => return Lingered::Close,
        }
    }
    // A client that never pauses is never idle, so the monitor cannot end the connection.
    match now_ns() < until_ns {
        true => Lingered::Yield,
        false => Lingered::Close,
    }
}

/// When lingering ends. A server that stops waits no longer than it must, and not for bytes that
/// may never come.
pub fn lingers_until_ns(shutdown: &Shutdown, since_ns: u64, expecting: bool) -> u64 {
    since_ns
        + match (shutdown.is_stopping(), expecting) {
            (false, _) => TOTAL_NS,
            (true, true) => SILENCE_NS,
            (true, false) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::PeerAddress;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// A connection whose client has sent more than one turn drops, and the client's socket.
    fn talkative() -> (Connection, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while sent < 2 * BYTES_PER_TURN {
            sent += client.write(&[0; BYTES_PER_TURN]).expect("room for it on both sides");
        }
        (Connection::new(server.into(), PeerAddress::default(), Default::default()), client)
    }

    #[test]
    fn a_client_that_always_sends_keeps_no_thread() {
        let (mut connection, _client) = talkative();
        assert_eq!(linger(&mut connection, u64::MAX), Lingered::Yield);
        assert!(matches!(socket::peek(connection.socket.as_fd(), &mut [0]), Transfer::Moved(_)));
    }

    #[test]
    fn a_client_that_always_sends_is_closed_when_its_time_is_over() {
        let (mut connection, _client) = talkative();
        assert_eq!(linger(&mut connection, now_ns()), Lingered::Close);
    }
}
