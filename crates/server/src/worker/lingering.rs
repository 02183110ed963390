//! What a connection still sends after its last response: dropped, for a while.
//!
//! Closing with unread bytes would send RST, and RST can destroy the response on its way (RFC 9112
//! section 9.6).

use super::peer::Peer;
use super::socket::{self, Transfer};
use super::turn::Outcome;
use crate::record::clock::now_ns;
use std::os::fd::AsFd;

/// For so long in all.
pub const LINGERING_NS: u64 = 2_000_000_000;
/// Dropped in one turn; then others get theirs.
const BYTES_PER_TURN: usize = 262_144;

/// Drops what comes until the peer has closed too, or its time is over.
pub fn linger(peer: &mut Peer, since_ns: u64) -> Outcome {
    let mut dropped = [0; 16_384];
    for _ in 0..BYTES_PER_TURN / dropped.len() {
        match socket::receive(peer.socket.as_fd(), &mut dropped) {
            Transfer::Moved(_) => {}
            Transfer::WouldBlock | Transfer::Unfinished => return Outcome::Wait,
            Transfer::Ended => return Outcome::Close,
        }
    }
    // Of a connection that always has something the monitor never learns.
    match now_ns() < since_ns + LINGERING_NS {
        true => Outcome::Yield,
        false => Outcome::Close,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::socket::PeerAddress;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// A peer that has sent more than a turn drops, and its socket.
    fn talkative() -> (Peer, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while sent < 2 * BYTES_PER_TURN {
            sent += client.write(&[0; BYTES_PER_TURN]).expect("room for it on both sides");
        }
        (Peer::new(server.into(), PeerAddress::default(), Default::default()), client)
    }

    #[test]
    fn who_always_sends_keeps_no_thread() {
        let (mut peer, _client) = talkative();
        assert!(matches!(linger(&mut peer, now_ns()), Outcome::Yield));
        assert!(socket::has_unread(peer.socket.as_fd()));
    }

    #[test]
    fn who_always_sends_is_left_when_its_time_is_over() {
        let (mut peer, _client) = talkative();
        assert!(matches!(linger(&mut peer, now_ns() - LINGERING_NS), Outcome::Close));
    }
}
