//! The pool under its limits: reports to the supervisor, answers with 504, and accepting after a
//! pause. Sockets, threads and the monitor are real; there is no Python.

use crate::pool::tests::{Targets, ask, listen, occupy, read_answer, run, send, settings};
use crate::pool::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const LIMIT_NS: u64 = 40_000_000;

/// A pool with limits, and the supervisor's end of its control socket.
fn limited(limits: ProcessLimits) -> (Pool<Targets>, SocketAddr, UnixDatagram, UnixDatagram) {
    let (listener, address) = listen();
    let (supervisor, worker) = UnixDatagram::pair().unwrap();
    let limits = ProcessLimits { control_fd: worker.as_raw_fd(), ..limits };
    let pool = Pool::new(
        Targets::default(),
        PoolSettings { process_limits: limits, ..settings(listener) },
    );
    (pool.unwrap(), address, supervisor, worker)
}

fn next_event(supervisor: &UnixDatagram) -> String {
    let mut event = [0; 1_000];
    supervisor.set_nonblocking(false).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let count = supervisor.recv(&mut event).expect("an event");
    String::from_utf8_lossy(&event[..count]).into_owned()
}

fn assert_silent(supervisor: &UnixDatagram) {
    supervisor.set_nonblocking(true).unwrap();
    let error = supervisor.recv(&mut [0; 1_000]).expect_err("no event");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

/// As long as the monitor needs to look several times.
fn wait_for_sweeps() {
    std::thread::sleep(Duration::from_nanos(4 * LIMIT_NS));
}

/// A response that is the connection's last.
fn read_status_to_end(connection: &mut TcpStream) -> String {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("a response, then an end without a reset");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    answer[9..12].to_owned()
}

#[test]
fn after_the_maximum_of_requests_the_supervisor_is_told_once_and_serving_goes_on() {
    let limits = ProcessLimits { maximum_requests: 3, ..ProcessLimits::default() };
    let (pool, address, supervisor, _worker) = limited(limits);
    run(&pool, 2, true, || {
        let mut connection = TcpStream::connect(address).unwrap();
        ask(&mut connection, "/1");
        ask(&mut connection, "/2");
        assert_silent(&supervisor);
        ask(&mut connection, "/3");
        assert!(next_event(&supervisor).contains("\"reason\": \"maximum_requests\""));
        for _ in 0..10 {
            assert_eq!(ask(&mut connection, "/more"), "/more");
        }
        assert_silent(&supervisor);
    });
}

#[test]
fn a_process_is_inactive_only_after_its_requests_have_ended() {
    let limits = ProcessLimits { inactivity_ns: LIMIT_NS, ..ProcessLimits::default() };
    let (pool, address, supervisor, _worker) = limited(limits);
    run(&pool, 1, true, || {
        wait_for_sweeps();
        assert_silent(&supervisor);
        let mut busy = occupy(&pool, address);
        wait_for_sweeps();
        assert_silent(&supervisor);
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut busy), "/wait");
        assert!(next_event(&supervisor).contains("\"reason\": \"inactivity_timeout\""));
    });
}

#[test]
fn a_request_that_runs_too_long_is_told_while_it_runs() {
    let limits = ProcessLimits { request_ns: LIMIT_NS, ..ProcessLimits::default() };
    let (pool, address, supervisor, _worker) = limited(limits);
    run(&pool, 2, true, || {
        let mut busy = occupy(&pool, address);
        let event = next_event(&supervisor);
        assert!(event.contains("\"reason\": \"request_timeout\""), "{event}");
        assert!(event.contains("\"detail\": \"GET /wait has run for 0."), "{event}");
        let mut other = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut other, "/other"), "/other");
        wait_for_sweeps();
        assert_silent(&supervisor);
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut busy), "/wait");
    });
}

