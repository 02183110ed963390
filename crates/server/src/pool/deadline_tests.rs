//! The pool and time: what becomes of a connection whose deadline has passed, and that each request
//! has a time of its own. Sockets and monitor are real; no Python.

use crate::pool::scheduling::Situation;
use crate::pool::tests::{LARGE_BYTES, Targets, ask, listen, read_answer, run, send, settings};
use crate::pool::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const SHORT_NS: u64 = 50_000_000;

fn with_timeouts(timeouts: impl FnOnce(&mut Timeouts)) -> (Pool<Targets>, SocketAddr) {
    let (listener, address) = listen();
    let mut settings = settings(listener);
    timeouts(&mut settings.timeouts);
    // So that the monitor looks often.
    settings.process_limits.request_ns = SHORT_NS;
    (Pool::new(Targets::default(), settings).unwrap(), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    connection
}

/// Everything until the end, which must not be a reset.
fn read_to_end(connection: &mut TcpStream) -> String {
    let mut received = String::new();
    connection.read_to_string(&mut received).unwrap();
    received
}

/// POSTs after which a connection is idle, though the application saw no end of their bodies.
fn posts() -> [Vec<u8>; 3] {
    let post = |length: usize, after: &str| {
        let body = "x".repeat(length);
        format!("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}{after}")
            .into_bytes()
    };
    // Gathered to the last byte; partly unread; and what some clients send after a body.
    [post(65_536, ""), post(100_000, ""), post(10, "\r\n")]
}

#[test]
fn after_a_post_a_connection_is_idle_and_closed_as_such() {
    for post in posts() {
        let (pool, address) = with_timeouts(|timeouts| {
            (timeouts.keep_alive_ns, timeouts.head_ns) = (SHORT_NS, SHORT_NS);
        });
        run(&pool, 1, true, || {
            let mut connection = connect(address);
            connection.write_all(&post).unwrap();
            assert_eq!(read_answer(&mut connection), "/post");
            assert_eq!(read_to_end(&mut connection), "");
        });
    }
}

#[test]
fn after_a_post_a_connection_does_not_keep_a_server_from_stopping() {
    for post in posts() {
        let (pool, address) = with_timeouts(|_| ());
        run(&pool, 1, true, || {
            let mut connection = connect(address);
            connection.write_all(&post).unwrap();
            assert_eq!(read_answer(&mut connection), "/post");
            // Until all of it was read there is something of a request.
            let mut other = connect(address);
            assert_eq!(ask(&mut other, "/other"), "/other");
            pool.stop(0);
            assert_eq!(read_to_end(&mut connection), "");
        });
    }
}

#[test]
fn the_rest_of_a_body_that_does_not_come_is_no_request_of_its_own() {
    let (pool, address) = with_timeouts(|timeouts| timeouts.head_ns = SHORT_NS);
    run(&pool, 1, true, || {
        let mut connection = connect(address);
        let body = "x".repeat(70_000);
        let post = format!("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 80000\r\n\r\n{body}");
        connection.write_all(post.as_bytes()).unwrap();
        assert_eq!(read_answer(&mut connection), "/post");
        assert_eq!(read_to_end(&mut connection), "");
    });
}

#[test]
fn a_client_that_sends_and_takes_nothing_is_cut_off() {
    let (pool, address) = with_timeouts(|timeouts| timeouts.write_ns = SHORT_NS);
    run(&pool, 1, true, || {
        let mut connection = connect(address);
        connection.set_nodelay(true).unwrap();
        send(&mut connection, "/large");
        let end = Instant::now() + Duration::from_secs(20);
        while connection.write_all(b"x").is_ok() {
            assert!(Instant::now() < end, "it is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// The client takes less than makes epoll report room before the deadline.
#[test]
fn a_client_that_takes_a_little_is_not_cut_off() {
    let (pool, address) = with_timeouts(|timeouts| timeouts.write_ns = 20 * SHORT_NS);
    run(&pool, 1, true, || {
        let mut connection = connect(address);
        send(&mut connection, "/large");
        let mut received = vec![0; 16_384];
        for _ in 0..80 {
            connection.read_exact(&mut received).unwrap();
            std::thread::sleep(Duration::from_millis(25));
        }
        let mut rest = vec![0; LARGE_BYTES - 80 * received.len()];
        connection.read_exact(&mut rest).unwrap();
    });
}

#[test]
fn a_request_that_no_thread_has_seen_before_the_deadline_is_answered() {
    let (pool, address) = with_timeouts(|timeouts| timeouts.keep_alive_ns = 20 * SHORT_NS);
    run(&pool, 1, true, || {
        let mut connection = connect(address);
        let mut busy = connect(address);
        assert_eq!(ask(&mut connection, "/first"), "/first");
        send(&mut busy, "/wait");
        while !pool.application().waiting.load(SeqCst) {
            std::thread::yield_now();
        }
        send(&mut connection, "/next");
        // Nobody polls, so this is the monitor's doing.
        while pool.scheduler.is_queue_empty() {
            std::thread::yield_now();
        }
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut busy), "/wait");
        assert_eq!(read_answer(&mut connection), "/next");
        assert_eq!(read_to_end(&mut connection), "", "it is idle now");
    });
}

#[test]
fn a_monitor_that_panics_is_replaced() {
    let (pool, address) = with_timeouts(|timeouts| timeouts.keep_alive_ns = SHORT_NS);
    pool.requested_panics.store(1, SeqCst);
    run(&pool, 1, true, || {
        let mut connection = connect(address);
        assert_eq!(ask(&mut connection, "/a"), "/a");
        assert_eq!(read_to_end(&mut connection), "", "its time is over");
        assert_eq!(pool.requested_panics.load(SeqCst), 0);
    });
}

#[test]
fn a_server_whose_monitors_panic_goes_on_without_one() {
    let (pool, address) = with_timeouts(|_| {});
    pool.requested_panics.store(MAX_MONITORS, SeqCst);
    run(&pool, 1, true, || {
        while pool.requested_panics.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ask(&mut connect(address), "/a"), "/a");
    });
}
