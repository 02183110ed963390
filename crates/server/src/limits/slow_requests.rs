//! Slow request reports: a request that runs for longer than a limit is reported once per interval
//! while it runs, with its Python stack, and once more when it has ended. This corresponds to
//! mod_wsgi's WSGISlowRequests, which has no stack.
//!
//! The first stack of a request is taken when the request exceeds the limit, so that a request that
//! ends soon after has a stack too; later stacks are taken with each report. Worker threads write
//! (`begin`, `end`), and the reporter's thread reads.

use crate::connection::state::Connection;
use crate::http::target::split_absolute;
use crate::limits::WorkerStatus;
use crate::limits::in_flight::{CpuTimes, InFlightRequest};
use crate::limits::threads::Threads;
use crate::stats::{RequestRecord, ServerStats};
use headway_measure::clock::now_ns;
use headway_reporter::{DatagramSender, Source, Tick, stacks};
use headway_telemetry::datagram::Writer;
use headway_telemetry::{id, kind};
use headway_threads::lock::Lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How often the reporter's thread looks for requests that have exceeded the limit.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// The running requests that are reported per interval, the longest first, as in mod_wsgi.
const ACTIVE_PER_TICK: usize = 16;
/// The completed requests that are kept until they are reported.
const MAX_COMPLETED: usize = 256;
/// The time limits for taking one thread's stack, and for taking stacks one after another.
const STACK_TIMEOUT: Duration = Duration::from_millis(100);
const ALL_STACKS_TIMEOUT: Duration = Duration::from_millis(300);

/// The slow requests of one server.
pub struct SlowRequests {
    /// The running time from which a request is slow.
    threshold_ns: u64,
    /// Whether reports contain the User-Agent field, as with mod_wsgi's `+CaptureUserAgent`.
    user_agents: bool,
    threads: Arc<Threads>,
    /// The number of in-flight requests. All worker threads write and read it; relaxed, because the
    /// count orders no other data.
    active: AtomicU64,
    completed: Lock<Completed>,
}

/// The telemetry source that reports the slow requests.
pub struct SlowRequestReport {
    requests: Arc<SlowRequests>,
    stats: Arc<ServerStats>,
    /// The interpreter names, by interpreter slot.
    interpreters: Vec<String>,
}

#[derive(Default)]
struct Completed {
    requests: VecDeque<SlowRequest>,
    lost: u64,
}

/// The content of one report.
struct SlowRequest {
    native_id: i32,
    in_flight: InFlightRequest,
    took_ns: u64,
    record: RequestRecord,
    /// How often the request waited for the GIL, and the CPU time that it used.
    gil_wait_count: u64,
    cpu: CpuTimes,
    endpoint: String,
    /// In-flight requests when it ended, itself included; 0 while it runs.
    active_at_completion: u64,
    is_over: bool,
}

impl SlowRequests {
    pub(crate) fn new(threshold_ns: u64, user_agents: bool, threads: Arc<Threads>) -> Self {
        let (active, completed) = (AtomicU64::new(0), Lock::default());
        Self { threshold_ns, user_agents, threads, active, completed }
    }

