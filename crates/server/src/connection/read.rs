//! Receiving on a connection, up to the point where a request can be run.

use crate::connection::state::{Connection, Stage};
use crate::http::{Event, Rejection};
use crate::net::socket::{self, Transfer};
use crate::pool::shutdown::Shutdown;
use std::os::fd::AsFd;

/// A body is gathered before the application is called until it is complete or this large, so
/// that a slow sender of a small form holds no thread, and its framing is checked beforehand.
const GATHERED_BODY_BYTES: usize = 65_536;

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The application can be called.
    Request,
    /// A complete head has arrived. Reading goes on for the body unless the request is refused.
    Head,
    Refused(Rejection),
    /// An event must come first.
    Wait,
    Close,
}

/// Moves what the socket has into the connection, without waiting.
pub fn receive(connection: &mut Connection) -> Transfer {
    let space = connection.http.space();
    let space_bytes = space.len();
    let transfer = match &mut connection.tls {
        None => socket::receive(connection.socket.as_fd(), space),
        Some(tls) => tls.receive(connection.socket.as_fd(), space),
    };
    match transfer {
        Transfer::Moved(count) => {
            connection.http.filled(count);
            // A short read has emptied the socket: what comes later brings an event.
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

/// Reads on until a request can be run, or something must be waited for, or the connection is
/// over. `now_ns` is when this turn began, or its last request ended.
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
                    && !connection.owes_first_request
                {
                    // The next request may have come since the last poll.
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
                connection.has_sent_request = true;
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

/// Begins to gather the body of a request whose head has just arrived. True if the client waits
/// for `100 Continue`, which the application asks for by reading.
pub fn begin_body(connection: &mut Connection) -> bool {
    connection.stage = Stage::Body;
    connection.body.clear();
    connection.http.awaits_continue()
}
