//! Non-blocking sockets: receive, send, wait, close. Nothing here knows HTTP.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use rustix::time::Timespec;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};

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
