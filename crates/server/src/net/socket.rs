//! Non-blocking sockets: receive, send, wait, close. Nothing here knows HTTP.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use rustix::time::Timespec;
use std::io::IoSlice;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// The result of a call that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Moved(usize),
    /// Nothing can move now; an event follows.
    WouldBlock,
    /// More could move at once, but others may go first.
    Unfinished,
    /// The peer is gone, or sends no more (0 bytes were received).
    Ended,
}

pub fn receive(fd: BorrowedFd, space: &mut [u8]) -> Transfer {
    transfer(|| Ok(net::recv(fd, &mut *space, RecvFlags::DONTWAIT)?.1))
}

/// `more` means that other bytes are sent right after these, and may share a packet.
pub fn send(fd: BorrowedFd, bytes: &[u8], more: bool) -> Transfer {
    let flags = if more { SEND_FLAGS | SendFlags::MORE } else { SEND_FLAGS };
    transfer(|| net::send(fd, bytes, flags))
}

/// Sends like `send`, from several buffers.
pub fn send_vectored(fd: BorrowedFd, pieces: &[IoSlice]) -> Transfer {
    let pieces = &pieces[..pieces.len().min(libc::UIO_MAXIOV as usize)];
    transfer(|| net::sendmsg(fd, pieces, &mut SendAncillaryBuffer::default(), SEND_FLAGS))
}

/// Receives like `receive`, and leaves the bytes in the socket.
pub fn peek(fd: BorrowedFd, space: &mut [u8]) -> Transfer {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    transfer(|| Ok(net::recv(fd, &mut *space, flags)?.1))
}

/// Repeats a call that a signal interrupts.
fn transfer(call: impl FnMut() -> rustix::io::Result<usize>) -> Transfer {
    match retry_on_intr(call) {
        Ok(0) => Transfer::Ended,
        Ok(count) => Transfer::Moved(count),
        Err(Errno::AGAIN) => Transfer::WouldBlock,
        Err(_) => Transfer::Ended,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Receive,
    Send,
}

/// The current events of a descriptor; none if it cannot be polled.
pub fn polled_events(fd: BorrowedFd, events: PollFlags) -> PollFlags {
    let mut polled = [PollFd::from_borrowed_fd(fd, events)];
    match poll(&mut polled, Some(&Timespec::default())) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// Waits until the socket is ready; false after `timeout_ms`. A negative time has no end.
pub fn wait_ready(fd: BorrowedFd, direction: Direction, timeout_ms: i32) -> bool {
    let events = match direction {
        Direction::Receive => PollFlags::IN,
        Direction::Send => PollFlags::OUT,
    };
    let timeout = duration_of_ms(timeout_ms);
    // After a failure, the next transfer finds the reason.
    retry_on_intr(|| poll(&mut [PollFd::from_borrowed_fd(fd, events)], timeout.as_ref()))
        .map_or(true, |ready| ready > 0)
}

/// For system calls that wait: a negative time has no end.
pub fn duration_of_ms(timeout_ms: i32) -> Option<Timespec> {
    let timeout_ms = u32::try_from(timeout_ms).ok()?;
    Some(Timespec {
        tv_sec: i64::from(timeout_ms / 1_000),
        tv_nsec: i64::from(timeout_ms % 1_000 * 1_000_000),
    })
}

/// The number of sent bytes that the peer's kernel has not acknowledged. It falls whenever the peer
/// receives some, while epoll reports room only when a third of the buffer is free.
pub fn unacknowledged_bytes(fd: BorrowedFd) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer, and `bytes` is one.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// Makes a descriptor non-blocking, for calls without MSG_DONTWAIT.
pub fn set_nonblocking(fd: BorrowedFd) {
    let _ = rustix::io::ioctl_fionbio(fd, true);
}

/// Sends FIN even while a forked child still holds the socket.
pub fn shut_down_sending(fd: BorrowedFd) {
    let _ = net::shutdown(fd, Shutdown::Write);
}

/// Ends the connection even while a forked child still holds the socket.
pub fn shut_down(fd: BorrowedFd) {
    let _ = net::shutdown(fd, Shutdown::Both);
}

/// Sends RST, even while a forked child still holds the socket, so that a truncated response is
/// never complete for the client: to connect to AF_UNSPEC aborts a TCP connection. Unix sockets
/// have no resets.
pub fn reset(fd: BorrowedFd) {
    let _ = net::connect_unspec(fd);
}

/// The origin of a connection. On a UNIX socket the port is 0 and the address is empty.
#[derive(Clone, Debug, Default)]
pub struct PeerAddress {
    pub ip: String,
    pub port: u16,
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The result of an attempt to accept.
pub enum Accepted {
    Connection(OwnedFd, PeerAddress),
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
        }
    }

    pub fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
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
