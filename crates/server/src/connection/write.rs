//! Sending on a connection: the framed response, the file behind it, FIN.

use crate::connection::state::Connection;
use crate::net::sendfile::FileBody;
use crate::net::socket::{self, Direction, Transfer};
use std::os::fd::AsFd;

/// Sends the unsent bytes, without waiting. `Moved` means all of them.
pub fn send(connection: &mut Connection) -> Transfer {
    let unsent_bytes = |connection: &Connection| {
        let file = connection.file.as_ref().map_or(0, |file| file.left());
        (connection.outgoing.len() - connection.sent) as u64 + file
    };
    let before = unsent_bytes(connection);
    let transfer = match connection.tls {
        None => send_plain(connection),
        Some(_) => send_encrypted(connection),
    };
    connection.deadline.moved |= unsent_bytes(connection) < before;
    transfer
}

fn send_plain(connection: &mut Connection) -> Transfer {
    let socket = connection.socket.as_fd();
    while connection.sent < connection.outgoing.len() {
        let more = connection.file.is_some();
        match socket::send(socket, &connection.outgoing[connection.sent..], more) {
            Transfer::Moved(count) => connection.sent += count,
            other => return other,
        }
    }
    let moved = connection.sent;
    connection.outgoing.clear();
    connection.sent = 0;
    let Some(file) = &mut connection.file else { return Transfer::Moved(moved) };
    let transfer = file.send(socket);
    if matches!(transfer, Transfer::Moved(_)) {
        connection.file = None;
    }
    transfer
}

fn send_encrypted(connection: &mut Connection) -> Transfer {
    let Some(tls) = &mut connection.tls else { return Transfer::Ended };
    let socket = connection.socket.as_fd();
    while connection.sent < connection.outgoing.len() {
        match tls.send(socket, &connection.outgoing[connection.sent..]) {
            Transfer::Moved(count) => connection.sent += count,
            other => return other,
        }
    }
    connection.outgoing.clear();
    connection.sent = 0;
    if let Some(file) = &mut connection.file {
        match file.send_by(|block| tls.send(socket, block)) {
            Transfer::Moved(_) => connection.file = None,
            other => return other,
        }
    }
    tls.flush(socket)
}

/// Whether `send` may have something to send.
pub fn has_unsent(connection: &Connection) -> bool {
    connection.sent < connection.outgoing.len()
        || connection.file.is_some()
        || connection.tls.is_some()
}

/// Appends a file to the bytes in `outgoing`.
pub fn append_file(connection: &mut Connection, file: FileBody) {
    socket::set_nonblocking(connection.socket.as_fd());
    connection.file = Some(Box::new(file));
}

/// Tells the client that the response is complete. False if this has to wait for room in the
/// socket; then call it again.
pub fn close_sending(connection: &mut Connection) -> bool {
    if let Some(tls) = &mut connection.tls {
        if tls.close(connection.socket.as_fd()) == Transfer::WouldBlock {
            return false;
        }
    }
    socket::shut_down_sending(connection.socket.as_fd());
    true
}

/// Waits for the socket. False if the client has sent or received no byte for `timeout_ms`, or if
/// the wait is cancelled.
pub fn wait_ready(
    connection: &Connection,
    direction: Direction,
    timeout_ms: i32,
    is_cancelled: impl Fn() -> bool,
) -> bool {
    // Cancelling the wait does not wake the thread, so it checks from time to time.
    const LOOK_MS: i32 = 100;
    let socket = connection.socket.as_fd();
    let (mut unacknowledged, mut left_ms) = (socket::unacknowledged_bytes(socket), timeout_ms);
    loop {
        let step_ms = left_ms.min(LOOK_MS);
        if socket::wait_ready(socket, direction, step_ms) {
            return true;
        }
        if is_cancelled() {
            return false;
        }
        left_ms -= step_ms;
        if left_ms <= 0 {
            let now = socket::unacknowledged_bytes(socket);
            let before = std::mem::replace(&mut unacknowledged, now);
            if direction == Direction::Receive || unacknowledged >= before {
                return false;
            }
            left_ms = timeout_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::PeerAddress;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_client_that_takes_a_little_is_waited_for() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let connection = Connection::new(one.into(), PeerAddress::default(), Default::default());
        let socket = connection.socket.as_fd();
        while socket::send(socket, &[0; 4_096], false) != Transfer::WouldBlock {}
        let wait = |timeout_ms, is_cancelled| {
            wait_ready(&connection, Direction::Send, timeout_ms, || is_cancelled)
        };
        assert!(!wait(10, false), "the client takes nothing");
        assert!(!wait(600_000, true), "the wait is cancelled");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // The kernel reports room only when most of the buffer is free.
                while !socket::wait_ready(connection.socket.as_fd(), Direction::Send, 20) {
                    other.read_exact(&mut [0; 4_096]).unwrap();
                }
            });
            assert!(wait(200, false));
            reader.join().unwrap();
        });
    }
}
