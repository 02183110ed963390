//! The reporter's thread, and the reports of the beginning and the end of the process.
//!
//! | thread | work |
//! |---|---|
//! | the reporter's thread | a tick every interval, until it is stopped |
//! | a thread that starts, pauses or stops the reporter | starts and joins the reporter's thread; reports the life cycle; sends the last tick |
//!
//! The reporter's thread is paused for a fork; see `headway_threads` for what it may not wait for.
//!
//! A forked child has no reporter's thread. In the child, the parent's `Reporter` has no effect,
//! and a new one may be started.

use super::datagram_sender::{DatagramSender, TargetError};
use super::identity::Identity;
use super::source::{RequestCounts, Source, Tick};
use headway_measure::clock::{now_ns, wall_s};
use headway_telemetry::datagram::Writer;
use headway_telemetry::{id, kind};
use headway_threads::fork;
use headway_threads::internal_thread::{self, InternalThread};
use headway_threads::lock::Lock;
use headway_threads::process_end::ProcessEnd;
use headway_threads::waker::{Waker, Woken};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[derive(Clone)]
pub struct Settings {
    /// The receiver's socket.
    pub path: PathBuf,
    pub interval: Duration,
    pub identity: Identity,
    /// The start time in seconds since 1970. With the host and pid, it identifies the process.
    pub started_s: f64,
}

/// How a process ends.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// One of the values of the field `shutdown_reason`.
    pub reason: String,
    pub detail: String,
    /// Whether all requests in flight could finish.
    pub graceful: bool,
}

pub struct Reporter {
    shared: Arc<Shared>,
    thread: Lock<Thread>,
    /// Whether `stop` was called. Written by `stop`, read before the thread is started, and in a
    /// forked child, where the locks may never be free. `SeqCst`: rare.
    is_over: AtomicBool,
    pid: u32,
}

#[derive(Default)]
struct Thread {
    /// `None` while the thread is paused, and after `stop`.
    running: Option<InternalThread>,
    /// Whether the running thread was told to end.
    is_told: bool,
}

struct Shared {
    interval: Duration,
    encoder: Lock<Encoder>,
    sources: Lock<Vec<Arc<dyn Source>>>,
    waker: Waker,
}

/// Writes and sends the datagrams; locked for each of them.
struct Encoder {
    sender: DatagramSender,
    identity: Identity,
    started_s: f64,
    interval_s: f64,
    scratch: Writer,
    last_sent: Instant,
    last_tick: Instant,
    ticks_unsent: u64,
    rows_folded: u64,
    has_ended: bool,
}

impl Reporter {
    /// Reports that the process has started, and begins to tick. `sources` are called in their
    /// order; `add` appends more.
    pub fn start(settings: Settings, sources: Vec<Arc<dyn Source>>) -> Result<Self, TargetError> {
        let sender = DatagramSender::open(&settings.path)?;
        let mut encoder = Encoder {
            sender,
            identity: settings.identity,
            started_s: settings.started_s,
            interval_s: settings.interval.as_secs_f64(),
            scratch: Writer::default(),
            last_sent: Instant::now(),
            last_tick: Instant::now(),
            ticks_unsent: 0,
            rows_folded: 0,
            has_ended: false,
        };
        encoder.report(kind::PROCESS_STARTED, settings.started_s, |_| ());
        let shared = Shared {
            interval: settings.interval,
            encoder: Lock::new(encoder),
            sources: Lock::new(sources),
            waker: Waker::default(),
        };
        let reporter = Self {
            shared: Arc::new(shared),
            thread: Lock::default(),
            is_over: AtomicBool::new(false),
            pid: std::process::id(),
        };
        reporter.begin(&mut reporter.thread.lock()).map_err(TargetError::System)?;
        Ok(reporter)
    }

    pub fn add(&self, source: Arc<dyn Source>) {
        if self.is_of_this_process() {
            self.shared.sources.lock().push(source);
        }
    }

