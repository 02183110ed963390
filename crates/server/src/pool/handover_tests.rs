//! Two pools as two processes would have them: one for background pages, one for all others.

use super::*;
use crate::limits::ProcessLimits;
use crate::net::listener::Listener;
use crate::pool::tests::{Targets, ask, listen, read_answer, run, send, settings};
use crate::pool::{Pool, PoolSettings};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;

fn queue() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Runs `talk` with the address, the pool in front and the one for `/heavy`, `/wait` and
/// `/closing`, each of one thread. The supervisor's part, to shut the queues down at the end, comes
/// after `talk`.
fn with_pools(talk: impl FnOnce(SocketAddr, &Pool<Targets>, &Pool<Targets>)) {
    with_limited_pools(ProcessLimits::default(), talk);
}

fn with_limited_pools(
    limits: ProcessLimits,
    talk: impl FnOnce(SocketAddr, &Pool<Targets>, &Pool<Targets>),
) {
    let (listener, address) = listen();
    let ((front_receives, to_front), (background_receives, to_background)) = (queue(), queue());
    let supervisors = [&front_receives, &background_receives].map(|fd| fd.try_clone().unwrap());
    let handover = |is_background, to_others| {
        Some(Handover {
            paths: ["/heavy", "/wait", "/closing"].map(|path| path.as_bytes().to_vec()).into(),
            is_background,
            to_others,
        })
    };
    let mut of_front = settings(listener);
    let mut of_background = PoolSettings { listeners: Vec::new(), ..settings(listen().0) };
    (of_front.process_limits, of_background.process_limits) = (limits, limits);
    of_front.handover = handover(false, to_background);
    of_front.listeners.push(Listener::Handover(front_receives));
    of_background.handover = handover(true, to_front);
    of_background.listeners.push(Listener::Handover(background_receives));
    let front = Pool::new(Targets::default(), of_front).unwrap();
    let background = Pool::new(Targets::default(), of_background).unwrap();
    run(&front, 1, true, || {
        run(&background, 1, true, || {
            talk(address, &front, &background);
            for queue in &supervisors {
                let _ = shutdown(queue, Shutdown::Read);
            }
        });
    });
    assert_eq!(front.open_connections() + background.open_connections(), 0);
}

fn seen(pool: &Pool<Targets>) -> Vec<String> {
    pool.application().seen.lock().unwrap().clone()
}

#[test]
fn a_connection_goes_where_its_next_request_is_answered() {
    with_pools(|address, front, background| {
        let mut connection = TcpStream::connect(address).unwrap();
        for target in ["/", "/heavy", "/heavy/1?x", "/heavyweight", "/heavy?x", "/light/heavy"] {
            assert_eq!(ask(&mut connection, target), target);
        }
        assert_eq!(seen(front), ["/", "/heavyweight", "/light/heavy"]);
        assert_eq!(seen(background), ["/heavy", "/heavy/1?x", "/heavy?x"]);
    });
}

#[test]
fn light_requests_are_answered_while_the_background_computes() {
    with_pools(|address, _, background| {
        let mut waiting = TcpStream::connect(address).unwrap();
        send(&mut waiting, "/wait");
        let mut light = TcpStream::connect(address).unwrap();
        for number in 0..100 {
            let target = format!("/light/{number}");
            assert_eq!(ask(&mut light, &target), target);
        }
        background.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut waiting), "/wait");
        assert_eq!(seen(background), ["/wait"]);
    });
}

#[test]
fn a_connection_does_not_wait_where_it_had_a_background_page() {
    with_pools(|address, front, background| {
        let mut kept = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut kept, "/heavy"), "/heavy");
        let mut waiting = TcpStream::connect(address).unwrap();
        send(&mut waiting, "/wait");
        while seen(background).len() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(ask(&mut kept, "/light"), "/light");
        assert_eq!(background.open_connections(), 1);
        assert_eq!(front.open_connections(), 1);
        background.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut waiting), "/wait");
    });
}

#[test]
fn a_connection_does_not_wait_where_the_rest_of_a_body_came_late() {
    with_pools(|address, _, background| {
        let mut kept = TcpStream::connect(address).unwrap();
        let head = "POST /heavy HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n";
        kept.write_all(head.as_bytes()).unwrap();
        kept.write_all(&[b'x'; 66_000]).unwrap();
        assert_eq!(read_answer(&mut kept), "/heavy");
        kept.write_all(&[b'x'; 4_000]).unwrap();
        while background.open_connections() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(ask(&mut kept, "/light"), "/light");
    });
}

