//! Where connections come from: listening sockets, and queues of what other processes hand over.

use crate::net::handover::{self, HandedOver};
use crate::net::socket::PeerAddress;
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
    HandedOver(HandedOver),
    /// The queue is empty, or the connection ended before it was accepted.
    Nothing,
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
            Self::Handover(_) => Ok(()),
        }
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
                Ok(Some(connection)) => return Accepted::HandedOver(connection),
                Ok(None) => return Accepted::Nothing,
                Err(error) => Err(error),
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
