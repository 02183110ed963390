//! What a connection still sends after its last response and the FIN behind it: dropped, for a while.
//!
//! Closing with unread bytes would send RST, and so would bytes that come after that; and RST can destroy
//! the response on its way (RFC 9112 section 9.6).

use crate::connection::state::{Connection, Stage};
use crate::net::socket::{self, Transfer};
use headway_measure::clock::now_ns;
use std::os::fd::AsFd;

/// For so long without a byte.
pub const SILENCE_NS: u64 = 2_000_000_000;
/// For so long in all, as in nginx and httpd.
const TOTAL_NS: u64 = 30_000_000_000;
/// Dropped in one turn; then others get theirs.
const BYTES_PER_TURN: usize = 262_144;

/// How a connection lingers; `None` if its peer sends nothing more: it has said so, with a FIN or by
/// asking for this end.
pub fn begin(connection: &Connection) -> Option<Stage> {
    let expecting = match socket::peek(connection.socket.as_fd(), &mut [0]) {
        Transfer::Ended => return None,
        Transfer::Moved(_) => true,
        Transfer::WouldBlock | Transfer::Unfinished => !connection.http.is_drained(),
    };
    let is_wanted = expecting || !connection.http.is_asked_to_close();
    is_wanted.then(|| Stage::Lingering { since_ns: now_ns(), expecting })
}

/// Drops what comes. `Ended` if the peer has closed too, or the time is over; `Unfinished` if there
/// is more.
pub fn linger(connection: &mut Connection, until_ns: u64) -> Transfer {
    let mut dropped = [0; 16_384];
    for _ in 0..BYTES_PER_TURN / dropped.len() {
        match socket::receive(connection.socket.as_fd(), &mut dropped) {
            Transfer::Moved(_) => connection.moved = true,
            Transfer::Ended => return Transfer::Ended,
            Transfer::WouldBlock | Transfer::Unfinished if now_ns() < until_ns => {
                return Transfer::WouldBlock;
            }
            Transfer::WouldBlock | Transfer::Unfinished => return Transfer::Ended,
        }
    }
    // Of a connection that always has something the monitor never learns.
    match now_ns() < until_ns {
        true => Transfer::Unfinished,
        false => Transfer::Ended,
    }
}

/// When lingering ends that began at `since_ns`. A server that stops waits no longer than it must, and
/// not for what may never come.
pub fn end_ns(since_ns: u64, expecting: bool, is_stopping: bool) -> u64 {
    since_ns
        + match (is_stopping, expecting) {
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

    /// A peer that has sent more than a turn drops, and its socket.
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
    fn who_always_sends_keeps_no_thread() {
        let (mut connection, _client) = talkative();
        assert!(matches!(linger(&mut connection, u64::MAX), Transfer::Unfinished));
        assert!(matches!(socket::peek(connection.socket.as_fd(), &mut [0]), Transfer::Moved(_)));
    }

    #[test]
    fn who_always_sends_is_left_when_its_time_is_over() {
        let (mut connection, _client) = talkative();
        assert!(matches!(linger(&mut connection, now_ns()), Transfer::Ended));
    }
}
