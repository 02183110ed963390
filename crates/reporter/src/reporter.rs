//! The thread, and what is told of the process's beginning and end.
//!
//! | who | does |
//! |---|---|
//! | the reporter's thread | a tick every interval, until it is told to stop |
//! | whoever begins, pauses or ends it | starts and joins the thread; tells of the lifecycle; the last tick |
//!
//! A forked child has no such thread: there a `Reporter` does nothing, and a new one may be begun.

use super::bell::{Bell, Rung};
use super::identity::Identity;
use super::post::{Post, TargetError, wall_s};
use super::source::{RequestCounts, Source, Tick};
use headway_telemetry::datagram::Writer;
use headway_telemetry::{id, kind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 256 * 1024;

pub struct Settings {
    /// The receiver's socket.
    pub path: PathBuf,
    pub interval: Duration,
    pub identity: Identity,
    /// Seconds since 1970; names the process, with its host and pid.
    pub started_s: f64,
}

/// How a process ends.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// One of mod_wsgi's words, or of ours; see the field `shutdown_reason`.
    pub reason: String,
    pub detail: String,
    /// Whether everything under way could end by itself.
    pub graceful: bool,
}

pub struct Reporter {
    shared: Arc<Shared>,
    thread: Mutex<Thread>,
    pid: u32,
}

#[derive(Default)]
struct Thread {
    /// `None` while it is paused, and once it has ended.
    handle: Option<JoinHandle<()>>,
    /// `pause` without its `resume` yet: several threads may fork at once.
    pauses: usize,
}

struct Shared {
    interval: Duration,
    desk: Mutex<Desk>,
    sources: Mutex<Vec<Arc<dyn Source>>>,
    bell: Bell,
}

