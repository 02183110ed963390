//! The pool: worker threads that share one epoll.
//!
//! One thread polls, queues what became ready, and then takes from the queue like any other; the
//! rest are parked. So short requests run on one thread without contention for the GIL, and long ones
//! spread over all threads: a thread that takes up one of several requests while requests are long
//! wakes another, and the monitor wakes one when no thread polls and no turn ends.
//!
//! - [`dispatcher`]: which connections and threads wait, and for what.
//! - `scheduling`: the decisions, as pure functions; `idle`: the threads that are parked.
//! - `worker`, `monitor`: the two kinds of thread; `runner`: how both run a connection.
//! - `poller`, `accept` with `accept_balancing` and `eviction`: events, and new connections.
//!
//! Locks are held for a few instructions, never while a thread waits for the GIL, and never two at a
//! time except for the outboxes'.

mod accept;
mod accept_balancing;
pub(crate) mod dispatcher;
mod eviction;
mod idle;
mod monitor;
mod monitor_waker;
pub(crate) mod phase;
mod poller;
mod ready;
mod runner;
mod scheduling;
mod worker;

use crate::connection::deadline::Timeouts;
use crate::connection::deferred::DeferredOfThreads;
use crate::connection::drive::Driver;
use crate::connection::preamble::Preamble;
use crate::connection::table::MAX_CONNECTIONS;
use crate::http::Limits;
use crate::limits::inbox::Received;
use crate::limits::{Interruption, ProcessLimits, Watch};
use crate::net::socket::Listener;
use crate::request::Application;
use crate::stats::{AccessLog, Counters, PathTables};
use accept::{Acceptor, AcceptorSettings};
use dispatcher::Dispatcher;
use headway_measure::clock::now_ns;
use monitor::Monitor;
use std::sync::Arc;
use std::time::Duration;
use worker::Worker;

pub use accept::MAX_LISTENERS;

pub struct PoolSettings {
    /// At most `MAX_LISTENERS`.
    pub listeners: Vec<Listener>,
    /// Other processes accept from them too.
    pub shared_listeners: bool,
    pub access_log: Option<AccessLog>,
    /// Threads run Python at the same time, without a GIL or with several: wake one more whenever work is waiting.
    pub parallel: bool,
    pub timeouts: Timeouts,
    pub limits: Limits,
    /// Connections that may be open at once, at most `MAX_CONNECTIONS`.
    pub max_connections: usize,
    pub preamble: Preamble,
    pub process_limits: ProcessLimits,
    /// Whether somebody reports what is served: see `Books::take`.
    pub reported: bool,
}

pub struct Pool<A: Application> {
    dispatcher: Arc<Dispatcher>,
    acceptor: Acceptor,
    driver: Driver<A>,
    deferred_of_threads: DeferredOfThreads,
}

impl<A: Application> Pool<A> {
    pub fn new(application: A, settings: PoolSettings) -> std::io::Result<Self> {
        let counters = Arc::new(Counters::new(settings.reported));
        let dispatcher = Arc::new(Dispatcher::new(counters, settings.parallel)?);
        let preamble = Arc::new(settings.preamble);
        let timeouts = settings.timeouts;
        let acceptor = Acceptor::new(
            Arc::clone(&dispatcher),
            AcceptorSettings {
                listeners: settings.listeners,
                shared: settings.shared_listeners,
                preamble: Arc::clone(&preamble),
                timeouts,
                limits: settings.limits,
                max_connections: settings.max_connections.min(MAX_CONNECTIONS),
            },
        )?;
        let driver = Driver {
            application,
            dispatcher: Arc::clone(&dispatcher),
            preamble,
            timeouts,
            patience: timeouts.patience(),
            watch: Watch::new(settings.process_limits, settings.reported),
            access_log: settings.access_log,
        };
        Ok(Self { dispatcher, acceptor, driver, deferred_of_threads: DeferredOfThreads::default() })
    }

    /// Works until the server has stopped and its last connection is closed, or it was aborted.
    pub fn work(&self, thread: &mut A::Thread) {
        Worker::new(&self.driver, &self.acceptor, &self.deferred_of_threads, thread).work();
    }

    /// Runs the monitor until the server is over. One thread calls this.
    pub fn monitor(&self) {
        Monitor::new(&self.driver, &self.acceptor, &self.deferred_of_threads).work();
    }

    /// Stops accepting, lets every request that was sent before end, then lets `work` return.
    ///
    /// Connections without a request are closed, or kept for up to `keep_idle_ns`: a client may be
    /// sending its next request on one, and would lose it. That request is answered with
    /// `Connection: close`. Called again it only changes for how long they are kept.
    pub fn stop(&self, keep_idle_ns: u64) {
        let dispatcher = &self.dispatcher;
        let listeners = self.acceptor.stop();
        // Not before: a server without connections is over as soon as it is stopping.
        if !dispatcher.phase.stop(now_ns().saturating_add(keep_idle_ns)) {
            return;
        }
        drop(listeners);
        dispatcher.phase.count_stop();
        for slot in dispatcher.table.slots() {
            if let Some(mut connection) = slot.claim() {
                // A request may have come that no event has reported yet.
                connection.readable = true;
                dispatcher.submit(connection);
            }
        }
        dispatcher.wake_everyone();
    }

    /// Lets `work` return as soon as each thread's application does, whatever is open.
    pub fn abort(&self) {
        self.dispatcher.phase.abort();
        self.dispatcher.wake_everyone();
    }

    pub fn is_over(&self) -> bool {
        self.dispatcher.is_over()
    }

    /// The next request that is to be interrupted, waited for; `None` once the server is over.
    pub fn next_interruption(&self) -> Option<Interruption> {
        match self.watch().interruptions.wait(Duration::MAX, || self.is_over()) {
            Received::Task(interruption) => Some(interruption),
            Received::Nothing | Received::Over => None,
        }
    }

    pub fn application(&self) -> &A {
        &self.driver.application
    }

    /// Requests by place and path, of all threads together.
    pub fn requests(&self) -> PathTables {
        self.counters().paths()
    }

    pub fn watch(&self) -> &Watch {
        &self.driver.watch
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.dispatcher.counters
    }

    /// Has the threads that are parked call `Application::tidy`. One that is about to park may miss it.
    pub fn call_everyone(&self) {
        self.dispatcher.idle.wake_all();
        self.dispatcher.waker.wake();
    }

    pub fn open_connections(&self) -> usize {
        self.dispatcher.table.open()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "batching_tests.rs"]
mod burst_tests;
#[cfg(test)]
#[path = "deadline_tests.rs"]
mod deadline_tests;
#[cfg(test)]
#[path = "preamble_tests.rs"]
mod entrance_tests;
#[cfg(test)]
#[path = "limit_tests.rs"]
mod limit_tests;
#[cfg(test)]
#[path = "lingering_tests.rs"]
mod lingering_tests;
