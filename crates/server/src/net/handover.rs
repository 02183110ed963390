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

/// A connection whose next request is in its socket, unread.
#[derive(Debug)]
pub struct HandedOver {
    pub socket: OwnedFd,
    pub address: PeerAddress,
    /// The index of the listener that accepted it.
    pub listener: u8,
    /// When the thread that polled saw the request, by the clock that all processes share.
    pub noticed_ns: u64,
}

/// Sends a connection, without waiting. False if the queue is full or shut down.
pub fn hand_over(
    queue: BorrowedFd,
    socket: BorrowedFd,
    address: &PeerAddress,
    listener: u8,
    noticed_ns: u64,
) -> bool {
    let (listener, port) = ([listener], address.port.to_ne_bytes());
    let noticed = noticed_ns.to_ne_bytes();
    let pieces = [&listener[..], &port, &noticed, address.ip.as_bytes()].map(IoSlice::new);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket];
    rights.push(SendAncillaryMessage::ScmRights(&sockets));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(queue, &pieces, &mut rights, flags)).is_ok()
}

/// Receives a connection, without waiting. `None` if the queue is empty. What is no connection is
/// dropped.
pub fn receive(queue: BorrowedFd) -> io::Result<Option<HandedOver>> {
    let mut bytes = [0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received =
        retry_on_intr(|| recvmsg(queue, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags));
    let count = match received {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let socket = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let (Some(socket), Some((fixed, ip))) = (socket, bytes[..count].split_at_checked(FIXED_BYTES))
    else {
        return Ok(None);
    };
    let [listener, port_low, port_high, noticed @ ..] = fixed else { return Ok(None) };
    Ok(Some(HandedOver {
        socket,
        address: PeerAddress {
            ip: String::from_utf8_lossy(ip).into_owned(),
            port: u16::from_ne_bytes([*port_low, *port_high]),
        },
        listener: *listener,
        noticed_ns: u64::from_ne_bytes(noticed.try_into().expect("FIXED_BYTES")),
    }))
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

    fn address() -> PeerAddress {
        PeerAddress { ip: "2001:db8::1".to_owned(), port: 4711 }
    }

    #[test]
    fn a_connection_arrives_with_what_it_has_received() {
        let (receiving, sending) = queue();
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"GET /").unwrap();
        assert!(hand_over(sending.as_fd(), server.as_fd(), &address(), 3, 123_456_789_012));
        drop(server);
        let found = receive(receiving.as_fd()).unwrap().unwrap();
        assert_eq!((&*found.address.ip, found.address.port), ("2001:db8::1", 4711));
        assert_eq!((found.listener, found.noticed_ns), (3, 123_456_789_012));
        let mut bytes = [0; 5];
        UnixStream::from(found.socket).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"GET /");
        assert!(receive(receiving.as_fd()).unwrap().is_none());
    }

    #[test]
    fn a_queue_that_is_shut_down_gives_what_it_has_and_refuses_more() {
        let (receiving, sending) = queue();
        let (_client, server) = UnixStream::pair().unwrap();
        assert!(hand_over(sending.as_fd(), server.as_fd(), &address(), 0, 0));
        shutdown(&receiving, Shutdown::Read).unwrap();
        assert!(!hand_over(sending.as_fd(), server.as_fd(), &address(), 0, 0));
        assert!(receive(receiving.as_fd()).unwrap().is_some());
        assert!(receive(receiving.as_fd()).unwrap().is_none());
    }

    #[test]
    fn a_full_queue_refuses_connections() {
        let (receiving, sending) = queue();
        let (_client, server) = UnixStream::pair().unwrap();
        let hand = || hand_over(sending.as_fd(), server.as_fd(), &address(), 0, 0);
        let held = (0..100_000).take_while(|_| hand()).count();
        assert!((1..100_000).contains(&held), "{held}");
        assert!(receive(receiving.as_fd()).unwrap().is_some());
        assert!(hand());
    }

    #[test]
    fn what_is_no_connection_is_dropped() {
        let (receiving, sending) = queue();
        rustix::net::send(&sending, b"short", SendFlags::empty()).unwrap();
        rustix::net::send(&sending, &[0; 200], SendFlags::empty()).unwrap();
        assert!(receive(receiving.as_fd()).unwrap().is_none());
        assert!(receive(receiving.as_fd()).unwrap().is_none());
    }
}
