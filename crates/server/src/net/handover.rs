//! Passes connections to another process: the socket by SCM_RIGHTS, with what that process cannot
//! find out. Nothing here knows HTTP, nor why a connection is passed.
//!
//! Several processes may send to a queue, and several receive from it. It is a pair of sockets of
//! the kind SOCK_SEQPACKET, so a connection is received whole and once. Shut down for receiving, it
//! refuses further connections and still gives those that it has.

use crate::net::socket::PeerAddress;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// `listener`, `port` and `noticed_ns`, before the address.
const FIXED_BYTES: usize = 1 + 2 + 8;
/// The longest address has 39 bytes, or 45 with an IPv4 address in it.
const MOST_BYTES: usize = FIXED_BYTES + 64;

/// The receiver of a connection cannot find this out.
#[derive(Clone, Debug)]
pub struct Known {
    pub address: PeerAddress,
    /// The index of the listener that accepted it.
    pub listener: u8,
    /// When the thread that polled saw the request that is in the socket, unread, by the clock that
    /// all processes share; 0 if there is none yet.
    pub noticed_ns: u64,
}

/// The result of an attempt to receive.
#[derive(Debug)]
pub enum Received {
    Connection(OwnedFd, Known),
    Nothing,
    /// The queue is shut down and empty.
    Over,
    /// There are no descriptors or no memory; the connection stays in the queue.
    Exhausted(io::Error),
}

/// Sends a connection, without waiting. False if the queue is full or shut down.
pub fn hand_over(queue: BorrowedFd, socket: BorrowedFd, known: &Known) -> bool {
    let (listener, port) = ([known.listener], known.address.port.to_ne_bytes());
    let noticed = known.noticed_ns.to_ne_bytes();
    let ip = known.address.ip.as_bytes();
    let pieces = [&listener[..], &port, &noticed, ip].map(IoSlice::new);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket];
    rights.push(SendAncillaryMessage::ScmRights(&sockets));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(queue, &pieces, &mut rights, flags)).is_ok()
}

/// Receives a connection, without waiting.
pub fn receive(queue: BorrowedFd) -> Received {
    // The kernel drops a connection for which there is no descriptor, and the message with it. So
    // one is looked for first; another thread may still take it in between.
    let room = match queue.try_clone_to_owned() {
        Ok(room) => room,
        Err(error) => return Received::Exhausted(error),
    };
    let mut bytes = [0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    drop(room);
    let received =
        retry_on_intr(|| recvmsg(queue, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags));
    let count = match received {
        Ok(message) if message.bytes == 0 => return Received::Over,
        Ok(message) => message.bytes,
        Err(error @ (Errno::NOBUFS | Errno::NOMEM)) => return Received::Exhausted(error.into()),
        Err(_) => return Received::Nothing,
    };
    let socket = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    // Only processes of this server send, so nothing else is expected.
    match (socket, read(&bytes[..count])) {
        (Some(socket), Some(known)) => Received::Connection(socket, known),
        _ => Received::Nothing,
    }
}

fn read(bytes: &[u8]) -> Option<Known> {
    let (fixed, ip) = bytes.split_at_checked(FIXED_BYTES)?;
    let [listener, port_low, port_high, noticed @ ..] = fixed else { return None };
    Some(Known {
        address: PeerAddress {
            ip: String::from_utf8_lossy(ip).into_owned(),
            port: u16::from_ne_bytes([*port_low, *port_high]),
        },
        listener: *listener,
        noticed_ns: u64::from_ne_bytes(noticed.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn queue() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn known() -> Known {
        let address = PeerAddress { ip: "2001:db8::1".to_owned(), port: 4711 };
        Known { address, listener: 3, noticed_ns: 123_456_789_012 }
    }

    #[test]
    fn a_connection_arrives_with_what_it_has_received() {
        let (receiving, sending) = queue();
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"GET /").unwrap();
        assert!(hand_over(sending.as_fd(), server.as_fd(), &known()));
        drop(server);
        let Received::Connection(socket, found) = receive(receiving.as_fd()) else { panic!() };
        assert_eq!((&*found.address.ip, found.address.port), ("2001:db8::1", 4711));
        assert_eq!((found.listener, found.noticed_ns), (3, 123_456_789_012));
        let mut bytes = [0; 5];
        UnixStream::from(socket).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"GET /");
        assert!(matches!(receive(receiving.as_fd()), Received::Nothing));
    }

    #[test]
    fn a_queue_that_is_shut_down_gives_what_it_has_and_refuses_more() {
        let (receiving, sending) = queue();
        let (_client, server) = UnixStream::pair().unwrap();
        assert!(hand_over(sending.as_fd(), server.as_fd(), &known()));
        shutdown(&receiving, Shutdown::Read).unwrap();
        assert!(!hand_over(sending.as_fd(), server.as_fd(), &known()));
        assert!(matches!(receive(receiving.as_fd()), Received::Connection(..)));
        assert!(matches!(receive(receiving.as_fd()), Received::Over));
    }

    #[test]
    fn a_full_queue_refuses_connections() {
        let (receiving, sending) = queue();
        let (_client, server) = UnixStream::pair().unwrap();
        let hand = || hand_over(sending.as_fd(), server.as_fd(), &known());
        let held = (0..100_000).take_while(|_| hand()).count();
        assert!((1..100_000).contains(&held), "{held}");
        assert!(matches!(receive(receiving.as_fd()), Received::Connection(..)));
        assert!(hand());
    }

    #[test]
    fn what_is_no_connection_is_dropped() {
        let (receiving, sending) = queue();
        rustix::net::send(&sending, b"short", SendFlags::empty()).unwrap();
        rustix::net::send(&sending, &[0; 200], SendFlags::empty()).unwrap();
        assert!(matches!(receive(receiving.as_fd()), Received::Nothing));
        assert!(matches!(receive(receiving.as_fd()), Received::Nothing));
    }
}