/// What it takes to write and send; locked for a tick, or for another datagram.
struct Desk {
    post: Post,
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
    /// Tells that the process has begun, and begins to tick. `sources` are asked in their order; more can be added.
    pub fn start(settings: Settings, sources: Vec<Arc<dyn Source>>) -> Result<Self, TargetError> {
        let post = Post::open(&settings.path)?;
        let mut desk = Desk {
            post,
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
        desk.tell(kind::PROCESS_STARTED, settings.started_s, |_| ());
        let shared = Shared {
            interval: settings.interval,
            desk: Mutex::new(desk),
            sources: Mutex::new(sources),
            bell: Bell::new(),
        };
        let reporter =
            Self { shared: Arc::new(shared), thread: Mutex::default(), pid: std::process::id() };
        reporter.begin(&mut lock(&reporter.thread)).map_err(TargetError::System)?;
        Ok(reporter)
    }

    pub fn add(&self, source: Arc<dyn Source>) {
        if self.is_of_this_process() {
            lock(&self.shared.sources).push(source);
        }
    }

    /// The decision to end was made. Ticks go on until `stop`.
    pub fn stopping(&self, ending: &Ending) {
        if !self.is_of_this_process() {
            return;
        }
        let counts = self.shared.counts();
        lock(&self.shared.desk).tell(kind::PROCESS_STOPPING, wall_s(), |out| {
            ending.write(out);
            if let Some(counts) = counts {
                out.count(id::ACTIVE_REQUESTS_AT_DECISION, counts.active);
            }
        });
    }

    /// The last tick, and that the process ends. Only once.
    pub fn stop(&self, ending: &Ending) {
        if !self.is_of_this_process() {
            return;
        }
        self.pause();
        self.shared.end(ending);
    }

    /// What `ring_for_signal` takes in the handler of a signal that ends the process.
    pub fn bell_number(&self) -> u32 {
        self.shared.bell.number()
    }

    /// Ends the thread, and loses nothing: before a fork, for CPython warns of one in a process of several threads.
    pub fn pause(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut thread = lock(&self.thread);
        thread.pauses += 1;
        if let Some(handle) = thread.handle.take() {
            self.shared.bell.ring();
            let _ = handle.join();
        }
    }

    /// Begins it again, once for each `pause`; not after `stop`.
    pub fn resume(&self) -> std::io::Result<()> {
        if !self.is_of_this_process() {
            return Ok(());
        }
        let mut thread = lock(&self.thread);
        thread.pauses = thread.pauses.saturating_sub(1);
        match thread.pauses {
            0 => self.begin(&mut thread),
            _ => Ok(()),
        }
    }

    fn begin(&self, thread: &mut Thread) -> std::io::Result<()> {
        if thread.handle.is_none() && !lock(&self.shared.desk).has_ended {
            let shared = Arc::clone(&self.shared);
            let _blocked = SignalsBlocked::begin();
            let builder =
                std::thread::Builder::new().name("headway-report".into()).stack_size(STACK_BYTES);
            thread.handle = Some(builder.spawn(move || shared.run())?);
        }
        Ok(())
    }

    fn is_of_this_process(&self) -> bool {
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
        // From the last tick on, although this thread may be younger: a program may fork all the time.
        let mut due = lock(&self.desk).last_tick + self.interval;
        while self.looks_until(due) {
            self.tick(&mut lock(&self.desk));
            // One that comes late, since the machine slept or had no time, is not made up for.
            due = (due + self.interval).max(Instant::now());
        }
    }

    /// Has the sources look around until a tick is due. False once it is over.
    fn looks_until(&self, due: Instant) -> bool {
        loop {
            let often = lock(&self.sources).iter().filter_map(|source| source.look_every()).min();
            let next = often.map_or(due, |often| due.min(Instant::now() + often));
            match self.bell.wait_until(next) {
                None => {}
                Some(Rung::Over) => return false,
                Some(Rung::BySignal) => {
                    self.end(&Ending { reason: "shutdown_signal".into(), ..Ending::default() });
                    return false;
                }
            }
            if next == due {
                return true;
            }
            // Whoever adds a source meanwhile holds no GIL.
            lock(&self.sources).iter().for_each(|source| source.look());
        }
    }

    /// The last tick, and that the process ends; once.
    fn end(&self, ending: &Ending) {
        let mut desk = lock(&self.desk);
        if std::mem::replace(&mut desk.has_ended, true) {
            return;
        }
        self.tick(&mut desk);
        let uptime_s = wall_s() - desk.started_s;
        let counts = self.counts();
        desk.tell(kind::PROCESS_STOPPED, wall_s(), |out| {
            ending.write(out);
            out.number(id::PROCESS_UPTIME, uptime_s.max(0.0));
            out.count(id::GRACEFUL_DRAIN, u64::from(ending.graceful));
            if let Some(counts) = counts {
                out.count(id::LIFETIME_REQUEST_COUNT, counts.lifetime);
                out.count(id::ACTIVE_REQUESTS_AT_EXIT, counts.active);
            }
        });
    }

    fn tick(&self, desk: &mut Desk) {
        let sources = lock(&self.sources).clone();
        if desk.tick(&sources) {
            sources.iter().for_each(|source| source.sent());
            sources.iter().for_each(|source| source.post(&mut desk.post));
        }
    }

    fn counts(&self) -> Option<RequestCounts> {
        lock(&self.sources).iter().find_map(|source| source.requests())
    }
}

impl Desk {
    fn tell(&mut self, kind: u8, stamp_s: f64, write: impl FnOnce(&mut Writer)) {
        let Self { post, identity, started_s, .. } = self;
        let told = post.send_as_of(kind, stamp_s, |out| {
            identity.write(out);
            out.number(id::PROCESS_STARTED_STAMP, *started_s);
            write(out);
        });
        if !told {
            post.lose(1);
        }
    }

    /// False if it could not be sent.
    fn tick(&mut self, sources: &[Arc<dyn Source>]) -> bool {
        let now = Instant::now();
        self.last_tick = now;
        let period_s = (now - self.last_sent).as_secs_f64();
        let lost = self.post.lost();
        let Self { post, identity, scratch, rows_folded, .. } = self;
        let folded_before = *rows_folded;
        let sent = post.send(kind::REQUEST_METRICS, |out| {
            identity.write(out);
            out.number(id::PROCESS_STARTED_STAMP, self.started_s);
            out.number(id::TELEMETRY_INTERVAL, self.interval_s);
            out.number(id::SAMPLE_PERIOD, period_s);
            out.count(id::TICKS_UNSENT, self.ticks_unsent);
            out.count(id::RECORDS_LOST, lost);
            let mut tick = Tick {
                now_ns: monotonic_ns(),
                period_s,
                fields: out,
                scratch,
                folded: rows_folded,
            };
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
            // They are folded again in the next one.
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

/// A thread that is started now gets no signal: those of the process are for Python's threads, whose system calls
/// they are to interrupt.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn begin() -> Self {
        // SAFETY: all zero bytes are a valid set; both sets are live.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Seconds since 1970 at a moment by CLOCK_MONOTONIC.
pub fn wall_of_ns(moment_ns: u64) -> f64 {
    wall_s() - monotonic_ns().saturating_sub(moment_ns) as f64 / 1e9
}

/// CLOCK_MONOTONIC, by which the meter and the server keep their books.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}

#[cfg(test)]
#[path = "reporter_tests.rs"]
mod tests;
