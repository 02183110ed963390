//! What is entrusted to the monitor: that it is never forgotten, and that nobody waits for it for long.

use crate::connection::deferred::*;
use crate::connection::state::Connection;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// A peer with a response of so many bytes, and its client.
fn peer(bytes: usize) -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut connection = Connection::new(ours.into(), Default::default(), Default::default());
    connection.outgoing.resize(bytes, b'x');
    (connection, theirs)
}

#[test]
fn what_is_entrusted_is_sent_or_looked_at_again() {
    let deferred = DeferredResponses::default();
    let (mut connection, mut client) = peer(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let monitor = scope.spawn(|| {
            while !over.load(SeqCst) {
                deferred.take_overdue(u64::MAX, &mut Vec::new());
            }
        });
        let mut is_stranded = false;
        for _ in 0..50_000 {
            connection.outgoing.push(b'x');
            deferred.open(1);
            if deferred.hand_off(&mut connection) {
                let contents = deferred.lock();
                let is_sent = contents.handed_off.as_ref().is_none_or(|it| it.sent == 1);
                is_stranded |= !is_sent && !deferred.wants_attention(u64::MAX);
                drop(contents);
                deferred.reclaim(&mut connection);
            }
            connection.outgoing.clear();
            connection.sent = 0;
            client.set_nonblocking(true).unwrap();
            let _ = client.read(&mut [0; 64]);
        }
        over.store(true, SeqCst);
        monitor.join().unwrap();
        assert!(!is_stranded, "nobody would have sent it");
    });
}

#[test]
fn one_look_sends_no_more_than_a_piece() {
    let deferred = DeferredResponses::default();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut connection, _client) = peer(3 * SENT_BYTES);
    connection.socket = listener.accept().unwrap().0.into();
    let client = std::thread::spawn(move || {
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        received.len()
    });
    deferred.hand_off_rest(&mut connection);
    let mut sent = 0;
    while deferred.has_rest() {
        deferred.take_overdue(u64::MAX, &mut Vec::new());
        let now = deferred.lock().handed_off.as_ref().unwrap().sent;
        assert!(now - sent <= SENT_BYTES, "{now} after {sent}");
        sent = now;
    }
    deferred.reclaim(&mut connection);
    drop(connection);
    assert_eq!(client.join().unwrap(), 3 * SENT_BYTES);
}
