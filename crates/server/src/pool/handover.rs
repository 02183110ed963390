//! Which requests another process of the server answers: those for *background pages*, which are
//! to take no time from others, are answered by a process of their own.
//!
//! A connection is handed over before its next request is read, so both processes read requests in
//! the same way, and a request that cannot be handed over is answered here: one over TLS, whose
//! session cannot move, one that follows another in the same packet, one whose path comes in
//! pieces, and any while the queue is full.

use crate::connection::state::{Connection, Stage};
use crate::http::path::is_at_or_below;
use crate::net::handover::{Known, hand_over};
use crate::net::socket::{self, Transfer};
use std::os::fd::{AsFd, OwnedFd};

/// Enough for a method and a path. Of a longer path this much is looked at.
const SEEN_BYTES: usize = 1_024;

/// This process's side of the handing over.
pub struct Handover {
    /// The URL paths of the background pages, without a slash at their end.
    pub paths: Vec<Vec<u8>>,
    /// This process answers the requests for these pages, and the other processes all others.
    pub is_background: bool,
    /// Connections whose next request is for the other side. Both sides share the queues' other
    /// ends with a supervisor, which shuts the queues down before the processes stop.
    pub to_others: OwnedFd,
}

impl Handover {
    /// Hands the connection over if the other side is to read the request that is next in its
    /// socket, or to wait for one. A background process keeps no connection without a request: the
    /// next may be for another page, and must not wait for one of its threads. False if the
    /// connection stays here.
    pub fn hands_over(&self, connection: &mut Connection) -> bool {
        let is_at_beginning = connection.stage == Stage::Idle && connection.http.is_idle();
        let is_due = connection.readable || self.is_background;
        if !(is_at_beginning && is_due && connection.tls.is_none()) {
            return false;
        }
        let mut seen = [0; SEEN_BYTES];
        let noticed_ns = match socket::peek(connection.socket.as_fd(), &mut seen) {
            Transfer::Moved(count) => {
                let Some(path) = path(&seen[..count]) else { return false };
                if self.paths.iter().any(|each| is_at_or_below(path, each)) == self.is_background {
                    return false;
                }
                connection.noticed_ns
            }
            Transfer::WouldBlock => {
                // Bytes that come now bring an event.
                connection.readable = false;
                if !self.is_background {
                    return false;
                }
                0
            }
            Transfer::Unfinished | Transfer::Ended => return false,
        };
        let known = Known {
            address: connection.address.clone(),
            listener: connection.listener,
            noticed_ns,
        };
        let socket = connection.socket.as_fd();
        connection.is_handed_over = hand_over(self.to_others.as_fd(), socket, &known);
        connection.is_handed_over
    }
}

/// The path of the request that begins with these bytes, as it is sent. `None` if its end has not
/// arrived, or it is not of the form `/path`.
fn path(mut seen: &[u8]) -> Option<&[u8]> {
    let is_full = seen.len() == SEEN_BYTES;
    // RFC 9112, section 2.2: an empty line before a request is ignored.
    while let [b'\r' | b'\n', rest @ ..] = seen {
        seen = rest;
    }
    let space = seen.iter().position(|byte| *byte == b' ')?;
    let target = &seen[space + 1..];
    let end = target.iter().position(|byte| matches!(byte, b' ' | b'?' | b'\r' | b'\n'));
    let end = end.or_else(|| is_full.then_some(target.len()))?;
    Some(&target[..end]).filter(|path| path.starts_with(b"/"))
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod tests;