#[test]
fn the_monitor_answers_504_while_all_threads_are_stuck() {
    let limits = ProcessLimits { queue_ns: LIMIT_NS, ..ProcessLimits::default() };
    let (pool, address, ..) = limited(limits);
    run(&pool, 2, true, || {
        let connect = || TcpStream::connect(address).unwrap();
        let mut kept: Vec<_> = (0..100).map(|_| connect()).collect();
        let mut partial = connect();
        kept.iter_mut().chain([&mut partial]).for_each(|one| drop(ask(one, "/before")));
        let mut busy = [occupy(&pool, address), connect()];
        send(&mut busy[1], "/wait");
        while pool.application().seen.lock().unwrap().iter().filter(|it| *it == "/wait").count() < 2
        {
            std::thread::yield_now();
        }
        kept.iter_mut().for_each(|one| send(one, "/late"));
        partial.write_all(b"GET /partial HTTP/1.1\r\n").unwrap();
        for one in &mut kept {
            assert_eq!(read_status_to_end(one), "504");
        }
        pool.application().gate.store(true, SeqCst);
        assert_eq!(busy.each_mut().map(read_answer), ["/wait", "/wait"]);
        partial.write_all(b"Host: a\r\n\r\n").unwrap();
        assert_eq!(read_answer(&mut partial), "/partial");
    });
    assert!(!pool.application().seen.lock().unwrap().contains(&"/late".into()));
    let rows = pool.requests();
    let (_, late, _) = rows.rows().into_iter().find(|row| row.0 == b"/late").unwrap();
    assert_eq!((late.requests, late.errors), (100, 100));
}

#[test]
fn who_takes_up_a_late_request_answers_504() {
    let limits = ProcessLimits { queue_ns: LIMIT_NS, ..ProcessLimits::default() };
    let (pool, address, ..) = limited(limits);
    run(&pool, 1, false, || {
        let mut connections = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        connections.iter_mut().for_each(|one| drop(ask(one, "/before")));
        let mut busy = occupy(&pool, address);
        // Both are noticed at the same time, and the first keeps the only thread for too long.
        send(&mut connections[0], "/long");
        send(&mut connections[1], "/late");
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut busy), "/wait");
        assert_eq!(read_answer(&mut connections[0]), "/long");
        assert_eq!(read_status_to_end(&mut connections[1]), "504");
    });
}

#[test]
fn a_pause_of_accepting_ends_though_nothing_was_closed() {
    let (listener, address) = listen();
    let pool = Pool::new(Targets::default(), settings(listener)).unwrap();
    run(&pool, 1, true, || {
        pool.acceptor.pause_now();
        let mut connection = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut connection, "/after"), "/after");
    });
}

#[test]
fn connections_beyond_the_maximum_are_accepted_as_others_close() {
    let (listener, address) = listen();
    let settings = PoolSettings { max_connections: 2, ..settings(listener) };
    let pool = Pool::new(Targets::default(), settings).unwrap();
    run(&pool, 2, true, || {
        std::thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    for _ in 0..25 {
                        let mut connection = TcpStream::connect(address).unwrap();
                        let target = format!("/{client}");
                        assert_eq!(ask(&mut connection, &target), target);
                    }
                });
            }
        });
    });
}

/// Whether the server has closed the connection, which has nothing to read.
fn is_closed(connection: &mut TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    match connection.read(&mut [0]) {
        Ok(0) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_without_a_request_give_way_and_no_others_do() {
    let (listener, address) = listen();
    let settings = PoolSettings { max_connections: 8, ..settings(listener) };
    let pool = Pool::new(Targets::default(), settings).unwrap();
    run(&pool, 2, true, || {
        let connect = || TcpStream::connect(address).unwrap();
        let mut kept = [connect(), connect(), connect()];
        kept.iter_mut().for_each(|one| drop(ask(one, "/before")));
        kept[2].write_all(b"GET /second HTTP/1.1\r\n").unwrap();
        let mut silent = connect();
        let mut partial = [connect(), connect(), connect()];
        partial.iter_mut().for_each(|one| one.write_all(b"GET / HTTP/1.1\r\n").unwrap());
        let mut busy = occupy(&pool, address);
        assert_eq!(pool.open_connections(), 8);
        // The one that has waited longest is closed, and makes room.
        let mut new = connect();
        assert_eq!(ask(&mut new, "/new"), "/new");
        assert!(is_closed(&mut silent));
        assert!(!partial.each_mut().map(is_closed).contains(&true));
        // Further ones have all others give way that have no request.
        let mut more = [connect(), connect(), connect()];
        more.iter_mut().for_each(|one| drop(ask(one, "/more")));
        assert_eq!(partial.each_mut().map(is_closed), [true; 3]);
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut busy), "/wait");
        kept[2].write_all(b"Host: a\r\n\r\n").unwrap();
        assert_eq!(read_answer(&mut kept[2]), "/second");
        kept[..2].iter_mut().for_each(|one| assert_eq!(ask(one, "/kept"), "/kept"));
    });
    assert_eq!(pool.acceptor.unreported_evictions(), 3, "the first is on stderr");
}

