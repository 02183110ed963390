//! The pool with an application in Rust: whole conversations over real sockets, no Python.

use crate::connection::table::{MAX_CONNECTIONS, Unowned};
use crate::http::Response;
use crate::pool::scheduling::Situation;
use crate::pool::*;
use crate::request::RequestContext;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// More than the kernel keeps for both ends.
pub const LARGE_BYTES: usize = 20_000_000;

/// Answers with the target. `/panic` panics.
///
/// `/wait` keeps its thread until `gate` opens, `/closing` and
/// `/preempted` do so once their response is complete, `/long` for 0.1 s, `/spin` for 50 µs.
/// `/large` is answered with `LARGE_BYTES`, and so is `/growing`, in two blocks between which its
/// thread waits.
#[derive(Default)]
pub struct Targets {
    pub gate: AtomicBool,
    /// A thread waits at the gate.
    pub waiting: AtomicBool,
    /// The targets in the order of their arrival.
    pub seen: Mutex<Vec<String>>,
}

impl Application for Targets {
    type Thread = ();

    fn handle(&self, (): &mut (), context: &mut RequestContext) {
        let (head, bytes) = context.head();
        let mut target = bytes[head.target.clone()].to_vec();
        self.seen.lock().unwrap().push(String::from_utf8(target.clone()).unwrap());
        if target == b"/long" {
            std::thread::sleep(Duration::from_millis(100));
        }
        if target == b"/wait" {
            self.pass_gate();
        }
        if target == b"/panic" {
            panic!("requested by a test");
        }
        if target == b"/spin" {
            let end_ns = now_ns() + 50_000;
            while now_ns() < end_ns {
                std::hint::spin_loop();
            }
        }
        let is_resting = target == b"/resting";
        let is_growing = target == b"/growing";
        if target == b"/large" || is_resting || is_growing {
            target.resize(LARGE_BYTES, b'x');
        }
        let mut response = Response::default();
        response.begin(b"200 OK").unwrap();
        context.send_head(&response, Some(target.len() as u64));
        if is_growing {
            let (first, rest) = target.split_at(LARGE_BYTES / 2);
            context.send_large_data(first);
            self.pass_gate();
            context.send_large_data(rest);
        } else {
            context.send_data(&target);
        }
        if target == b"/closing" {
            context.transmit_last();
            self.pass_gate();
        }
        if is_resting {
            context.transmit_last();
            context.prepare_for_preemption();
            self.pass_gate();
        }
        context.finish(true);
        if target == b"/preempted" {
            context.prepare_for_preemption();
            self.pass_gate();
        }
    }
}

impl Targets {
    fn pass_gate(&self) {
        self.waiting.store(true, SeqCst);
        while !self.gate.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub fn settings(listener: TcpListener) -> PoolSettings {
    PoolSettings {
        listeners: vec![Listener::Tcp(listener)],
        shared_listeners: false,
        handover: None,
        access_log: None,
        parallel: false,
        timeouts: Timeouts {
            keep_alive_ns: 75_000_000_000,
            head_ns: 30_000_000_000,
            body_ns: 60_000_000_000,
            write_ns: 60_000_000_000,
        },
        limits: Default::default(),
        max_connections: MAX_CONNECTIONS,
        preamble: Preamble::default(),
        process_limits: ProcessLimits::default(),
        reported: false,
    }
}

pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Runs `talk` against a pool of `threads`, then stops it; returns how many requests it counted.
fn with_pool(threads: usize, talk: impl FnOnce(&Pool<Targets>, SocketAddr)) -> u64 {
    let (listener, address) = listen();
    let pool = Pool::new(Targets::default(), settings(listener)).unwrap();
    run(&pool, threads, true, || talk(&pool, address));
    assert_eq!(pool.open_connections(), 0);
    pool.requests().rows().iter().map(|row| row.1.requests).sum()
}

/// Runs `talk` while the pool has `threads`, and perhaps its monitor; then stops it.
pub fn run(pool: &Pool<Targets>, threads: usize, monitor: bool, talk: impl FnOnce()) {
    std::thread::scope(|scope| {
        if monitor {
            scope.spawn(|| pool.monitor());
        }
        for _ in 0..threads {
            scope.spawn(|| pool.work(&mut ()));
        }
        // A failed test ends too.
        let _stop = StopOnDrop(pool);
        talk();
    });
}

#[test]
fn a_connection_that_somebody_can_claim_is_registered() {
    with_pool(1, |pool, address| {
        let (is_over, claimed) = (AtomicBool::new(false), AtomicBool::new(false));
        // As the monitor, which claims what has passed its deadline at any time.
        let claim = || {
            while !is_over.load(SeqCst) {
                for mut owned in pool.table.slots().filter_map(Unowned::claim) {
                    let again = owned.register();
                    owned.readable = true;
                    pool.scheduler.submit(owned);
                    claimed.store(true, SeqCst);
                    let error = again.expect_err("it was not registered");
                    assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(claim);
            for _ in 0..2_000 {
                let mut connection = TcpStream::connect(address).unwrap();
                assert_eq!(ask(&mut connection, "/"), "/");
            }
            is_over.store(true, SeqCst);
        });
        assert!(claimed.load(SeqCst));
    });
}

struct StopOnDrop<'a>(&'a Pool<Targets>);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.application().gate.store(true, SeqCst);
            self.0.abort();
        } else {
            self.0.stop(0);
        }
    }
}

