//! The pool: worker threads that share one epoll.
//!
//! - [`worker`]: the loop of a thread; it takes a connection from the queue and has the connection
//!   driver ([`drive`]) serve it.
//! - [`handover`]: which requests another process answers.
//! - [`poller`], [`accept`]: what the thread that polls does with events.
//! - [`scheduling`]: the decisions, as pure functions; [`scheduler`]: the state that they depend
//!   on, with the queue ([`ready`]) and the list of parked threads ([`idle`]).
//! - [`monitor`]: the thread that looks after the others.
//!
//! Locks are held for a few instructions, never while waiting for the GIL, and never two at a
//! time, except that of all deferred responses with that of one thread's.

mod accept;
mod accept_balancing;
mod drive;
mod eviction;
pub(crate) mod handover;
mod idle;
mod monitor;
mod monitor_handle;
mod poller;
mod ready;
pub(crate) mod scheduler;
mod scheduling;
mod worker;

pub use crate::connection::deadline::Timeouts;

use crate::connection::buffers::BufferPool;
use crate::connection::deadline::Deadlines;
use crate::connection::deferred::AllDeferredResponses;
use crate::connection::preamble::Preamble;
use crate::connection::table::{Table, Unowned};
use crate::http::Limits;
use crate::limits::inbox::Received;
use crate::limits::{Interruption, LimitChecks, ProcessLimits};
use crate::net::epoll::{Epoll, Waker};
use crate::net::listener::Listener;
use crate::pool::accept::{Acceptor, Admission};
use crate::pool::drive::{Driver, WorkerState};
use crate::pool::handover::Handover;
use crate::pool::monitor::Monitor;
use crate::pool::poller::{FIRST_LISTENER_DATA, Poller, WAKER_DATA};
use crate::pool::scheduler::PoolScheduler;
use crate::pool::worker::Worker;
use crate::request::Application;
use crate::shutdown::Shutdown;
use crate::stats::thread_requests::ThreadRequests;
use crate::stats::{AccessLog, PathTables, ServerStats};
use headway_measure::clock::now_ns;
use headway_threads::internal_thread;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Monitors of one server, one after another.
const MAX_MONITORS: usize = 3;

pub struct PoolSettings {
    /// At most `accept::MAX_LISTENERS` of them, and a queue of connections.
    pub listeners: Vec<Listener>,
    /// Other processes accept from these listeners too.
    pub shared_listeners: bool,
    /// Requests that other processes answer, whose connections are handed over.
    pub handover: Option<Handover>,
    pub access_log: Option<AccessLog>,
    /// Threads run Python at the same time, without a GIL or with several.
    pub parallel: bool,
    pub timeouts: Timeouts,
    pub limits: Limits,
    /// Connections that may be open at once, at most `table::MAX_CONNECTIONS`.
    pub max_connections: usize,
    pub preamble: Preamble,
    pub process_limits: ProcessLimits,
    /// Telemetry reports the requests: see `ServerStats::take`.
    pub reported: bool,
}

pub struct Pool<A: Application> {
    driver: Driver<A>,
    table: Arc<Table>,
    scheduler: Arc<PoolScheduler>,
    acceptor: Arc<Acceptor>,
    poller: Poller,
    deferred: AllDeferredResponses,
    shutdown: Arc<Shutdown>,
    access_log: Option<Arc<AccessLog>>,
    /// Sweeps in which the monitor is to panic. Written by tests, read by the monitor; `SeqCst`.
    #[cfg(test)]
    requested_panics: AtomicUsize,
}

impl<A: Application> Pool<A> {
    pub fn new(application: A, settings: PoolSettings) -> std::io::Result<Self> {
        let (epoll, waker) = (Arc::new(Epoll::new()?), Waker::new()?);
        epoll.add(waker.fd(), WAKER_DATA)?;
        let stats = Arc::new(ServerStats::new(settings.reported));
        let shutdown = Arc::<Shutdown>::default();
        let table = Arc::new(Table::new(Arc::clone(&epoll), Arc::clone(&stats)));
        let scheduler = Arc::new(PoolScheduler::new(waker, settings.parallel));
        let preamble = Arc::new(settings.preamble);
        let deadlines = Deadlines::new(settings.timeouts, Arc::clone(&shutdown));
        let admission = Admission {
            table: Arc::clone(&table),
            scheduler: Arc::clone(&scheduler),
            preamble: Arc::clone(&preamble),
            deadlines: deadlines.clone(),
            limits: Arc::new(settings.limits),
        };
        let acceptor = Arc::new(Acceptor::new(
            admission,
            Arc::clone(&epoll),
            FIRST_LISTENER_DATA,
            settings.listeners,
            settings.shared_listeners,
            settings.max_connections,
        )?);
        let poller =
            Poller::new(epoll, Arc::clone(&table), Arc::clone(&scheduler), Arc::clone(&acceptor));
        let driver = Driver {
            application,
            preamble,
            deadlines,
            io_timeouts: settings.timeouts.of_application(),
            shutdown: Arc::clone(&shutdown),
            handover: settings.handover,
            scheduler: Arc::clone(&scheduler),
            limits: LimitChecks::new(settings.process_limits, settings.reported),
            stats,
        };
        Ok(Self {
            driver,
            table,
            scheduler,
            acceptor,
            poller,
            deferred: AllDeferredResponses::default(),
            shutdown,
            access_log: settings.access_log.map(Arc::new),
            #[cfg(test)]
            requested_panics: AtomicUsize::new(0),
        })
    }

