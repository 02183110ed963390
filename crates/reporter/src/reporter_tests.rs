use super::*;
use headway_telemetry::Value;
use headway_telemetry::datagram::Datagram;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A source with a counter that the test sets, as a server counts requests.
#[derive(Default)]
struct Counter {
    now: AtomicU64,
    collected: AtomicU64,
    reported: AtomicU64,
}

impl Source for Counter {
    fn collect(&self, tick: &mut Tick) {
        let now = self.now.load(SeqCst);
        self.collected.store(now, SeqCst);
        tick.fields.count(id::REQUEST_COUNT, now - self.reported.load(SeqCst));
    }

    fn sent(&self) {
        self.reported.store(self.collected.load(SeqCst), SeqCst);
    }

    fn send_events(&self, sender: &mut DatagramSender) {
        sender.send(kind::GC_EVENT, |out| out.count(id::GC_EVENT_GENERATION, 2));
    }

    fn requests(&self) -> Option<RequestCounts> {
        Some(RequestCounts { lifetime: self.now.load(SeqCst), active: 3 })
    }
}

/// A directory for a socket, removed at the end.
struct SocketFolder(PathBuf);

impl SocketFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headway-post-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("telemetry.sock")
    }

    fn listen(&self) -> UnixDatagram {
        let _ = std::fs::remove_file(self.socket());
        let receiver = UnixDatagram::bind(self.socket()).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        receiver
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(path: PathBuf, interval: Duration) -> Settings {
    Settings { path, interval, identity: Identity::default(), started_s: wall_s() - 5.0 }
}

/// The kind and sequence number of the next datagram, and the count of a field of it.
fn next(receiver: &UnixDatagram, field: u16) -> (u8, u32, Option<u64>) {
    let mut bytes = vec![0; 65_536];
    let length = receiver.recv(&mut bytes).unwrap();
    let datagram = Datagram::parse(&bytes[..length]).unwrap();
    let count = match datagram.get(field) {
        Some(Value::Count(count)) => Some(count),
        _ => None,
    };
    (datagram.header.kind, datagram.header.seq, count)
}

const NEVER: Duration = Duration::from_secs(3_600);

#[test]
fn what_could_not_be_sent_is_in_the_next_tick() {
    let folder = SocketFolder::new("absent");
    let counter = Arc::new(Counter::default());
    let reporter =
        Reporter::start(settings(folder.socket(), NEVER), vec![counter.clone()]).unwrap();
    let tick = || reporter.shared.tick(&mut reporter.shared.encoder.lock());
    counter.now.store(3, SeqCst);
    tick();
    let receiver = folder.listen();
    counter.now.store(5, SeqCst);
    tick();
    assert_eq!(next(&receiver, id::REQUEST_COUNT), (kind::REQUEST_METRICS, 1, Some(5)));
    assert_eq!(next(&receiver, id::REQUEST_COUNT).0, kind::GC_EVENT);
    drop(receiver);
    counter.now.store(6, SeqCst);
    tick();
    let receiver = folder.listen();
    tick();
    assert_eq!(next(&receiver, id::TICKS_UNSENT), (kind::REQUEST_METRICS, 3, Some(2)));
    assert_eq!(next(&receiver, id::TICKS_UNSENT).0, kind::GC_EVENT);
    tick();
    assert_eq!(next(&receiver, id::REQUEST_COUNT), (kind::REQUEST_METRICS, 5, Some(0)));
    assert_eq!(next(&receiver, 0).1, 6);
    tick();
    // The report of the start of the process was lost.
    assert_eq!(next(&receiver, id::RECORDS_LOST), (kind::REQUEST_METRICS, 7, Some(1)));
}

#[test]
fn the_thread_ticks_and_the_end_comes_last_and_once() {
    let folder = SocketFolder::new("life");
    let receiver = folder.listen();
    let counter = Arc::new(Counter::default());
    let interval = Duration::from_millis(20);
    let reporter =
        Reporter::start(settings(folder.socket(), interval), vec![counter.clone()]).unwrap();
    assert_eq!(next(&receiver, 0).0, kind::PROCESS_STARTED);
    for _ in 0..3 {
        while next(&receiver, 0).0 != kind::REQUEST_METRICS {}
    }
    let ending = Ending { reason: "shutdown_signal".into(), graceful: true, ..Ending::default() };
    reporter.stopping(&ending);
    counter.now.store(9, SeqCst);
    reporter.stop(&ending);
    reporter.stop(&ending);
    drop(reporter);
    let (mut last_seq, mut kinds, mut requests) = (0, Vec::new(), 0);
    receiver.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 65_536];
    while let Ok(length) = receiver.recv(&mut bytes) {
        let datagram = Datagram::parse(&bytes[..length]).unwrap();
        let count = |field| match datagram.get(field) {
            Some(Value::Count(count)) => count,
            _ => 0,
        };
        assert!(last_seq == 0 || datagram.header.seq == last_seq + 1);
        last_seq = datagram.header.seq;
        requests += count(id::REQUEST_COUNT);
        kinds.push(datagram.header.kind);
        if datagram.header.kind == kind::PROCESS_STOPPING {
            assert_eq!(count(id::ACTIVE_REQUESTS_AT_DECISION), 3);
        }
        if datagram.header.kind == kind::PROCESS_STOPPED {
            assert_eq!(datagram.get(id::SHUTDOWN_REASON), Some(Value::Text(b"shutdown_signal")));
            assert_eq!((count(id::LIFETIME_REQUEST_COUNT), count(id::GRACEFUL_DRAIN)), (9, 1));
            let Some(Value::Seconds(ns)) = datagram.get(id::PROCESS_UPTIME) else { panic!() };
            assert!((5_000_000_000..60_000_000_000).contains(&ns), "{ns}");
        }
    }
    assert_eq!(requests, 9);
    let of = |kind| kinds.iter().filter(|each| **each == kind).count();
    assert_eq!((of(kind::PROCESS_STOPPING), of(kind::PROCESS_STOPPED)), (1, 1), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&kind::PROCESS_STOPPED));
}