    fn lock(&self) -> MutexGuard<'_, Completed> {
        self.completed.lock()
    }

    /// Records the request that the calling thread begins. The path is recorded later, when the
    /// mount point of the application is known.
    pub fn begin(&self, status: &WorkerStatus, connection: &Connection) {
        let active = self.active.fetch_add(1, Relaxed) + 1;
        let Some(mut in_flight) = status.describe() else { return };
        in_flight.begin(active);
        in_flight.queue_ns =
            connection.times.started_ns.saturating_sub(connection.times.noticed_ns);
        in_flight.started_ns = connection.times.started_ns;
        let (head, bytes) = connection.http.head();
        let origin = connection.origin.as_deref();
        let is_https =
            origin.and_then(|origin| origin.is_https).unwrap_or(connection.tls.is_some());
        let forwarded_host = origin.and_then(|origin| origin.host.as_deref());
        let (target_host, _) = split_absolute(&bytes[head.target.clone()]).unzip();
        let host = forwarded_host.or(target_host).or_else(|| head.field(bytes, b"host"));
        let description = &mut in_flight.description;
        description.method.set(&bytes[head.method.clone()]);
        description.scheme = if is_https { "https" } else { "http" };
        description.host.set(host.unwrap_or_default());
        description.protocol = if head.minor_version == 1 { "HTTP/1.1" } else { "HTTP/1.0" };
        description.address.set(connection.client().0.as_bytes());
        let user_agent = self.user_agents.then(|| head.field(bytes, b"user-agent")).flatten();
        description.user_agent.set(user_agent.unwrap_or_default());
    }

    /// Ends the calling thread's request, and keeps it for a report if it was slow. `record` has
    /// its phases.
    pub fn end(&self, status: &WorkerStatus, record: &RequestRecord, now_ns: u64) {
        let active = self.active.fetch_sub(1, Relaxed);
        let took_ns = status.begun_ns().map_or(0, |begun_ns| now_ns.saturating_sub(begun_ns));
        if took_ns < self.threshold_ns {
            return;
        }
        let Some(in_flight) = status.in_flight() else { return };
        let gil = headway_gil::times_of_this_thread().unwrap_or_default();
        let request = SlowRequest {
            native_id: status.native_id,
            took_ns,
            record: *record,
            gil_wait_count: gil.contended_takes.saturating_sub(in_flight.gil.contended_takes),
            cpu: CpuTimes::of_this_thread().since(in_flight.cpu),
            endpoint: status.endpoint(),
            active_at_completion: active,
            is_over: true,
            in_flight,
        };
        let mut completed = self.lock();
        if completed.requests.len() == MAX_COMPLETED {
            completed.requests.pop_front();
            completed.lost += 1;
        }
        completed.requests.push_back(request);
    }

    /// The requests that run for longer than the limit, the longest first, each with the time at
    /// which it began.
    fn overdue(&self) -> Vec<(Arc<WorkerStatus>, u64)> {
        let now_ns = now_ns();
        let mut overdue: Vec<_> = self
            .threads
            .lock()
            .iter()
            .filter_map(|thread| Some((Arc::clone(thread), thread.begun_ns()?)))
            .filter(|(_, begun_ns)| now_ns.saturating_sub(*begun_ns) >= self.threshold_ns)
            .collect();
        overdue.sort_by_key(|(_, begun_ns)| *begun_ns);
        overdue
    }

    fn active(&self, thread: &WorkerStatus, begun_ns: u64) -> Option<SlowRequest> {
        let times = headway_gil::times_of_thread(thread.native_id as u32);
        let cpu = CpuTimes::of_thread(thread.native_id);
        let (in_flight, endpoint) = (thread.in_flight()?, thread.endpoint());
        // If another request has begun meanwhile, the description is not that of this request.
        let now_ns = Some(now_ns()).filter(|_| thread.begun_ns() == Some(begun_ns))?;
        let since_start = |ns: u64| ns.saturating_sub(in_flight.started_ns);
        let (server_ns, application_ns) = match thread.called_ns() {
            0 => (since_start(now_ns), 0),
            called_ns => (since_start(called_ns), now_ns.saturating_sub(called_ns)),
        };
        let gil = |of: fn(&headway_gil::ThreadTimes) -> u64| {
            times.map(|times| of(&times).saturating_sub(of(&in_flight.gil)))
        };
        let record = RequestRecord {
            slot: thread.slot(),
            queue_ns: in_flight.queue_ns,
            server_ns,
            application_ns,
            gil_wait_ns: gil(|times| times.waited_ns),
            gil_held_ns: gil(|times| times.held_ns),
            ..RequestRecord::default()
        };
        Some(SlowRequest {
            native_id: thread.native_id,
            took_ns: now_ns.saturating_sub(begun_ns),
            record,
            gil_wait_count: gil(|times| times.contended_takes).unwrap_or(0),
            cpu: cpu.map_or_else(CpuTimes::default, |cpu| cpu.since(in_flight.cpu)),
            endpoint,
            active_at_completion: 0,
            is_over: false,
            in_flight,
        })
    }
}

impl SlowRequestReport {
    pub fn new(
        requests: Arc<SlowRequests>,
        stats: Arc<ServerStats>,
        interpreters: Vec<String>,
    ) -> Self {
        Self { requests, stats, interpreters }
    }

    fn write(&self, request: &SlowRequest, out: &mut Writer) {
        request.write(out);
        let route = self.stats.routes.name(request.record.route);
        out.text(id::SLOW_ENDPOINT, route.as_deref().unwrap_or(&request.endpoint));
        if let Some(name) = self.interpreters.get(request.record.slot) {
            out.text(id::SLOW_INTERPRETER, name);
        }
    }
}

impl Source for SlowRequestReport {
    fn collect(&self, _: &mut Tick) {}

    fn look_every(&self) -> Option<Duration> {
        Some(LOOK_PERIOD)
    }

    fn look(&self) {
        let until = Instant::now() + ALL_STACKS_TIMEOUT;
        for (thread, begun_ns) in self.requests.overdue().into_iter().take(ACTIVE_PER_TICK) {
            if !thread.has_stack(begun_ns) && Instant::now() < until {
                take_stack(&thread, begun_ns);
            }
        }
    }