#[test]
fn a_connection_with_unread_bytes_does_not_give_way() {
    let (listener, address) = listen();
    let pool = Pool::new(Targets::default(), settings(listener)).unwrap();
    let mut clients = [(); 3].map(|()| {
        let client = TcpStream::connect(address).unwrap();
        assert!(pool.acceptor.accept_one());
        client
    });
    clients[0].write_all(b"GET").unwrap();
    assert!(!pool.acceptor.make_room());
    std::thread::sleep(Duration::from_millis(300));
    assert!(pool.acceptor.make_room());
    assert_eq!(clients.each_mut().map(is_closed), [false, true, false]);
    assert!(pool.acceptor.make_room());
    assert!(!pool.acceptor.make_room());
    assert_eq!(clients.each_mut().map(is_closed), [false, true, true]);
    assert_eq!(pool.open_connections(), 1);
}

#[test]
fn a_connection_expires_where_the_only_thread_polls() {
    let (listener, address) = listen();
    let mut settings = settings(listener);
    settings.timeouts.keep_alive_ns = LIMIT_NS;
    let pool = Pool::new(Targets::default(), settings).unwrap();
    run(&pool, 1, true, || {
        // The monitor has gone to sleep for want of connections.
        wait_for_sweeps();
        let mut connection = TcpStream::connect(address).unwrap();
        assert_eq!(connection.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn of_two_pools_on_one_listener_the_free_one_takes_every_connection() {
    let (listener, address) = listen();
    let pools = [listener.try_clone().unwrap(), listener]
        .map(|listener| PoolSettings { shared_listeners: true, ..settings(listener) })
        .map(|settings| Pool::new(Targets::default(), settings).unwrap());
    let [one, other] = &pools;
    run(one, 1, true, || {
        run(other, 1, true, || {
            let mut busy = TcpStream::connect(address).unwrap();
            send(&mut busy, "/wait");
            let stuck = loop {
                let is_stuck =
                    |pool: &&Pool<Targets>| pool.application().seen.lock().unwrap().len() == 1;
                if let Some(stuck) = [one, other].into_iter().find(is_stuck) {
                    break stuck;
                }
                std::thread::yield_now();
            };
            std::thread::scope(|scope| {
                for client in 0..8 {
                    scope.spawn(move || {
                        for number in 0..50 {
                            let mut connection = TcpStream::connect(address).unwrap();
                            let target = format!("/{client}/{number}");
                            assert_eq!(ask(&mut connection, &target), target);
                        }
                    });
                }
            });
            assert_eq!(stuck.application().seen.lock().unwrap().len(), 1);
            stuck.application().gate.store(true, SeqCst);
            assert_eq!(read_answer(&mut busy), "/wait");
        });
    });
}

#[test]
fn pools_that_share_a_listener_share_the_connections() {
    let (listener, address) = listen();
    let pools = [(); 4]
        .map(|()| PoolSettings {
            shared_listeners: true,
            ..settings(listener.try_clone().unwrap())
        })
        .map(|settings| Pool::new(Targets::default(), settings).unwrap());
    drop(listener);
    let [one, two, three, four] = &pools;
    let talk = || {
        // One after the other, each kept open: without turns the first to wait would get them all.
        let kept: Vec<_> = (0..200)
            .map(|_| {
                let mut connection = TcpStream::connect(address).unwrap();
                ask(&mut connection, "/");
                connection
            })
            .collect();
        for pool in &pools {
            let open = pool.open_connections();
            assert!((10..=120).contains(&open), "{open} of {}", kept.len());
        }
    };
    run(one, 1, true, || run(two, 1, true, || run(three, 1, true, || run(four, 1, true, talk))));
}