    /// Reports the decision to end. Ticks continue until `stop`.
    pub fn stopping(&self, ending: &Ending) {
        if !self.is_of_this_process() {
            return;
        }
        let counts = self.shared.counts();
        self.shared.encoder.lock().report(kind::PROCESS_STOPPING, wall_s(), |out| {
            ending.write(out);
            if let Some(counts) = counts {
                out.count(id::ACTIVE_REQUESTS_AT_DECISION, counts.active);
            }
        });
    }

    /// Sends the last tick and reports the end of the process, once.
    pub fn stop(&self, ending: &Ending) {
        if !self.is_of_this_process() {
            return;
        }
        self.is_over.store(true, SeqCst);
        self.pause();
        let end = || fork::work(|| self.shared.end(ending));
        internal_thread::survive("the report of the end", end);
    }

    /// The argument for `wake_for_signal`, in the handler of a signal that ends the process.
    pub fn waker_number(&self) -> u32 {
        self.shared.waker.number()
    }

    /// Tells the thread to end, before `pause`. Returns at once.
    pub fn begin_pause(&self) {
        if self.is_of_this_process() {
            self.tell(&mut self.thread.lock());
        }
    }

    fn tell(&self, thread: &mut Thread) {
        if thread.running.is_some() && !std::mem::replace(&mut thread.is_told, true) {
            self.shared.waker.wake();
        }
    }

    /// Ends the thread without loss.
    pub fn pause(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut thread = self.thread.lock();
        self.tell(&mut thread);
        if let Some(running) = thread.running.take() {
            running.join();
        }
        thread.is_told = false;
    }

    /// Starts the thread again after `pause`, but not after `stop`.
    pub fn resume(&self) -> std::io::Result<()> {
        match self.is_of_this_process() {
            true => self.begin(&mut self.thread.lock()),
            false => Ok(()),
        }
    }

    fn begin(&self, thread: &mut Thread) -> std::io::Result<()> {
        if thread.running.is_none() && !self.is_over() && !self.shared.encoder.lock().has_ended {
            let shared = Arc::clone(&self.shared);
            thread.running = Some(internal_thread::spawn("headway-report", move || {
                if internal_thread::survive("the report of sources", || shared.run()).is_none() {
                    // The end of the process is still reported.
                    shared.sources.lock().clear();
                }
            })?);
        }
        Ok(())
    }

    /// Whether `stop` was called.
    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// The reporter of a forked child, which calls this: with the same settings and the sources
    /// given. The parent's has no effect there.
    pub fn start_in_child(
        settings: &Settings,
        sources: Vec<Arc<dyn Source>>,
    ) -> Result<Self, TargetError> {
        let mut settings = Settings { started_s: wall_s(), ..settings.clone() };
        settings.identity.set_count(id::PROCESS_PARENT_PID, std::os::unix::process::parent_id());
        Self::start(settings, sources)
    }

    pub fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.pause();
    }
}

impl Shared {
    fn run(&self) {
        // The interval begins at the last tick, not at the start of this thread, because a program
        // may fork frequently.
        let mut due = fork::work(|| self.encoder.lock().last_tick) + self.interval;
        let mut end = ProcessEnd::watch();
        while self.looks_until(due, &mut end) {
            fork::work(|| self.tick(&mut self.encoder.lock()));
            // A tick that is late, because the machine slept or was busy, is not repeated.
            due = (due + self.interval).max(Instant::now());
        }
    }

    /// Calls `look` of the sources until a tick is due. Returns false if the thread must end.
    fn looks_until(&self, due: Instant, end: &mut ProcessEnd) -> bool {
        loop {
            let often = fork::work(|| {
                self.sources.lock().iter().filter_map(|source| source.look_every()).min()
            });
            let next = often.map_or(due, |often| due.min(Instant::now() + often));
            match self.waker.wait_until(next, end) {
                None => {}
                Some(Woken::Over) => return false,
                Some(Woken::BySignal) => {
                    let reason = "shutdown_signal".into();
                    fork::work(|| self.end(&Ending { reason, ..Ending::default() }));
                    return false;
                }
                Some(Woken::ProcessEnd) => {
                    let detail = "the last thread of the program has ended".into();
                    let reason = "unknown".into();
                    fork::work(|| self.end(&Ending { reason, detail, graceful: true }));
                    return false;
                }
            }
            if next == due {
                return true;
            }
            // The lock is held meanwhile. A thread that adds a source does not hold the GIL.
            fork::work(|| self.sources.lock().iter().for_each(|source| source.look()));
        }
    }

