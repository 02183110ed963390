//! The pool after a connection's last response: what still comes does not destroy it, and nobody is
//! waited for in vain. Sockets are real; no Python. Without a monitor nothing ends by time.

use crate::pool::tests::{Targets, listen, run, settings};
use crate::pool::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Answers 408 soon, and 504 to a request that waited in the queue for `queue_ns` (0: no limit).
fn pool(queue_ns: u64) -> (Pool<Targets>, SocketAddr) {
    let (listener, address) = listen();
    let mut settings = settings(listener);
    settings.timeouts.head_ns = 50_000_000;
    settings.process_limits.queue_ns = queue_ns;
    (Pool::new(Targets::default(), settings).unwrap(), address)
}

/// Sends `request`; returns the connection and all that was answered.
fn send_request(address: SocketAddr, request: &[u8]) -> (TcpStream, String) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    connection.set_nodelay(true).unwrap();
    connection.write_all(request).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    (connection, answer)
}

/// Sends on after the end; a reset would make it fail.
fn send_on(connection: &mut TcpStream) {
    for _ in 0..10 {
        connection.write_all(b"GET /in/flight HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(connection.read(&mut [0]).unwrap(), 0);
    }
}

fn wait_until_closed(pool: &Pool<Targets>) {
    let end = Instant::now() + Duration::from_secs(20);
    while pool.open_connections() > 0 {
        assert!(Instant::now() < end, "it is still open");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_in_flight_when_a_request_is_refused_draws_no_reset() {
    let (pool, address) = pool(1);
    run(&pool, 1, false, || {
        for (request, status) in [(&b"nonsense \r\n\r\n"[..], "400"), (GET, "504")] {
            let (mut connection, answer) = send_request(address, request);
            assert_eq!(&answer[9..12], status);
            send_on(&mut connection);
            drop(connection);
            wait_until_closed(&pool);
        }
    });
}

#[test]
fn the_rest_of_a_head_that_is_too_late_draws_no_reset() {
    let (pool, address) = pool(0);
    run(&pool, 1, true, || {
        let (mut connection, answer) = send_request(address, b"GET / HTTP/1.1\r\nHo");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        send_on(&mut connection);
    });
}

#[test]
fn who_asked_for_the_end_is_not_waited_for() {
    let (pool, address) = pool(0);
    run(&pool, 1, false, || {
        for request in
            ["GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"]
        {
            let (_connection, answer) = send_request(address, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            wait_until_closed(&pool);
        }
    });
}

#[test]
fn who_may_send_more_does_not_keep_a_server_from_stopping() {
    let (pool, address) = pool(1);
    run(&pool, 1, false, || {
        let (_connection, answer) = send_request(address, GET);
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        assert_eq!(pool.open_connections(), 1, "it is waited for");
        pool.stop(0);
        wait_until_closed(&pool);
    });
}
