//! Responses that go out in bursts: that they wait, and that they do not wait for long. The tests
//! take the turns and the monitor's part themselves, on real sockets.

use crate::pool::poller::PollBuffers;
use crate::pool::scheduling::Situation;
use crate::pool::tests::{Targets, ask, listen, read_answer, run, send, settings};
use crate::pool::worker::Worker;
use crate::pool::*;
use crate::stats::LogForm;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn pool() -> (Pool<Targets>, SocketAddr) {
    let (listener, address) = listen();
    (Pool::new(Targets::default(), settings(listener)).unwrap(), address)
}

/// Sends each target on a connection of its own.
fn send_all<const N: usize>(address: SocketAddr, targets: [&str; N]) -> [TcpStream; N] {
    targets.map(|target| {
        let mut connection = TcpStream::connect(address).unwrap();
        send(&mut connection, target);
        connection
    })
}

/// Runs `count` requests, with a batch open since `since_ns` or as it is (`None`).
fn run_requests(
    pool: &Pool<Targets>,
    count: usize,
    since_ns: impl Into<Option<u64>>,
    worker: &mut Worker<Targets>,
) {
    let since_ns = since_ns.into();
    let mut buffers = PollBuffers::default();
    while pool.application().seen.lock().unwrap().len() < count {
        pool.poller.poll_once(&mut buffers);
        while let Some((ready, _)) = pool.scheduler.queue.pop() {
            since_ns.inspect(|since_ns| worker.state.deferred.open(*since_ns));
            worker.serve(ready.connection);
        }
    }
}

fn end_batch(pool: &Pool<Targets>, worker: &mut Worker<Targets>) {
    let slot = pool.scheduler.idle.join();
    worker.end_batch(&slot);
    pool.scheduler.idle.leave(&slot);
}

/// The monitor's handling of other threads' responses.
fn send_overdue(pool: &Pool<Targets>) {
    Worker::new(pool, None).send_overdue(now_ns());
}

fn has_answer(connection: &TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    let peeked = connection.peek(&mut [0]);
    connection.set_nonblocking(false).unwrap();
    !peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn responses_go_out_at_the_end_of_the_burst() {
    let (pool, address) = pool();
    let mut thread = ();
    let mut worker = Worker::new(&pool, Some(&mut thread));
    let mut connections = send_all(address, ["/1", "/2"]);
    run_requests(&pool, 2, now_ns(), &mut worker);
    assert!(!connections.iter().any(has_answer));
    assert!(pool.requests().rows().is_empty(), "a request ends when its response is out");
    end_batch(&pool, &mut worker);
    assert_eq!(connections.each_mut().map(read_answer), ["/1", "/2"]);
    assert_eq!(pool.requests().rows().len(), 2);
    assert!(!worker.state.deferred.is_open());
}

#[test]
fn the_monitor_leaves_alone_what_is_not_overdue() {
    let (pool, address) = pool();
    let mut thread = ();
    let mut worker = Worker::new(&pool, Some(&mut thread));
    let connections = send_all(address, ["/1"]);
    run_requests(&pool, 1, u64::MAX, &mut worker);
    send_overdue(&pool);
    assert!(!connections.iter().any(has_answer));
}

#[test]
fn what_is_held_behind_a_long_request_goes_out_and_on_without_its_thread() {
    let (pool, address) = pool();
    let mut thread = ();
    let mut stuck = Worker::new(&pool, Some(&mut thread));
    let mut connections = send_all(address, ["/1"]);
    run_requests(&pool, 1, 1, &mut stuck);
    send_overdue(&pool);
    assert_eq!(read_answer(&mut connections[0]), "/1");
    run(&pool, 1, true, || assert_eq!(ask(&mut connections[0], "/2"), "/2"));
}

#[test]
fn a_complete_response_goes_out_before_the_application_is_done() {
    let (pool, address) = pool();
    let mut connections = send_all(address, ["/closing"]);
    let mut thread = ();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let mut worker = Worker::new(&pool, Some(&mut thread));
            run_requests(&pool, 1, 1, &mut worker);
            end_batch(&pool, &mut worker);
        });
        while !pool.application().waiting.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(!has_answer(&connections[0]));
        send_overdue(&pool);
        assert_eq!(read_answer(&mut connections[0]), "/closing");
        pool.application().gate.store(true, SeqCst);
        stuck.join().unwrap();
        assert!(!has_answer(&connections[0]), "once");
    });
    run(&pool, 1, true, || assert_eq!(ask(&mut connections[0], "/2"), "/2"));
}