    fn send_events(&self, post: &mut DatagramSender) {
        let until = Instant::now() + ALL_STACKS_TIMEOUT;
        let overdue = self.requests.overdue();
        for (thread, begun_ns) in overdue.into_iter().take(ACTIVE_PER_TICK) {
            if Instant::now() < until {
                take_stack(&thread, begun_ns);
            }
            // If this is not sent, the request is reported in the next interval or as completed.
            if let Some(request) = self.requests.active(&thread, begun_ns) {
                post.send(kind::SLOW_REQUEST, |out| self.write(&request, out));
            }
        }
        let completed = std::mem::take(&mut *self.requests.lock());
        post.lose(completed.lost);
        let mut left = completed.requests.into_iter();
        while let Some(request) = left.next() {
            if !post.send(kind::SLOW_REQUEST, |out| self.write(&request, out)) {
                // The receiver has no room now; these are sent in the next interval.
                self.requests.put_back(std::iter::once(request).chain(left));
                return;
            }
        }
    }
}

impl SlowRequests {
    fn put_back(&self, requests: impl Iterator<Item = SlowRequest>) {
        let mut completed = self.lock();
        let newer = std::mem::take(&mut completed.requests);
        completed.requests.extend(requests.chain(newer));
        while completed.requests.len() > MAX_COMPLETED {
            completed.requests.pop_front();
            completed.lost += 1;
        }
    }
}

/// Takes the Python stack of the request that began at `begun_ns`.
fn take_stack(thread: &WorkerStatus, begun_ns: u64) {
    let stack = stacks::read(thread.native_id as u32, STACK_TIMEOUT);
    let stack = stack.map(|stack| stack.calls).map_err(|missing| missing.as_str());
    thread.note_stack(begun_ns, stack);
}

impl SlowRequest {
    fn write(&self, out: &mut Writer) {
        let (in_flight, record) = (&self.in_flight, &self.record);
        let description = &in_flight.description;
        out.count(id::SLOW_RECORD_STATE, u64::from(self.is_over));
        out.number(id::SLOW_START_STAMP, in_flight.began_s);
        out.seconds_of_ns(id::SLOW_DURATION, self.took_ns);
        out.count(id::SLOW_THREAD_ID, self.native_id as u64);
        out.count(id::SLOW_SERVER_PID, u64::from(std::process::id()));
        out.text(id::SLOW_METHOD, &description.method.to_text());
        out.text(id::SLOW_SCHEME, description.scheme);
        out.text(id::SLOW_HOSTNAME, &description.host.to_text());
        out.text(id::SLOW_SCRIPT_NAME, &description.script_name.to_text());
        out.text(id::SLOW_PATH_INFO, &description.path_info.to_text());
        out.text(id::SLOW_PROTOCOL, description.protocol);
        out.text(id::SLOW_PEER_IP, &description.address.to_text());
        let user_agent = description.user_agent.to_text();
        if !user_agent.is_empty() {
            out.text(id::SLOW_USER_AGENT, &user_agent);
        }
        out.seconds_of_ns(id::SLOW_SERVER_TIME, record.server_ns);
        out.seconds_of_ns(id::SLOW_QUEUE_TIME, record.queue_ns);
        out.seconds_of_ns(id::SLOW_DAEMON_TIME, 0);
        out.seconds_of_ns(id::SLOW_APPLICATION_TIME, record.application_ns);
        out.seconds_of_ns(id::SLOW_GIL_WAIT_TIME, record.gil_wait_ns.unwrap_or(0));
        out.count(id::SLOW_GIL_WAIT_COUNT, self.gil_wait_count);
        out.count(id::SLOW_INPUT_BYTES, record.input_bytes);
        out.count(id::SLOW_INPUT_READS, u64::from(record.input_reads));
        out.count(id::SLOW_OUTPUT_BYTES, record.output_bytes);
        out.count(id::SLOW_OUTPUT_WRITES, u64::from(record.output_writes));
        out.seconds_of_ns(id::SLOW_INPUT_READ_TIME, record.input_read_ns);
        out.seconds_of_ns(id::SLOW_OUTPUT_WRITE_TIME, record.output_write_ns);
        out.count(id::SLOW_STATUS, u64::from(record.status));
        out.seconds_of_ns(id::SLOW_CPU_USER_TIME, self.cpu.user_ns);
        out.seconds_of_ns(id::SLOW_CPU_SYSTEM_TIME, self.cpu.system_ns);
        out.count(id::SLOW_ACTIVE_AT_START, in_flight.active_at_start);
        out.count(id::SLOW_ACTIVE_AT_COMPLETION, self.active_at_completion);
        if let Some(held_ns) = record.gil_held_ns {
            out.seconds_of_ns(id::SLOW_GIL_HELD_TIME, held_ns);
        }
        // A missing stack is reported too, so that a reader of the report learns the reason.
        match &in_flight.stack {
            Some(Ok(stack)) => out.text(id::SLOW_STACK, stack),
            Some(Err(reason)) => out.text(id::SLOW_STACK, &format!("({reason})")),
            None => {}
        }
    }
}