pub fn send(connection: &mut TcpStream, target: &str) {
    // One write: several small ones would wait for acknowledgements (RFC 896).
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
}

pub fn ask(connection: &mut TcpStream, target: &str) -> String {
    send(connection, target);
    read_answer(connection)
}

pub fn read_answer(connection: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    connection.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn every_request_is_answered_once_and_in_order() {
    for threads in [1, 4] {
        let requests = with_pool(threads, |_, address| {
            std::thread::scope(|scope| {
                for client in 0..8 {
                    scope.spawn(move || {
                        let mut connection = TcpStream::connect(address).unwrap();
                        for number in 0..200 {
                            let target = format!("/{client}/{number}");
                            assert_eq!(ask(&mut connection, &target), target);
                        }
                        // Long enough for bursts.
                        for _ in 0..200 {
                            assert_eq!(ask(&mut connection, "/spin"), "/spin");
                        }
                    });
                }
            });
        });
        assert_eq!(requests, 3200);
    }
}

#[test]
fn a_panic_closes_its_connection_and_the_thread_goes_on() {
    let requests = with_pool(1, |_, address| {
        let mut kept = TcpStream::connect(address).unwrap();
        for _ in 0..3 {
            let mut connection = TcpStream::connect(address).unwrap();
            send(&mut connection, "/panic");
            assert_eq!(connection.read(&mut [0]).unwrap(), 0);
            assert_eq!(ask(&mut kept, "/kept"), "/kept");
        }
    });
    assert_eq!(requests, 3);
}

#[test]
fn connections_that_come_and_go_reuse_slots_safely() {
    let requests = with_pool(4, |_, address| {
        std::thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    for number in 0..150 {
                        let mut connection = TcpStream::connect(address).unwrap();
                        let target = format!("/{client}/{number}");
                        if number % 3 == 0 {
                            // Gone before, or while, it is answered.
                            send(&mut connection, "/gone");
                        } else {
                            assert_eq!(ask(&mut connection, &target), target);
                        }
                    }
                });
            }
        });
    });
    assert!(requests >= 800, "{requests}");
}

#[test]
fn the_monitor_finds_a_thread_when_the_only_active_one_is_stuck() {
    with_pool(2, |pool, address| {
        let mut stuck = TcpStream::connect(address).unwrap();
        // Short requests first, so that the pool has come to rest on one active thread.
        for _ in 0..100 {
            ask(&mut stuck, "/short");
        }
        send(&mut stuck, "/wait");
        let mut other = TcpStream::connect(address).unwrap();
        for _ in 0..10 {
            assert_eq!(ask(&mut other, "/other"), "/other");
        }
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut stuck), "/wait");
    });
}