#[test]
fn nothing_is_held_for_a_thread_that_runs_one_request_for_ever() {
    let (pool, address) = pool();
    let mut thread = ();
    let mut worker = Worker::new(&pool, Some(&mut thread));
    worker.state.deferred.open(1);
    send_overdue(&pool);
    assert!(!worker.state.deferred.is_open(), "the monitor may sleep");
    let mut connections = send_all(address, ["/1"]);
    run_requests(&pool, 1, None, &mut worker);
    assert_eq!(read_answer(&mut connections[0]), "/1");
}

/// Two requests in one write.
fn pipeline(address: SocketAddr, first: &str, second: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    let head = "HTTP/1.1\r\nHost: a\r\n\r\n";
    connection.write_all(format!("GET {first} {head}GET {second} {head}").as_bytes()).unwrap();
    connection
}

#[test]
fn a_long_request_behind_a_held_response_stops_nobody_else() {
    let (pool, address) = pool();
    // Long enough for bursts.
    pool.scheduler.set_averages(60_000, 0);
    let _long = pipeline(address, "/spin", "/wait");
    let mut others = send_all(address, ["/spin"; 4]);
    run(&pool, 3, true, || {
        while !pool.application().waiting.load(SeqCst) {
            std::thread::yield_now();
        }
        assert_eq!(others.each_mut().map(read_answer), ["/spin"; 4]);
        let mut late = TcpStream::connect(address).unwrap();
        late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(ask(&mut late, "/late"), "/late");
        pool.application().gate.store(true, SeqCst);
    });
}

#[test]
fn who_is_late_is_no_reason_to_refuse_what_follows_a_held_response() {
    let (pool, address) = pool();
    let mut thread = ();
    let mut worker = Worker::new(&pool, Some(&mut thread));
    let mut connection = pipeline(address, "/1", "/2");
    run_requests(&pool, 1, now_ns(), &mut worker);
    worker.state.queue_timed_out = true;
    end_batch(&pool, &mut worker);
    assert_eq!(read_answer(&mut connection), "/1");
    assert_eq!(*pool.application().seen.lock().unwrap(), ["/1", "/2"]);
}

#[test]
fn what_is_out_is_not_held() {
    let (pool, address) = pool();
    pool.application().gate.store(true, SeqCst);
    let mut thread = ();
    let mut worker = Worker::new(&pool, Some(&mut thread));
    let mut connections = send_all(address, ["/preempted"]);
    run_requests(&pool, 1, now_ns(), &mut worker);
    assert_eq!(read_answer(&mut connections[0]), "/preempted");
    worker.send_overdue(u64::MAX);
    assert!(pool.scheduler.is_queue_empty(), "no connection was deferred");
    assert_eq!(pool.requests().rows().len(), 1, "the request is over");
}

#[test]
fn who_holds_the_gil_does_not_wait_for_a_rest() {
    let (pool, address) = pool();
    let mut connections = send_all(address, ["/resting"]);
    let mut thread = ();
    std::thread::scope(|scope| {
        let resting = scope.spawn(|| {
            let mut worker = Worker::new(&pool, Some(&mut thread));
            run_requests(&pool, 1, None, &mut worker);
        });
        while !pool.application().waiting.load(SeqCst) {
            std::thread::yield_now();
        }
        let is_with_monitor = pool.deferred.are_used();
        let received = connections[0].read(&mut [0; 100]);
        pool.application().gate.store(true, SeqCst);
        assert!(is_with_monitor && received.unwrap() > 0);
        resting.join().unwrap();
        assert!(!pool.deferred.are_used());
    });
}

#[test]
fn what_the_monitor_sends_is_in_the_access_log() {
    let (listener, address) = listen();
    let mut log = memory_file();
    let file = log.try_clone().unwrap().into();
    let access_log = Some(AccessLog { file, form: LogForm::Common });
    let settings = PoolSettings { access_log, ..settings(listener) };
    let pool = Pool::new(Targets::default(), settings).unwrap();
    let mut thread = ();
    let mut stuck = Worker::new(&pool, Some(&mut thread));
    let _connections = send_all(address, ["/1"]);
    run_requests(&pool, 1, 1, &mut stuck);
    send_overdue(&pool);
    let mut lines = String::new();
    log.seek(SeekFrom::Start(0)).unwrap();
    log.read_to_string(&mut lines).unwrap();
    assert!(lines.contains("GET /1 "), "{lines}");
}

/// A file without a name.
fn memory_file() -> std::fs::File {
    // SAFETY: a NUL-terminated name.
    let fd = unsafe { libc::memfd_create(c"access log".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: a descriptor of our own.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}