#[test]
fn a_full_queue_holds_nobody_up() {
    let folder = SocketFolder::new("full");
    let receiver = folder.listen();
    let counter = Arc::new(Counter::default());
    let reporter =
        Reporter::start(settings(folder.socket(), NEVER), vec![counter.clone()]).unwrap();
    let mut encoder = reporter.shared.encoder.lock();
    let mut ticks = 0;
    while encoder.ticks_unsent < 3 {
        counter.now.fetch_add(1, SeqCst);
        reporter.shared.tick(&mut encoder);
        ticks += 1;
        assert!(ticks < 100_000, "the queue of a socket has an end");
    }
    drop(encoder);
    receiver.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 65_536];
    let mut requests = 0;
    let mut read = |receiver: &UnixDatagram| {
        while let Ok(length) = receiver.recv(&mut bytes) {
            let datagram = Datagram::parse(&bytes[..length]).unwrap();
            if let Some(Value::Count(count)) = datagram.get(id::REQUEST_COUNT) {
                requests += count;
            }
        }
        requests
    };
    assert!(read(&receiver) < ticks);
    reporter.shared.tick(&mut reporter.shared.encoder.lock());
    assert_eq!(read(&receiver), ticks);
}

#[test]
fn rows_without_room_become_one() {
    struct Named(String, u64);
    impl crate::Row for Named {
        fn write(&self, row: &mut Writer) {
            row.text(id::THREAD_NAME, &self.0);
            row.count(id::THREAD_TAKES, self.1);
        }
        fn fold(&mut self, other: Self) {
            self.1 += other.1;
        }
        fn become_other(&mut self) {
            self.0 = crate::OTHER.into();
        }
    }
    let rows = |count: u64| (0..count).map(|number| Named(format!("{number:0>900}"), 1)).collect();
    for (bounds, count, written) in [
        (crate::Bounds { rows: 5, bytes: 60_000 }, 5, 5),
        (crate::Bounds { rows: 5, bytes: 60_000 }, 8, 5),
        (crate::Bounds { rows: 500, bytes: 60_000 }, 200, 0),
        (crate::Bounds { rows: 500, bytes: 10_000 }, 200, 11),
    ] {
        let (mut out, mut scratch) = (Writer::default(), Writer::default());
        let header = headway_telemetry::datagram::Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 };
        out.begin(&header);
        let folded = super::super::rows::write::<Named>(
            &mut out,
            &mut scratch,
            id::THREADS,
            bounds,
            rows(count),
        );
        let datagram = Datagram::parse(out.bytes()).unwrap();
        let found: Vec<_> = datagram.fields().collect();
        assert!(written == 0 || found.len() == written, "{} rows", found.len());
        let takes: u64 = found
            .iter()
            .map(|(_, value)| {
                let Value::Row(row) = value else { panic!("{value:?}") };
                let takes = headway_telemetry::datagram::entries(row).map_while(Result::ok).last();
                let Some((_, Value::Count(takes))) = takes else { panic!("{takes:?}") };
                takes
            })
            .sum();
        assert_eq!(takes, count);
        assert_eq!(
            folded,
            if found.len() as u64 == count { 0 } else { count + 1 - found.len() as u64 }
        );
    }
}

#[test]
fn a_paused_thread_runs_again_but_not_after_the_end() {
    let folder = SocketFolder::new("forks");
    let receiver = folder.listen();
    let reporter = Reporter::start(settings(folder.socket(), NEVER), Vec::new()).unwrap();
    let runs = || reporter.thread.lock().running.as_ref().is_some_and(|it| !it.is_finished());
    for _ in 0..3 {
        reporter.begin_pause();
        reporter.begin_pause();
        reporter.pause();
        assert!(!runs());
        reporter.resume().unwrap();
        reporter.resume().unwrap();
        assert!(runs());
    }
    reporter.stop(&Ending::default());
    reporter.resume().unwrap();
    assert!(!runs() && reporter.is_over());
    drop(receiver);
}

/// Panics at the first tick.
struct Panicking;

impl Source for Panicking {
    fn collect(&self, _: &mut Tick) {
        panic!("on purpose");
    }

    fn sent(&self) {}
}

#[test]
fn a_source_that_panics_ends_the_ticks_and_not_the_program() {
    let folder = SocketFolder::new("panic");
    let receiver = folder.listen();
    let before = internal_thread::panics();
    let interval = Duration::from_millis(1);
    let reporter = Reporter::start(settings(folder.socket(), interval), vec![Arc::new(Panicking)]);
    let reporter = reporter.unwrap();
    assert_eq!(next(&receiver, 0).0, kind::PROCESS_STARTED);
    while internal_thread::panics() == before {
        std::thread::sleep(interval);
    }
    reporter.stop(&Ending::default());
    assert_eq!(next(&receiver, 0).0, kind::REQUEST_METRICS);
    assert_eq!(next(&receiver, 0).0, kind::PROCESS_STOPPED);
}