#[test]
fn who_may_lose_its_core_has_answered_and_is_not_waited_for() {
    let (listener, address) = listen();
    let pool = Pool::new(Targets::default(), settings(listener)).unwrap();
    pool.scheduler.set_averages(0, 2_000_000);
    // Nobody else would find out that no thread polls.
    let monitor = false;
    run(&pool, 2, monitor, || {
        let mut preempted = TcpStream::connect(address).unwrap();
        send(&mut preempted, "/preempted");
        assert_eq!(read_answer(&mut preempted), "/preempted");
        let mut other = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut other, "/other"), "/other");
        pool.application().gate.store(true, SeqCst);
        assert_eq!(ask(&mut preempted, "/next"), "/next");
    });
}

/// The monitor hands an overdue connection to a thread that rests, while another sleeps in epoll.
#[test]
fn who_is_woken_for_a_connection_does_not_leave_it_to_who_polls() {
    let (listener, address) = listen();
    let mut settings = settings(listener);
    settings.timeouts.keep_alive_ns = 1;
    let pool = Pool::new(Targets::default(), settings).unwrap();
    run(&pool, 2, true, || {
        while !(pool.scheduler.is_polling() && pool.scheduler.has_parked()) {
            std::thread::yield_now();
        }
        let mut unused = TcpStream::connect(address).unwrap();
        unused.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(unused.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_client_reads_a_large_body_while_the_rest_is_framed() {
    with_pool(1, |pool, address| {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        send(&mut connection, "/growing");
        assert_eq!(connection.peek(&mut [0]).unwrap(), 1);
        pool.application().gate.store(true, SeqCst);
        let body = read_answer(&mut connection);
        let filling = body.strip_prefix("/growing").unwrap();
        assert!(filling.bytes().all(|byte| byte == b'x'));
    });
}

/// Occupies a thread; returns once its request is in the application.
pub fn occupy(pool: &Pool<Targets>, address: SocketAddr) -> TcpStream {
    let mut busy = TcpStream::connect(address).unwrap();
    send(&mut busy, "/wait");
    while !pool.application().waiting.load(SeqCst) {
        std::thread::yield_now();
    }
    busy
}

#[test]
fn a_request_is_noticed_no_earlier_than_the_one_before_it_has_ended() {
    with_pool(2, |pool, address| {
        let mut connection = occupy(pool, address);
        // The other thread sees its event, and leaves it to the thread that is busy with the
        // connection.
        send(&mut connection, "/next");
        std::thread::sleep(Duration::from_millis(50));
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut connection), "/wait");
        assert_eq!(read_answer(&mut connection), "/next");
        assert_eq!(ask(&mut connection, "/last"), "/last");
        let paths = pool.requests();
        let rows = paths.rows();
        let [first, next] = [b"/wait", b"/next"].map(|name: &[u8; 5]| {
            let (_, row, _) = rows.iter().find(|row| row.0 == name).unwrap();
            row.response.read().sum_ns
        });
        assert!(next < first, "{next} ns with the {first} ns of the one before in it");
    });
}

/// The one response that is left, which must say that it is the last.
fn read_last_answer(connection: &mut TcpStream) -> String {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("a response, then an end without a reset");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
    assert!(head.contains("\r\nConnection: close"), "{head}");
    body.to_owned()
}

#[test]
fn stopping_answers_what_nobody_has_looked_at_yet() {
    let requests = with_pool(1, |pool, address| {
        let mut kept = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut kept, "/kept"), "/kept");
        let mut busy = occupy(pool, address);
        // The only thread is in the application: no event is seen, nothing is accepted.
        send(&mut kept, "/kept/again");
        let mut queued: Vec<_> = (0..12).map(|_| TcpStream::connect(address).unwrap()).collect();
        for (number, connection) in queued.iter_mut().enumerate() {
            send(connection, &format!("/{number}"));
        }
        let mut silent = TcpStream::connect(address).unwrap();
        pool.stop(0);
        assert!(TcpStream::connect(address).is_err());
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_last_answer(&mut busy), "/wait");
        assert_eq!(read_last_answer(&mut kept), "/kept/again");
        for (number, connection) in queued.iter_mut().enumerate() {
            assert_eq!(read_last_answer(connection), format!("/{number}"));
        }
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!(requests, 15);
}

#[test]
fn what_a_stopping_server_accepts_has_not_waited_since_the_machine_began() {
    let begun_ns = now_ns();
    let (listener, address) = listen();
    let pool = Pool::new(Targets::default(), settings(listener)).unwrap();
    run(&pool, 1, true, || {
        let mut busy = occupy(&pool, address);
        let mut queued = TcpStream::connect(address).unwrap();
        send(&mut queued, "/queued");
        pool.stop(0);
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_last_answer(&mut busy), "/wait");
        assert_eq!(read_last_answer(&mut queued), "/queued");
    });
    let paths = pool.requests();
    let rows = paths.rows();
    let (_, row, _) = rows.iter().find(|row| row.0 == b"/queued").unwrap();
    assert!(row.response.read().sum_ns <= now_ns() - begun_ns);
}

