//! Non-blocking sockets: receive, send, wait, close. Nothing here knows HTTP.

use std::io::{Error, ErrorKind, IoSlice};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// What became of a call that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Moved(usize),
    /// Nothing can move now; an event will say when.
    WouldBlock,
    /// More could move at once, but others may go first.
    Unfinished,
    /// The peer is gone, or will send no more (receiving 0 bytes).
    Ended,
}

pub fn receive(fd: BorrowedFd, space: &mut [u8]) -> Transfer {
    loop {
        // SAFETY: the pointer and the length are those of `space`.
        let count = unsafe {
            libc::recv(fd.as_raw_fd(), space.as_mut_ptr().cast(), space.len(), libc::MSG_DONTWAIT)
        };
        match classify(count) {
            Some(transfer) => return transfer,
            None => continue,
        }
    }
}

/// `more`: something else is sent right after, and may share a packet.
pub fn send(fd: BorrowedFd, bytes: &[u8], more: bool) -> Transfer {
    let more = if more { libc::MSG_MORE } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    loop {
        // SAFETY: the pointer and the length are those of `bytes`.
        let count =
            unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        match classify(count) {
            Some(transfer) => return transfer,
            None => continue,
        }
    }
}

/// As `send`, from several places.
pub fn send_vectored(fd: BorrowedFd, pieces: &[IoSlice]) -> Transfer {
    // SAFETY: all zero bytes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An IoSlice is an iovec in memory, by its documentation.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len().min(libc::UIO_MAXIOV as usize) as _;
    loop {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message refers to live pieces, which are only read.
        let count = unsafe { libc::sendmsg(fd.as_raw_fd(), &message, flags) };
        match classify(count) {
            Some(transfer) => return transfer,
            None => continue,
        }
    }
}

/// As `receive`, and what is seen stays in the socket.
pub fn peek(fd: BorrowedFd, space: &mut [u8]) -> Transfer {
    loop {
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: the pointer and the length are those of `space`.
        let count =
            unsafe { libc::recv(fd.as_raw_fd(), space.as_mut_ptr().cast(), space.len(), flags) };
        match classify(count) {
            Some(transfer) => return transfer,
            None => continue,
        }
    }
}

/// `None`: interrupted by a signal, try again.
fn classify(count: isize) -> Option<Transfer> {
    match count {
        0 => Some(Transfer::Ended),
        1.. => Some(Transfer::Moved(count as usize)),
        _ => match Error::last_os_error().kind() {
            ErrorKind::Interrupted => None,
            ErrorKind::WouldBlock => Some(Transfer::WouldBlock),
            _ => Some(Transfer::Ended),
        },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Receive,
    Send,
}

/// Waits until the socket is ready; false after `timeout_ms`.
pub fn wait_ready(fd: BorrowedFd, direction: Direction, timeout_ms: i32) -> bool {
    let events = match direction {
        Direction::Receive => libc::POLLIN,
        Direction::Send => libc::POLLOUT,
    };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    loop {
        // SAFETY: one live pollfd.
        let count = unsafe { libc::poll(&mut poll, 1, timeout_ms) };
        if count >= 0 {
            return count > 0;
        }
        if Error::last_os_error().kind() != ErrorKind::Interrupted {
            // The next transfer will tell.
            return true;
        }
    }
}

/// How much was sent that the peer's kernel has not acknowledged. It falls with every piece that the peer
/// takes, while room is told of only when a third of the buffer is free.
pub fn untaken(fd: BorrowedFd) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: a pointer to a live integer.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// For calls that know no MSG_DONTWAIT.
pub fn set_nonblocking(fd: BorrowedFd) {
    let mut on: libc::c_int = 1;
    // SAFETY: a pointer to a live integer.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw mut on) };
}

/// Sends FIN even while a forked child still holds the socket.
pub fn shut_down_sending(fd: BorrowedFd) {
    // SAFETY: no pointers.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// Ends the connection even while a forked child still holds the socket.
pub fn shut_down(fd: BorrowedFd) {
    // SAFETY: no pointers.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Sends RST, even while a forked child still holds the socket, so that what was sent cannot be taken
/// for a whole response: connecting to nowhere aborts a TCP connection. Unix sockets have no resets.
pub fn reset(fd: BorrowedFd) {
    // SAFETY: all zero bytes are a valid `sockaddr`, of the family AF_UNSPEC.
    let nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the pointer and the size are those of `nowhere`.
    unsafe { libc::connect(fd.as_raw_fd(), &raw const nowhere, size) };
}

/// Where a connection comes from; port 0 and an empty address over a Unix socket.
#[derive(Clone, Debug, Default)]
pub struct PeerAddress {
    pub ip: String,
    pub port: u16,
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What became of an attempt to accept.
pub enum Accepted {
    Connection(OwnedFd, PeerAddress),
    /// The queue is empty, or the connection ended before it was accepted.
    Nothing,
    /// No descriptors or memory: accepting again at once would fail again.
    Exhausted(std::io::Error),
}

impl Listener {
    /// Takes over a listening socket of either family.
    pub fn from_fd(fd: OwnedFd) -> std::io::Result<Self> {
        let mut domain = 0;
        let mut size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the pointers and the size are those of live integers.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_DOMAIN,
                (&raw mut domain).cast(),
                &mut size,
            )
        };
        match (result, domain) {
            (0, libc::AF_UNIX) => Ok(Self::Unix(fd.into())),
            (0, _) => Ok(Self::Tcp(fd.into())),
            _ => Err(Error::last_os_error()),
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
