//! Receives on a connection until a request can run.

use crate::connection::state::{Connection, FirstRequest, Stage};
use crate::http::{Event, Rejection};
use crate::net::socket::{self, Transfer};
use crate::net::tls::TlsSession;
use crate::shutdown::Shutdown;
use std::os::fd::{AsFd, OwnedFd};

/// The application is called when the body is complete or has this size, so that a slow sender of a
/// small form does not occupy a thread, and the body's framing has been checked.
const GATHERED_BODY_BYTES: usize = 65_536;

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The application can be called.
    Request,
    /// A complete head has arrived. Unless the request is refused, reading continues with the body.
    Head,
    Refused(Rejection),
    /// An event must come first.
    Wait,
    Close,
}

/// Moves the bytes in the socket into the connection, without waiting.
pub fn receive(connection: &mut Connection) -> Transfer {
    let space = connection.http.space();
    let space_bytes = space.len();
    let transfer = receive_into(&connection.socket, &mut connection.tls, space);
    if let Transfer::Moved(count) = transfer {
        connection.http.filled(count);
    }
    noted(connection, transfer, space_bytes)
}

/// Moves bytes of the body from the socket to the beginning of `space`, without waiting. `space` is
/// what the connection's `space_in` returned, and is not empty.
pub fn receive_body(connection: &mut Connection, space: &mut [u8]) -> Transfer {
    let transfer = receive_into(&connection.socket, &mut connection.tls, space);
    if let Transfer::Moved(count) = transfer {
        connection.http.filled_in(&space[..count]);
    }
    noted(connection, transfer, space.len())
}

fn receive_into(socket: &OwnedFd, tls: &mut Option<Box<TlsSession>>, space: &mut [u8]) -> Transfer {
    match tls {
        None => socket::receive(socket.as_fd(), space),
        Some(tls) => tls.receive(socket.as_fd(), space),
    }
}

/// Notes whether there may be more to read, and the end.
fn noted(connection: &mut Connection, transfer: Transfer, space_bytes: usize) -> Transfer {
    match transfer {
        // A short read has emptied the socket, so later bytes bring an event.
        Transfer::Moved(count) => {
            connection.readable =
                count == space_bytes || connection.hangup || connection.tls.is_some();
        }
        Transfer::WouldBlock => connection.readable = false,
        Transfer::Unfinished => {}
        Transfer::Ended => {
            connection.http.peer_closed();
            connection.readable = false;
        }
    }
    transfer
}

/// Reads until a request can run, the connection has to wait, or it is over. `now_ns` is the time
/// at which this turn began, or its last request ended.
pub fn read_request(connection: &mut Connection, shutdown: &Shutdown, now_ns: u64) -> Read {
    loop {
        match connection.http.next_event() {
            Event::NeedData => {
                if connection.stage == Stage::Head && connection.http.is_idle() {
                    // The bytes were not a head: the rest of a body, or an empty line.
                    connection.stage = Stage::Idle;
                }
                if connection.readable {
                    if connection.stage == Stage::Idle || connection.http.is_discarding() {
                        connection.begin_request(now_ns);
                    }
                    receive(connection);
                    if connection.stage == Stage::Idle && !connection.http.is_idle() {
                        connection.stage = Stage::Head;
                    }
                } else if shutdown.is_stopping()
                    && connection.stage == Stage::Idle
                    && connection.first_request != FirstRequest::Promised
                {
                    // The next request may have arrived since the last poll.
                    connection.readable = true;
                    match receive(connection) {
                        Transfer::Moved(_) => {
                            connection.begin_request(now_ns);
                            connection.stage = Stage::Head;
                        }
                        Transfer::WouldBlock if shutdown.keeps_idle() => return Read::Wait,
                        _ => return Read::Close,
                    }
                } else {
                    return Read::Wait;
                }
            }
            Event::Request => {
                connection.first_request = FirstRequest::Arrived;
                return Read::Head;
            }
            Event::Data(range) => {
                connection.body.extend_from_slice(connection.http.bytes(range));
                if connection.body.unread().len() >= GATHERED_BODY_BYTES {
                    return Read::Request;
                }
            }
            Event::EndOfMessage => return Read::Request,
            Event::Refused(rejection) => return Read::Refused(rejection),
            Event::Paused | Event::Closed => return Read::Close,
        }
    }
}

/// Starts to collect the body of a request whose head has just arrived. True if the client waits
/// for `100 Continue`, which is sent when the application reads.
pub fn begin_body(connection: &mut Connection) -> bool {
    connection.stage = Stage::Body;
    connection.body.clear();
    connection.http.awaits_continue()
}
