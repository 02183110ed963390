//! Where connections come from: listening sockets, and queues of what other processes hand over.

use crate::net::handover::{self, Known, Received};
use crate::net::socket::{PeerAddress, polled_events};
use rustix::event::PollFlags;
use rustix::net::{self, AddressFamily};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// A queue of connections that other processes hand over.
    Handover(OwnedFd),
}

/// The result of an attempt to accept.
pub enum Accepted {
    Connection(OwnedFd, PeerAddress),
    /// Another process has handed it over.
    HandedOver(OwnedFd, Known),
    /// The queue is empty, or the connection ended before it was accepted.
    Nothing,
    /// No connection comes from here any more.
    Over,
    /// There are no descriptors or no memory, so the next attempt would fail too.
    Exhausted(std::io::Error),
}

impl Listener {
    /// Takes over a listening socket of either family.
    pub fn from_fd(fd: OwnedFd) -> std::io::Result<Self> {
        match net::sockopt::socket_domain(&fd)? {
            AddressFamily::UNIX => Ok(Self::Unix(fd.into())),
            _ => Ok(Self::Tcp(fd.into())),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
            Self::Handover(queue) => queue.as_fd(),
        }
    }

    pub fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
            // It is read with MSG_DONTWAIT, and shared with others.
            Self::Handover(_) => Ok(()),
        }
    }

    /// Whether another process is to receive what is left here: a queue of connections that is not
    /// shut down.
    pub fn has_other_receivers(&self) -> bool {
        let Self::Handover(queue) = self else { return false };
        !polled_events(queue.as_fd(), PollFlags::RDHUP).contains(PollFlags::RDHUP)
    }

    /// Does not wait. Transfers pass MSG_DONTWAIT, so the connection itself may stay blocking.
    pub fn accept(&self) -> Accepted {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, address)| {
                let ip = match address.ip() {
                    IpAddr::V6(ip) => ip.to_canonical().to_string(),
                    IpAddr::V4(ip) => ip.to_string(),
                };
                (OwnedFd::from(stream), PeerAddress { ip, port: address.port() })
            }),
            Self::Unix(listener) => {
                listener.accept().map(|(stream, _)| (OwnedFd::from(stream), PeerAddress::default()))
            }
            Self::Handover(queue) => match handover::receive(queue.as_fd()) {
                Received::Connection(socket, known) => return Accepted::HandedOver(socket, known),
                Received::Nothing => return Accepted::Nothing,
                Received::Over => return Accepted::Over,
                Received::Exhausted(error) => Err(error),
            },
        };
        match accepted {
            Ok((fd, address)) => Accepted::Connection(fd, address),
            Err(error) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    Accepted::Exhausted(error)
                }
                _ => Accepted::Nothing,
            },
        }
    }
}
