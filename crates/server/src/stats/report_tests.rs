use crate::stats::report::*;
use crate::stats::{RequestRecord, Route, ServerStats};
use headway_reporter::{Reporter, Settings};
use headway_telemetry::Value;
use headway_telemetry::datagram::{Datagram, entries};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// Returns the datagram that reports `requests`, counted by two threads.
fn report_of(interpreters: usize, requests: &[(&str, RequestRecord)]) -> Vec<u8> {
    let directory = std::env::temp_dir().join(format!(
        "headway-report-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("telemetry.sock");
    let receiver = UnixDatagram::bind(&path).unwrap();
    let counters = Arc::new(ServerStats::new(true));
    let threads = [counters.join(), counters.join()];
    counters.routes.of("/route/<id>");
    for (number, (target, record)) in requests.iter().enumerate() {
        threads[number % 2].lock().record(target.as_bytes(), 0, record);
    }
    let interpreter = |number: usize| InterpreterName {
        group: format!("group {number}"),
        name: format!("slot {number}"),
        own_gil: number == 1,
    };
    let report = ServerReport::new(counters, (0..interpreters).map(interpreter).collect(), 2);
    let settings = Settings {
        path,
        interval: Duration::from_secs(3_600),
        identity: Default::default(),
        started_s: 0.0,
    };
    let reporter = Reporter::start(settings, vec![Arc::new(report)]).unwrap();
    // Stopping makes the reporter send the remaining counters.
    reporter.stop(&Default::default());
    let mut bytes = vec![0; 65_536];
    loop {
        let length = receiver.recv(&mut bytes).unwrap();
        if Datagram::parse(&bytes[..length]).unwrap().header.kind == 2 {
            bytes.truncate(length);
            std::fs::remove_dir_all(&directory).unwrap();
            return bytes;
        }
    }
}

fn count(fields: impl Iterator<Item = (u16, Value<'static>)>, id: u16) -> Option<u64> {
    fields.filter(|(found, _)| *found == id).find_map(|(_, value)| match value {
        Value::Count(count) => Some(count),
        _ => None,
    })
}

/// The name and the number of requests of each row.
fn rows(bytes: &'static [u8], of: u16, name: u16, requests: u16) -> Vec<(String, u64)> {
    let datagram = Datagram::parse(bytes).unwrap();
    let mut found: Vec<_> = datagram
        .fields()
        .filter_map(|(id, value)| match value {
            Value::Row(row) if id == of => Some(row),
            _ => None,
        })
        .map(|row| {
            let fields = || entries(row).map(Result::unwrap);
            let text = fields().find(|(id, _)| *id == name).unwrap().1;
            let Value::Text(text) = text else { panic!("{text:?}") };
            let text = String::from_utf8(text.to_vec()).unwrap();
            (text, count(fields(), requests).unwrap())
        })
        .collect();
    found.sort();
    found
}

fn answered(status: u16, ns: u64) -> RequestRecord {
    RequestRecord {
        status,
        server_ns: 1,
        application_ns: ns,
        response_ns: ns,
        gil_wait_ns: Some(ns / 2),
        gil_held_ns: Some(ns / 4),
        ..RequestRecord::default()
    }
}

#[test]
fn threads_interpreters_and_routes_are_aggregated() {
    let routed = RequestRecord { route: Route(1), slot: 1, ..answered(200, 3_000) };
    let bytes: &'static [u8] = report_of(
        2,
        &[
            ("/users/1", answered(200, 5_000_000)),
            ("/users/2", answered(500, 9_000_000)),
            ("/route/1", routed),
            ("/route/2", routed),
            ("/gone", answered(404, 1_000)),
            ("/late", RequestRecord { status: 504, queue_ns: 7, ..RequestRecord::default() }),
        ],
    )
    .leak();
    let (endpoints, interpreters) = (
        rows(bytes, id::ENDPOINTS, id::ENDPOINT_NAME, id::ENDPOINT_REQUESTS),
        rows(bytes, id::INTERPRETERS, id::INTERPRETER_ROW_NAME, id::INTERPRETER_REQUESTS),
    );
    let named = |name: &str, requests| (name.to_owned(), requests);
    assert_eq!(
        endpoints,
        [named("(404)", 1), named("/late", 1), named("/route/<id>", 2), named("/users/*", 2)]
    );
    assert_eq!(interpreters, [named("slot 0", 4), named("slot 1", 2)]);
    let datagram = Datagram::parse(bytes).unwrap();
    let of = |id| count(datagram.fields(), id);
    assert_eq!((of(id::REQUEST_COUNT), of(id::LIFETIME_REQUESTS)), (Some(6), Some(6)));
    assert_eq!((of(id::STATUS_4XX_TOTAL), of(id::STATUS_5XX_TOTAL)), (Some(1), Some(2)));
    let histogram = |id| match datagram.get(id) {
        Some(Value::Histogram(bytes)) => headway_telemetry::histogram::decode(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    let application = histogram(id::APPLICATION_TIME_HISTOGRAM);
    assert_eq!((application.count(), application.max_ns), (5, 9_000_000));
    assert_eq!(application.sum_ns, 14_007_000);
    let wait = histogram(id::GIL_WAIT_TIME_HISTOGRAM);
    assert_eq!((wait.count(), wait.sum_ns), (5, 7_003_500));
    assert_eq!(histogram(id::QUEUE_TIME_HISTOGRAM).count(), 6);
    assert_eq!(histogram(id::INPUT_READ_TIME_HISTOGRAM).count(), 6);
    assert_eq!(datagram.get(id::APPLICATION_TIME_MAX), Some(Value::Seconds(9_000_000)), "exactly");
}

#[test]
fn endpoints_are_bounded_and_all_requests_are_counted() {
    let paths: Vec<String> = (0..3_000).map(|n| format!("/{}", name_of(n))).collect();
    let requests: Vec<_> = paths.iter().map(|path| (&**path, answered(200, 1_000))).collect();
    let bytes: &'static [u8] = report_of(1, &requests).leak();
    assert!(bytes.len() <= 60_000, "{}", bytes.len());
    let found = rows(bytes, id::ENDPOINTS, id::ENDPOINT_NAME, id::ENDPOINT_REQUESTS);
    assert!(found.len() <= 64, "{}", found.len());
    assert_eq!(found.iter().map(|row| row.1).sum::<u64>(), 3_000);
    assert!(found.iter().any(|row| row.0 == OTHER));
    let folded = count(Datagram::parse(bytes).unwrap().fields(), id::ROWS_FOLDED);
    assert!(folded.unwrap() > 0);
}

/// A word without digits.
fn name_of(number: usize) -> String {
    let letter = |digit: usize| char::from(b'a' + (digit % 26) as u8);
    [number / 676, number / 26, number].map(letter).iter().collect()
}

#[test]
fn without_a_meter_no_waits_are_reported() {
    let unknown = RequestRecord { gil_wait_ns: None, gil_held_ns: None, ..answered(200, 1_000) };
    let bytes = report_of(1, &[("/", unknown)]);
    let datagram = Datagram::parse(&bytes).unwrap();
    assert_eq!(datagram.get(id::GIL_WAIT_TIME), None);
    assert_eq!(datagram.get(id::GIL_WAIT_TIME_BUCKETS), None);
    assert!(datagram.get(id::SERVER_TIME).is_some());
}

/// Another source that fills the rest of the same tick.
struct FillingSource;

impl Source for FillingSource {
    fn collect(&self, tick: &mut Tick) {
        while tick.fields.row(id::HOLDS, |row| row.text(id::HOLD_STACK, &"x".repeat(900))) {}
    }
}

#[test]
fn a_full_tick_remains_readable() {
    let directory = std::env::temp_dir().join(format!("headway-full-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("telemetry.sock");
    let receiver = UnixDatagram::bind(&path).unwrap();
    let counters = Arc::new(ServerStats::new(true));
    let thread_counters = counters.join();
    // The durations spread over many buckets.
    for step in 0..4_000_u64 {
        let ns = 1_000 + step * step * step;
        let record = RequestRecord {
            server_ns: ns,
            queue_ns: ns,
            cpu_ns: ns,
            input_bytes: 1,
            input_read_ns: ns,
            output_write_ns: ns,
            ..answered(200, ns)
        };
        thread_counters.lock().record(b"/", 0, &record);
    }
    let slots: Vec<_> = (0..128).map(|_| counters.join_workers()).collect();
    let interpreters =
        vec![InterpreterName { group: "g".into(), name: "p".into(), own_gil: false }];
    let report = ServerReport::new(counters, interpreters, slots.len());
    let settings = Settings {
        path,
        interval: Duration::from_secs(3_600),
        identity: Default::default(),
        started_s: 0.0,
    };
    let reporter =
        Reporter::start(settings, vec![Arc::new(FillingSource), Arc::new(report)]).unwrap();
    reporter.stop(&Default::default());
    let mut bytes = vec![0; 200_000];
    loop {
        let length = receiver.recv(&mut bytes).unwrap();
        let datagram = Datagram::parse(&bytes[..length]).unwrap();
        if datagram.header.kind == 2 {
            assert!(matches!(datagram.get(id::REQUEST_COUNT), Some(Value::Count(4_000))));
            break;
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