    /// Sends the last tick and reports the end of the process, once.
    fn end(&self, ending: &Ending) {
        let mut encoder = self.encoder.lock();
        if std::mem::replace(&mut encoder.has_ended, true) {
            return;
        }
        self.tick(&mut encoder);
        let uptime_s = wall_s() - encoder.started_s;
        let counts = self.counts();
        encoder.report(kind::PROCESS_STOPPED, wall_s(), |out| {
            ending.write(out);
            out.number(id::PROCESS_UPTIME, uptime_s.max(0.0));
            out.count(id::GRACEFUL_DRAIN, u64::from(ending.graceful));
            if let Some(counts) = counts {
                out.count(id::LIFETIME_REQUEST_COUNT, counts.lifetime);
                out.count(id::ACTIVE_REQUESTS_AT_EXIT, counts.active);
            }
        });
    }

    fn tick(&self, encoder: &mut Encoder) {
        let sources = self.sources.lock().clone();
        if encoder.tick(&sources) {
            sources.iter().for_each(|source| source.sent());
            sources.iter().for_each(|source| source.send_events(&mut encoder.sender));
        }
    }

    fn counts(&self) -> Option<RequestCounts> {
        self.sources.lock().iter().find_map(|source| source.requests())
    }
}

impl Encoder {
    fn report(&mut self, kind: u8, stamp_s: f64, write: impl FnOnce(&mut Writer)) {
        let Self { sender, identity, started_s, .. } = self;
        let reported = sender.send_as_of(kind, stamp_s, |out| {
            identity.write(out);
            out.number(id::PROCESS_STARTED_STAMP, *started_s);
            write(out);
        });
        if !reported {
            sender.lose(1);
        }
    }

    /// Returns false if the tick could not be sent.
    fn tick(&mut self, sources: &[Arc<dyn Source>]) -> bool {
        let now = Instant::now();
        self.last_tick = now;
        let period_s = (now - self.last_sent).as_secs_f64();
        let lost = self.sender.lost();
        let Self { sender, identity, scratch, rows_folded, .. } = self;
        let folded_before = *rows_folded;
        let sent = sender.send(kind::REQUEST_METRICS, |out| {
            identity.write(out);
            out.number(id::PROCESS_STARTED_STAMP, self.started_s);
            out.number(id::TELEMETRY_INTERVAL, self.interval_s);
            out.number(id::SAMPLE_PERIOD, period_s);
            out.count(id::TICKS_UNSENT, self.ticks_unsent);
            out.count(id::RECORDS_LOST, lost);
            let mut tick =
                Tick { now_ns: now_ns(), period_s, fields: out, scratch, folded: rows_folded };
            let mut behind: usize = sources.iter().map(|source| source.bytes()).sum();
            for source in sources {
                behind -= source.bytes();
                tick.fields.hold_back(behind);
                source.collect(&mut tick);
            }
            out.count(id::ROWS_FOLDED, *rows_folded);
        });
        if sent {
            self.last_sent = now;
        } else {
            self.ticks_unsent += 1;
            // The next tick folds the same rows again.
            self.rows_folded = folded_before;
        }
        sent
    }
}

impl Ending {
    fn write(&self, out: &mut Writer) {
        out.text(id::SHUTDOWN_REASON, &self.reason);
        if !self.detail.is_empty() {
            out.text(id::SHUTDOWN_DETAIL, &self.detail);
        }
    }
}

#[cfg(test)]
#[path = "reporter_tests.rs"]
mod tests;