#[test]
fn queue_timeout_counts_from_the_arrival_of_the_request() {
    const LIMIT_NS: u64 = 200_000_000;
    let limits = ProcessLimits { queue_ns: LIMIT_NS, ..Default::default() };
    with_limited_pools(limits, |address, _, background| {
        let mut waiting = TcpStream::connect(address).unwrap();
        send(&mut waiting, "/wait");
        let mut late = TcpStream::connect(address).unwrap();
        send(&mut late, "/heavy");
        let mut head = [0; 12];
        late.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 504");
        assert!(!background.application().gate.load(SeqCst));
        background.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut waiting), "/wait");
    });
}

#[test]
fn connections_of_many_clients_go_to_and_fro() {
    with_pools(|address, front, background| {
        std::thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    let mut connection = TcpStream::connect(address).unwrap();
                    for number in 0..100 {
                        let page = if number % 3 == 0 { "heavy" } else { "light" };
                        let target = format!("/{page}/{client}/{number}");
                        assert_eq!(ask(&mut connection, &target), target);
                    }
                });
            }
        });
        assert_eq!((seen(front).len(), seen(background).len()), (8 * 66, 8 * 34));
    });
}

#[test]
fn a_request_that_cannot_be_handed_over_is_answered_where_it_is() {
    with_pools(|address, front, background| {
        let mut connection = TcpStream::connect(address).unwrap();
        // In one packet: the second is read together with the first.
        let both = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /heavy HTTP/1.1\r\nHost: a\r\n\r\n";
        connection.write_all(both.as_bytes()).unwrap();
        assert_eq!(read_answer(&mut connection), "/");
        assert_eq!(read_answer(&mut connection), "/heavy");
        assert_eq!((seen(front).len(), seen(background).len()), (2, 0));
    });
}

#[test]
fn a_queue_that_is_shut_down_loses_no_request() {
    with_pools(|address, front, background| {
        let handover = front.driver.handover.as_ref().unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut connection, "/heavy"), "/heavy");
        shutdown(&handover.to_others, Shutdown::Write).unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut other, "/heavy/2"), "/heavy/2");
        assert_eq!(
            (seen(front), seen(background)),
            (vec!["/heavy/2".into()], vec!["/heavy".into()])
        );
    });
}

#[test]
fn a_process_that_stops_alone_gives_its_connections_back() {
    with_pools(|address, front, background| {
        let mut connection = TcpStream::connect(address).unwrap();
        // The client has the answer, which says that the connection is kept, before the stop.
        assert_eq!(ask(&mut connection, "/closing"), "/closing");
        background.stop(0);
        background.application().gate.store(true, SeqCst);
        assert_eq!(ask(&mut connection, "/light"), "/light");
        assert_eq!(seen(front), ["/light"]);
    });
}

#[test]
fn a_queue_that_is_over_is_looked_at_no_more() {
    with_pools(|address, front, background| {
        shutdown(&background.driver.handover.as_ref().unwrap().to_others, Shutdown::Write).unwrap();
        while !front.acceptor.is_handover_over() {
            std::thread::yield_now();
        }
        let mut connection = TcpStream::connect(address).unwrap();
        for target in ["/heavy", "/light", "/heavy"] {
            assert_eq!(ask(&mut connection, target), target);
        }
        // The background process kept the connection, for want of another.
        assert_eq!(seen(background), ["/heavy", "/light", "/heavy"]);
    });
}

#[test]
fn the_path_of_a_request_is_found_in_its_first_bytes() {
    let found = [
        (&b"GET /report HTTP/1.1\r\n"[..], Some(&b"/report"[..])),
        (b"\r\n\r\nPOST /a/b?c=/d HTTP/1.1\r\n", Some(b"/a/b")),
        (b"GET /rep", None),
        (b"GET", None),
        (b"", None),
        (b"OPTIONS * HTTP/1.1\r\n", None),
        (b"GET http://a/report HTTP/1.1\r\n", None),
        (b"GET /old\r\n", Some(b"/old")),
    ];
    for (seen, expected) in found {
        assert_eq!(path(seen), expected, "{:?}", String::from_utf8_lossy(seen));
    }
    let long = [b"GET /", &[b'x'; SEEN_BYTES][..]].concat();
    assert_eq!(path(&long[..SEEN_BYTES]), Some(&long[4..SEEN_BYTES]));
}
