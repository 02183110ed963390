//! The pool at its preamble: how long a connection may take for what comes before HTTP, and what
//! becomes of one that is there when the server stops. Sockets and monitor are real; no Python.

use crate::net::networks::Networks;
use crate::pool::tests::{Targets, ask, listen, run, settings};
use crate::pool::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n";

/// Every connection owes a PROXY header, within `head_ns`.
fn behind_balancer(head_ns: u64) -> (Pool<Targets>, SocketAddr) {
    let (listener, address) = listen();
    let mut settings = settings(listener);
    settings.timeouts.head_ns = head_ns;
    settings.preamble.proxy_protocol_from = Networks::parse(&["127.0.0.0/8".into()]).unwrap();
    (Pool::new(Targets::default(), settings).unwrap(), address)
}

/// Everything until the end, which must not be a reset.
fn read_to_end(connection: &mut TcpStream) -> Vec<u8> {
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut received = Vec::new();
    connection.read_to_end(&mut received).unwrap();
    received
}

#[test]
fn what_comes_before_http_has_the_time_of_a_head() {
    let (pool, address) = behind_balancer(50_000_000);
    run(&pool, 1, true, || {
        for mut connection in [(); 2].map(|()| TcpStream::connect(address).unwrap()) {
            assert_eq!(read_to_end(&mut connection), b"");
        }
    });
    assert_eq!(pool.driver.preamble.refused.load(Relaxed), 0, "silence is no mistake");
}

#[test]
fn a_silent_connection_does_not_keep_a_server_from_stopping() {
    let (pool, address) = behind_balancer(30_000_000_000);
    let mut silent = None;
    run(&pool, 1, true, || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(HEADER).unwrap();
        silent = Some(TcpStream::connect(address).unwrap());
        assert_eq!(ask(&mut connection, "/"), "/");
    });
    assert_eq!(read_to_end(&mut silent.unwrap()), b"");
}

#[test]
fn a_silent_connection_has_the_time_of_an_idle_one_when_a_server_stops() {
    let (pool, address) = behind_balancer(30_000_000_000);
    run(&pool, 1, true, || {
        let mut silent = TcpStream::connect(address).unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        other.write_all(HEADER).unwrap();
        assert_eq!(ask(&mut other, "/other"), "/other");
        pool.stop(20_000_000_000);
        // Its turn, with nothing to read, has come.
        assert_eq!(ask(&mut other, "/last"), "/last");
        std::thread::sleep(Duration::from_millis(50));
        silent.write_all(HEADER).unwrap();
        assert_eq!(ask(&mut silent, "/silent"), "/silent");
    });
}

#[test]
fn who_has_begun_a_header_has_its_time_whenever_a_server_stops() {
    let (pool, address) = behind_balancer(30_000_000_000);
    run(&pool, 1, true, || {
        let mut slow = TcpStream::connect(address).unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        slow.write_all(&HEADER[..10]).unwrap();
        other.write_all(HEADER).unwrap();
        assert_eq!(ask(&mut other, "/other"), "/other");
        pool.stop(0);
        assert_eq!(read_to_end(&mut other), b"");
        // The monitor looks once a second.
        std::thread::sleep(Duration::from_millis(1_500));
        slow.write_all(&HEADER[10..]).unwrap();
        assert_eq!(ask(&mut slow, "/slow"), "/slow");
    });
}

#[test]
fn who_owes_a_header_and_sends_a_request_is_closed_and_counted() {
    let (pool, address) = behind_balancer(30_000_000_000);
    run(&pool, 1, true, || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // Nothing, by an end or by a reset: what was sent is left unread.
        assert!(matches!(connection.read(&mut [0; 100]), Ok(0) | Err(_)));
    });
    assert_eq!(pool.driver.preamble.refused.load(Relaxed), 1);
    assert!(pool.application().seen.lock().unwrap().is_empty());
}