#[test]
fn a_request_behind_the_last_response_does_not_destroy_it() {
    with_pool(1, |pool, address| {
        let mut busy = occupy(pool, address);
        send(&mut busy, "/too/late");
        pool.stop(0);
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_last_answer(&mut busy), "/wait");
    });
}

#[test]
fn stopping_answers_what_was_sent_and_closes_the_rest() {
    let requests = with_pool(2, |pool, address| {
        let mut idle = TcpStream::connect(address).unwrap();
        let mut busy = TcpStream::connect(address).unwrap();
        ask(&mut idle, "/idle");
        send(&mut busy, "/wait");
        while pool.scheduler.is_polling() && pool.scheduler.turns() < 2 {
            std::thread::yield_now();
        }
        pool.stop(0);
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
        pool.application().gate.store(true, SeqCst);
        assert_eq!(read_answer(&mut busy), "/wait");
        assert_eq!(busy.read(&mut [0]).unwrap(), 0);
        assert!(TcpStream::connect(address).is_err());
    });
    assert_eq!(requests, 2);
}

#[test]
fn stopping_waits_for_the_rest_of_a_head() {
    let requests = with_pool(1, |pool, address| {
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET /slow HTTP/1.1\r\nHo").unwrap();
        while pool.open_connections() == 0 || pool.scheduler.turns() == 0 {
            std::thread::yield_now();
        }
        pool.stop(0);
        slow.write_all(b"st: a\r\n\r\n").unwrap();
        assert_eq!(read_last_answer(&mut slow), "/slow");
    });
    assert_eq!(requests, 1);
}

#[test]
fn an_idle_connection_can_be_kept_for_one_more_request() {
    let requests = with_pool(1, |pool, address| {
        let mut next = TcpStream::connect(address).unwrap();
        let mut idle = TcpStream::connect(address).unwrap();
        ask(&mut next, "/first");
        ask(&mut idle, "/only");
        pool.stop(60_000_000_000);
        assert!(TcpStream::connect(address).is_err());
        send(&mut next, "/second");
        assert_eq!(read_last_answer(&mut next), "/second");
        // Its end is sent before it is forgotten.
        while pool.open_connections() > 1 {
            std::thread::yield_now();
        }
        assert_eq!(pool.open_connections(), 1);
        pool.stop(0);
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!(requests, 3);
}

/// The only thread must not turn round and round with connections that have nothing to say.
#[test]
fn a_kept_idle_connection_takes_no_thread_from_others() {
    let requests = with_pool(1, |pool, address| {
        let mut idle = TcpStream::connect(address).unwrap();
        let mut next = TcpStream::connect(address).unwrap();
        ask(&mut idle, "/only");
        ask(&mut next, "/first");
        pool.stop(60_000_000_000);
        next.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        send(&mut next, "/second");
        assert_eq!(read_last_answer(&mut next), "/second");
        pool.stop(0);
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!(requests, 3);
}

#[test]
fn the_beginning_of_a_head_takes_no_thread_from_others_at_the_end() {
    let requests = with_pool(1, |pool, address| {
        let mut slow = TcpStream::connect(address).unwrap();
        let mut next = TcpStream::connect(address).unwrap();
        ask(&mut slow, "/slow");
        ask(&mut next, "/first");
        slow.write_all(b"GET /slow HTTP/1.1\r\nHo").unwrap();
        pool.stop(60_000_000_000);
        next.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        send(&mut next, "/second");
        assert_eq!(read_last_answer(&mut next), "/second");
        slow.write_all(b"st: a\r\n\r\n").unwrap();
        assert_eq!(read_last_answer(&mut slow), "/slow");
    });
    assert_eq!(requests, 4);
}