    /// Works until the server has stopped and its last connection is closed, or it was aborted.
    pub fn work(&self, thread: &mut A::Thread) {
        Worker::new(self, Some(thread)).run();
    }

    /// Supervises the workers until the server is over. One thread calls this. A monitor that
    /// panics is replaced. After `MAX_MONITORS` the server goes on without a monitor, and so
    /// without timeouts and limits.
    pub fn monitor(&self) {
        let run = || Monitor::new(self).run();
        (0..MAX_MONITORS).find(|_| internal_thread::survive("headway-monitor", run).is_some());
    }

    /// The calling thread's state between turns; without a `thread` it runs no requests.
    fn worker_state<'a>(&self, thread: Option<&'a mut A::Thread>) -> WorkerState<'a, A::Thread> {
        let requests =
            ThreadRequests::new(&self.driver.stats, self.access_log.clone(), thread.is_some());
        WorkerState {
            thread,
            queue_timed_out: false,
            deferred: self.deferred.join(),
            status: self.driver.limits.join(),
            requests,
            buffers: BufferPool::default(),
            date: Vec::new(),
            now_ns: now_ns(),
            gil_wait_ns: 0,
            gil_held_ns: 0,
        }
    }

    /// Stops accepting, lets every request end that was sent before, and then lets `work` return.
    ///
    /// Connections without a request are closed, or kept for up to `keep_idle_ns`: a client may be
    /// sending its next request on one, and would lose the request. That request is answered with
    /// `Connection: close`. A second call only changes the time for which connections are kept.
    pub fn stop(&self, keep_idle_ns: u64) {
        let listeners = self.acceptor.stop();
        // This comes after accepting, because a server without connections is over as soon as it
        // stops.
        if !self.shutdown.begin(now_ns().saturating_add(keep_idle_ns)) {
            return;
        }
        drop(listeners);
        for mut owned in self.table.slots().filter_map(Unowned::claim) {
            // Bytes may have arrived that no event has reported yet.
            owned.readable = true;
            self.scheduler.submit(owned);
        }
        self.scheduler.wake_everyone();
    }

    /// Makes `work` return as soon as each thread's application does, whatever connections are
    /// open. Requests that read or send are cut off.
    pub fn abort(&self) {
        self.shutdown.abort();
        self.scheduler.wake_everyone();
    }

    pub fn cut_off(&self) -> u32 {
        self.shutdown.cut_off()
    }

    pub fn is_over(&self) -> bool {
        self.shutdown.is_over(|| self.table.open())
    }

    /// Makes the parked threads call `Application::quiesce`. A thread that is about to park may
    /// miss it.
    pub fn request_quiesce(&self) {
        self.scheduler.wake_workers();
    }

    /// Waits for the next request that must be interrupted; `None` once the server is over.
    pub fn next_interruption(&self) -> Option<Interruption> {
        match self.limits().interruptions.wait(Duration::MAX, || self.is_over()) {
            Received::Task(interruption) => Some(interruption),
            Received::Nothing | Received::Over => None,
        }
    }

    pub fn application(&self) -> &A {
        &self.driver.application
    }

    pub fn limits(&self) -> &LimitChecks {
        &self.driver.limits
    }

    pub fn stats(&self) -> &Arc<ServerStats> {
        &self.driver.stats
    }

    /// Requests by interpreter slot and path, of all threads together.
    pub fn requests(&self) -> PathTables {
        self.driver.stats.paths()
    }

    pub fn open_connections(&self) -> usize {
        self.table.open()
    }
}

#[cfg(test)]
impl<A: Application> Pool<A> {
    fn panic_if_requested(&self) {
        let requested = self.requested_panics.load(SeqCst);
        if requested > 0 {
            self.requested_panics.store(requested - 1, SeqCst);
            panic!("requested by a test");
        }
    }
}

#[cfg(test)]
#[path = "batching_tests.rs"]
mod batching_tests;
#[cfg(test)]
#[path = "deadline_tests.rs"]
mod deadline_tests;
#[cfg(test)]
#[path = "limit_tests.rs"]
mod limit_tests;
#[cfg(test)]
#[path = "lingering_tests.rs"]
mod lingering_tests;
#[cfg(test)]
#[path = "preamble_tests.rs"]
mod preamble_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
