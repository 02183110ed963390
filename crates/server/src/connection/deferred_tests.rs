//! Responses that are handed off to the monitor are never forgotten, and no thread waits for them
//! for long.

use crate::connection::deferred::*;
use crate::connection::state::Connection;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// A connection with a response of `bytes`, and its client.
fn connection(bytes: usize) -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut connection = Connection::new(ours.into(), Default::default(), Default::default());
    connection.outgoing.resize(bytes, b'x');
    (connection, theirs)
}

#[test]
fn a_handed_off_response_is_sent_or_looked_at_again() {
    let responses = DeferredResponses::default();
    let (mut connection, mut client) = connection(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let monitor = scope.spawn(|| {
            while !over.load(SeqCst) {
                responses.take_overdue(u64::MAX, &mut Vec::new());
            }
        });
        let mut is_stranded = false;
        for _ in 0..50_000 {
            connection.outgoing.push(b'x');
            responses.open(1);
            if responses.hand_off(&mut connection) {
                let contents = responses.contents.lock();
                let is_sent = contents.handed_off.as_ref().is_none_or(|it| it.sent == 1);
                is_stranded |= !is_sent && !responses.needs_monitor(u64::MAX);
                drop(contents);
                responses.reclaim(&mut connection);
            }
            connection.outgoing.clear();
            connection.sent = 0;
            client.set_nonblocking(true).unwrap();
            let _ = client.read(&mut [0; 64]);
        }
        over.store(true, SeqCst);
        monitor.join().unwrap();
        assert!(!is_stranded, "the monitor would not have sent it");
    });
}

#[test]
fn one_look_sends_no_more_than_a_piece() {
    let responses = DeferredResponses::default();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut connection, _client) = connection(3 * BYTES_PER_SEND);
    connection.socket = listener.accept().unwrap().0.into();
    let client = std::thread::spawn(move || {
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        received.len()
    });
    responses.hand_off_rest(&mut connection);
    let mut sent = 0;
    while responses.has_rest() {
        responses.take_overdue(u64::MAX, &mut Vec::new());
        let now = responses.contents.lock().handed_off.as_ref().unwrap().sent;
        assert!(now - sent <= BYTES_PER_SEND, "{now} after {sent}");
        sent = now;
    }
    responses.reclaim(&mut connection);
    drop(connection);
    assert_eq!(client.join().unwrap(), 3 * BYTES_PER_SEND);
}
