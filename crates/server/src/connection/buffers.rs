//! The buffers that a worker lends to the connections that it drives.
//!
//! A connection that waits in the middle of a request keeps its buffers. An idle connection has
//! none, so it costs little more than its `Connection`.

use crate::connection::body::RequestBody;
use crate::connection::state::Connection;

/// Enough for the short responses of one batch.
const KEPT_BUFFERS: usize = 16;
/// The number of large buffers among them.
const KEPT_LARGE_BUFFERS: usize = 2;
const SHORT_BYTES: usize = 16_384;
const LARGE_BYTES: usize = 131_072;

/// The free buffers of one worker.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// The last one is lent next.
    buffers: Vec<Buffers>,
    /// How many of them are large.
    large: usize,
}

/// The memory for one request and its response.
#[derive(Debug, Default)]
struct Buffers {
    received: Vec<u8>,
    body: Vec<u8>,
    outgoing: Vec<u8>,
}

impl BufferPool {
    /// Gives buffers to a connection without any.
    pub fn lend_to(&mut self, connection: &mut Connection) {
        if !connection.has_buffers {
            connection.has_buffers = true;
            let Buffers { received, body, outgoing } = self.pop();
            connection.http.lend_buffer(received);
            (connection.body, connection.outgoing) = (RequestBody::with_memory(body), outgoing);
        }
    }

    /// Takes the buffers of a connection, which may come from another worker. Between requests or
    /// at the end only.
    pub fn take_from(&mut self, connection: &mut Connection) {
        if std::mem::take(&mut connection.has_buffers) {
            let received = connection.http.take_buffer();
            let mut body = std::mem::take(&mut connection.body).into_memory();
            body.clear();
            // Bytes that one client did not take must not go to another.
            let mut outgoing = std::mem::take(&mut connection.outgoing);
            outgoing.clear();
            self.push(Buffers { received, body, outgoing });
        }
    }

    fn pop(&mut self) -> Buffers {
        let buffers = self.buffers.pop().unwrap_or_default();
        self.large -= usize::from(buffers.are_large());
        buffers
    }

    /// Keeps buffers for later requests. Memory that only a large request or response needed goes
    /// back to the system.
    fn push(&mut self, buffers: Buffers) {
        if self.buffers.len() < KEPT_BUFFERS {
            let is_full = self.large == KEPT_LARGE_BUFFERS;
            let buffers = buffers.up_to(if is_full { SHORT_BYTES } else { LARGE_BYTES });
            self.large += usize::from(buffers.are_large());
            self.buffers.push(buffers);
        }
    }
}

impl Buffers {
    fn are_large(&self) -> bool {
        [&self.received, &self.body, &self.outgoing].iter().any(|it| it.capacity() > SHORT_BYTES)
    }

    /// Frees those that are larger than `bytes`.
    fn up_to(mut self, bytes: usize) -> Self {
        for buffer in [&mut self.received, &mut self.body, &mut self.outgoing] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::PeerAddress;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_that_one_client_did_not_take_do_not_go_to_the_next() {
        let mut pool = BufferPool::default();
        let mut connections = [(); 2].map(|()| {
            let (one, _) = UnixStream::pair().unwrap();
            Connection::new(one.into(), PeerAddress::default(), Default::default())
        });
        pool.lend_to(&mut connections[0]);
        connections[0].outgoing.extend_from_slice(b"the rest of a response");
        connections[0].body.extend_from_slice(b"a body");
        pool.take_from(&mut connections[0]);
        pool.lend_to(&mut connections[1]);
        assert!(connections[1].outgoing.is_empty() && connections[1].body.unread().is_empty());
    }

    #[test]
    fn most_of_what_a_worker_keeps_is_small() {
        let mut pool = BufferPool::default();
        let sized = |bytes| Buffers {
            received: Vec::with_capacity(bytes),
            body: Vec::with_capacity(bytes),
            outgoing: Vec::with_capacity(bytes),
        };
        let kept = |pool: &BufferPool| -> Vec<usize> {
            pool.buffers.iter().map(|each| each.outgoing.capacity()).collect()
        };
        for _ in 0..2 * KEPT_BUFFERS {
            pool.push(sized(100_000));
        }
        assert_eq!(kept(&pool), [vec![100_000; 2], vec![0; KEPT_BUFFERS - 2]].concat());
        // Buffers that successive requests need stay, wherever they came from.
        pool.buffers.drain(1..3);
        pool.large = 1;
        pool.push(sized(100_000));
        assert_eq!(pool.pop().outgoing.capacity(), 100_000);
        pool.push(sized(LARGE_BYTES + 1));
        assert_eq!((pool.pop().outgoing.capacity(), pool.large), (0, 1));
    }
}
