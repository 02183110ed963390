//! Slow requests: what runs for longer than a limit is told of once an interval while it runs, with its Python
//! stack, and once more when it is over. mod_wsgi's WSGISlowRequests, with the stack.
//!
//! A request's first stack is taken when it passes the limit, so that one that ends soon after has one too; later ones
//! as often as it is told of. Worker threads write (`begin`, `end`), the reporter's thread reads.

use crate::connection::state::Connection;
use crate::http::target::split_absolute;
use crate::limits::WorkerStatus;
use crate::limits::in_flight::{CpuTimes, InFlightRequest};
use crate::limits::threads::Threads;
use crate::stats::clock::now_ns;
use crate::stats::{Counters, RequestRecord};
use headway_reporter::{DatagramSender, Source, Tick, stacks};
use headway_telemetry::datagram::Writer;
use headway_telemetry::{id, kind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often to look for requests that pass the limit.
const LOOK: Duration = Duration::from_millis(20);
/// Told in one interval, the longest first, as mod_wsgi does.
const ACTIVE_PER_TICK: usize = 16;
/// Over and not told yet.
const MAX_COMPLETED: usize = 256;
/// For one thread to write its stack, and for all that are asked in a row.
const PATIENCE: Duration = Duration::from_millis(100);
const PATIENCE_FOR_ALL: Duration = Duration::from_millis(300);

/// Those of one server.
pub struct SlowRequests {
    /// From when on they are slow.
    threshold_ns: u64,
    /// mod_wsgi's `+CaptureUserAgent`.
    user_agents: bool,
    threads: Arc<Threads>,
    /// Requests under way. Written by all worker threads; relaxed.
    active: AtomicU64,
    completed: Mutex<Completed>,
}

/// What the reporter tells of them.
pub struct SlowRequestReport {
    requests: Arc<SlowRequests>,
    counters: Arc<Counters>,
    /// What the application's places are called.
    places: Vec<String>,
}

#[derive(Default)]
struct Completed {
    requests: VecDeque<SlowRequest>,
    lost: u64,
}

/// All that is told of one.
struct SlowRequest {
    native_id: i32,
    in_flight: InFlightRequest,
    took_ns: u64,
    record: RequestRecord,
    /// GIL and CPU times of its own.
    gil_wait_count: u64,
    cpu: CpuTimes,
    endpoint: String,
    /// 0 while it runs.
    active_at_completion: u64,
    is_over: bool,
}

impl SlowRequests {
    pub(crate) fn new(threshold_ns: u64, user_agents: bool, threads: Arc<Threads>) -> Self {
        let (active, completed) = (AtomicU64::new(0), Mutex::default());
        Self { threshold_ns, user_agents, threads, active, completed }
    }

    fn lock(&self) -> MutexGuard<'_, Completed> {
        self.completed.lock().expect("no panic under this lock")
    }

    /// A request of the calling thread begins. Its path is for who knows where the application lives.
    pub fn begin(&self, activity: &WorkerStatus, connection: &Connection) {
        let active = self.active.fetch_add(1, Relaxed) + 1;
        let Some(mut in_flight) = activity.describe() else { return };
        in_flight.begin(active);
        in_flight.queue_ns =
            connection.progress.started_ns.saturating_sub(connection.progress.noticed_ns);
        in_flight.started_ns = connection.progress.started_ns;
        let (head, bytes) = connection.http.head();
        let origin = connection.origin.as_deref();
        let is_https =
            origin.and_then(|origin| origin.is_https).unwrap_or(connection.tls.is_some());
        let host_said = origin.and_then(|origin| origin.host.as_deref());
        let (host_asked, _) = split_absolute(&bytes[head.target.clone()]).unzip();
        let host = host_said.or(host_asked).or_else(|| head.field(bytes, b"host"));
        let about = &mut in_flight.description;
        about.method.set(&bytes[head.method.clone()]);
        about.scheme = if is_https { "https" } else { "http" };
        about.host.set(host.unwrap_or_default());
        about.protocol = if head.minor_version == 1 { "HTTP/1.1" } else { "HTTP/1.0" };
        about.address.set(connection.client().0.as_bytes());
        let user_agent = self.user_agents.then(|| head.field(bytes, b"user-agent")).flatten();
        about.user_agent.set(user_agent.unwrap_or_default());
    }

    /// It is over, and `record` says how it went.
    pub fn end(&self, activity: &WorkerStatus, record: &RequestRecord, now_ns: u64) {
        let active = self.active.fetch_sub(1, Relaxed);
        let took_ns = activity.begun_ns().map_or(0, |begun_ns| now_ns.saturating_sub(begun_ns));
        if took_ns < self.threshold_ns {
            return;
        }
        let Some(in_flight) = activity.in_flight() else { return };
        let gil = headway_gil::times_of_this_thread().unwrap_or_default();
        let request = SlowRequest {
            native_id: activity.native_id,
            took_ns,
            record: *record,
            gil_wait_count: gil.contended_takes.saturating_sub(in_flight.gil.contended_takes),
            cpu: CpuTimes::of_this_thread().since(in_flight.cpu),
            endpoint: activity.endpoint(),
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

    /// Those that run for longer than the limit, the longest first.
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
        // Else another has begun meanwhile.
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
            place: thread.place(),
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
    pub fn new(requests: Arc<SlowRequests>, counters: Arc<Counters>, places: Vec<String>) -> Self {
        Self { requests, counters, places }
    }

    fn write(&self, request: &SlowRequest, out: &mut Writer) {
        request.write(out);
        let route = self.counters.routes.name(request.record.route);
        out.text(id::SLOW_ENDPOINT, route.as_deref().unwrap_or(&request.endpoint));
        if let Some(name) = self.places.get(request.record.place) {
            out.text(id::SLOW_INTERPRETER, name);
        }
    }
}

impl Source for SlowRequestReport {
    fn collect(&self, _: &mut Tick) {}

    fn look_every(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn look(&self) {
        let until = Instant::now() + PATIENCE_FOR_ALL;
        for (thread, begun_ns) in self.requests.overdue().into_iter().take(ACTIVE_PER_TICK) {
            if !thread.has_stack(begun_ns) && Instant::now() < until {
                take_stack(&thread, begun_ns);
            }
        }
    }

    fn post(&self, post: &mut DatagramSender) {
        let until = Instant::now() + PATIENCE_FOR_ALL;
        let overdue = self.requests.overdue();
        for (thread, begun_ns) in overdue.into_iter().take(ACTIVE_PER_TICK) {
            if Instant::now() < until {
                take_stack(&thread, begun_ns);
            }
            // One that finds no receiver is told of in the next interval, or as completed.
            if let Some(request) = self.requests.active(&thread, begun_ns) {
                post.send(kind::SLOW_REQUEST, |out| self.write(&request, out));
            }
        }
        let completed = std::mem::take(&mut *self.requests.lock());
        post.lose(completed.lost);
        let mut left = completed.requests.into_iter();
        while let Some(request) = left.next() {
            if !post.send(kind::SLOW_REQUEST, |out| self.write(&request, out)) {
                // The receiver has no room now.
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

/// Has a thread write the stack of the request that began then.
fn take_stack(thread: &WorkerStatus, begun_ns: u64) {
    let stack = stacks::read(thread.native_id as u32, PATIENCE);
    let stack = stack.map(|stack| stack.calls).map_err(|missing| missing.as_str());
    thread.note_stack(begun_ns, stack);
}

impl SlowRequest {
    fn write(&self, out: &mut Writer) {
        let (in_flight, record) = (&self.in_flight, &self.record);
        let about = &in_flight.description;
        out.count(id::SLOW_RECORD_STATE, u64::from(self.is_over));
        out.number(id::SLOW_START_STAMP, in_flight.began_s);
        out.seconds_of_ns(id::SLOW_DURATION, self.took_ns);
        out.count(id::SLOW_THREAD_ID, self.native_id as u64);
        out.count(id::SLOW_SERVER_PID, u64::from(std::process::id()));
        out.text(id::SLOW_METHOD, &about.method.to_text());
        out.text(id::SLOW_SCHEME, about.scheme);
        out.text(id::SLOW_HOSTNAME, &about.host.to_text());
        out.text(id::SLOW_SCRIPT_NAME, &about.script_name.to_text());
        out.text(id::SLOW_PATH_INFO, &about.path_info.to_text());
        out.text(id::SLOW_PROTOCOL, about.protocol);
        out.text(id::SLOW_PEER_IP, &about.address.to_text());
        let user_agent = about.user_agent.to_text();
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
        // Missing is said too: whoever looks for a stack is to know why there is none.
        match &in_flight.stack {
            Some(Ok(stack)) => out.text(id::SLOW_STACK, stack),
            Some(Err(reason)) => out.text(id::SLOW_STACK, &format!("({reason})")),
            None => {}
        }
    }
}
