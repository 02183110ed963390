//! The pool: worker threads that share one epoll (model L).
//!
//! One thread polls, queues what became ready, and then takes from the queue like any other; the
//! rest park. So short requests run on one thread without a fight for the GIL, and long ones
//! spread over all threads: a thread that takes up one of several requests while requests are long
//! wakes another, and the monitor wakes one when nobody polls and nothing moves.
//!
//! Connections: read by `turn`, owned through their `word`. Locks are held for a few instructions,
//! never while waiting for the GIL, and never two at a time but for the outboxes'.

mod accept;
mod accept_balancing;
mod batching;
mod custody;
mod eviction;
mod idle;
mod monitor;
mod poller;
mod queue_timeout;
mod ready;
mod shutdown;

use crate::connection::deferred::Outboxes;
use crate::connection::drive::TurnState;
use crate::connection::preamble::Entrance;
use crate::connection::table::{ConnectionTable, MAX_CONNECTIONS};
use crate::http::Limits;
use crate::limits::inbox::Received;
use crate::limits::{Interruption, ProcessLimits, Watch};
use crate::net::epoll::{EVENTS_PER_WAIT, Epoll, Kick};
use crate::net::socket::Listener;
use crate::pool::accept_balancing::Sharing;
use crate::pool::eviction::Eviction;
use crate::pool::idle::{LONG_TURN_NS, Parking, Seat};
use crate::pool::monitor::Monitor;
use crate::pool::ready::{Ready, ReadyQueue};
use crate::pool::shutdown::End;
use crate::request::{Application, Patience};
use crate::stats::access_log::LogBuffer;
use crate::stats::clock::now_ns;
use crate::stats::{AccessLog, Books, PathTables};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What epoll hands back for what is no connection: beyond the index of any slot.
pub(crate) const KICK_DATA: u64 = u64::MAX;
pub(crate) const FIRST_LISTENER_DATA: u64 = u64::MAX - MAX_LISTENERS as u64;
/// Listening sockets of one server.
pub const MAX_LISTENERS: usize = 64;
/// Connections accepted before those that are ready get their turn.
const ACCEPTS_PER_EVENT: usize = 64;

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
    pub entrance: Entrance,
    pub process_limits: ProcessLimits,
    /// Whether somebody reports what is served: see `Books::take`.
    pub reported: bool,
}

/// How long a connection may take for what; see `Stage`.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub keep_alive_ns: u64,
    pub head_ns: u64,
    /// Also how long an application waits for the next piece.
    pub body_ns: u64,
    /// Also how long an application waits for room to write.
    pub write_ns: u64,
}

impl Timeouts {
    /// How long an application's thread waits for its client.
    fn patience(&self) -> Patience {
        let to_ms = |ns: u64| i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        Patience { receive_ms: to_ms(self.body_ns), send_ms: to_ms(self.write_ns) }
    }
}

pub struct Pool<A: Application> {
    application: A,
    pub(crate) epoll: Epoll,
    pub(crate) kick: Kick,
    /// Empty once the server has stopped accepting.
    pub(crate) listeners: Mutex<Vec<Listener>>,
    /// Accepting failed for want of descriptors or slots; a close or the monitor turns it on again.
    pub(crate) accepting_paused: AtomicBool,
    /// When stderr was last told that it failed for want of descriptors; 0: never. Whoever accepts
    /// writes it, relaxed: the exchange lets one of two tell.
    pub(crate) want_told_ns: AtomicU64,
    pub(crate) eviction: Eviction,
    pub(crate) sharing: Sharing,
    pub(crate) table: ConnectionTable,
    pub(crate) ready: ReadyQueue,
    /// True while one thread polls. Taken with a swap by who wants to poll, given back by it.
    pub(crate) polling: AtomicBool,
    pub(crate) parking: Parking,
    pub(crate) monitor: Monitor,
    pub(crate) watch: Watch,
    pub(crate) outboxes: Outboxes,
    /// Turns done. Written by all threads, read by the monitor; relaxed, a hint.
    pub(crate) turns: AtomicU64,
    /// Moving averages of what a turn takes but for its waits for the GIL, and of how much of that
    /// other threads could have used; relaxed, racing writers lose a sample.
    service_ns: AtomicU64,
    parallel_ns: AtomicU64,
    pub(crate) end: End,
    access_log: Option<AccessLog>,
    parallel: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) patience: Patience,
    pub(crate) max_connections: usize,
    pub(crate) entrance: Entrance,
    pub(crate) limits: Arc<Limits>,
    pub(crate) books: Arc<Books>,
}

impl<A: Application> Pool<A> {
    pub fn new(application: A, settings: PoolSettings) -> std::io::Result<Self> {
        let (epoll, kick) = (Epoll::new()?, Kick::new()?);
        for (listener, data) in settings.listeners.iter().zip(FIRST_LISTENER_DATA..KICK_DATA) {
            listener.set_nonblocking()?;
            epoll.add_listener(listener.fd(), data)?;
        }
        epoll.add(kick.fd(), KICK_DATA)?;
        Ok(Self {
            application,
            epoll,
            kick,
            listeners: Mutex::new(settings.listeners),
            accepting_paused: AtomicBool::new(false),
            want_told_ns: AtomicU64::new(0),
            eviction: Eviction::default(),
            sharing: Sharing::new(settings.shared_listeners, ACCEPTS_PER_EVENT),
            table: ConnectionTable::default(),
            ready: ReadyQueue::default(),
            polling: AtomicBool::new(false),
            parking: Parking::default(),
            monitor: Monitor::default(),
            watch: Watch::new(settings.process_limits, settings.reported),
            outboxes: Outboxes::default(),
            turns: AtomicU64::new(0),
            service_ns: AtomicU64::new(0),
            parallel_ns: AtomicU64::new(0),
            end: End::default(),
            access_log: settings.access_log,
            parallel: settings.parallel,
            timeouts: settings.timeouts,
            patience: settings.timeouts.patience(),
            max_connections: settings.max_connections.min(MAX_CONNECTIONS),
            entrance: settings.entrance,
            limits: Arc::new(settings.limits),
            books: Arc::new(Books::new(settings.reported)),
        })
    }

    /// The next request that is to be interrupted, waited for; `None` once the server is over.
    pub fn next_interruption(&self) -> Option<Interruption> {
        match self.watch.interruptions.wait(Duration::MAX, || self.is_over()) {
            Received::Task(interruption) => Some(interruption),
            Received::Nothing | Received::Over => None,
        }
    }

    pub fn application(&self) -> &A {
        &self.application
    }

    /// Works until the server has stopped and its last connection is closed, or it was aborted.
    pub fn work(&self, thread: &mut A::Thread) {
        let mut state = self.turn_state(Some(thread));
        let seat = self.parking.join();
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        while !self.is_over() {
            if let Some(thread) = &mut state.thread {
                self.application.tidy(thread);
            }
            if self.is_one_too_many(&seat, &state) {
                self.flush_log(&mut state.log);
                self.rest(&seat, || self.is_over() || self.has_work_nobody_sees());
            } else if let Some((ready, waiting)) = self.ready.pop() {
                self.wake_another_if_worth_it(waiting);
                self.begin_burst_if_worth_it(waiting, &state);
                self.take_turn(ready, &seat, &mut state);
                if state.outbox.is_due(state.now_ns) {
                    self.end_burst(&seat, &mut state);
                }
            } else if state.outbox.is_open() {
                self.end_burst(&seat, &mut state);
            } else if !self.polling.swap(true, SeqCst) {
                self.poll(&mut events, &mut state.log);
            } else {
                self.parking.step_back(&seat);
                self.flush_log(&mut state.log);
                self.rest(&seat, || self.is_over() || !self.ready.is_empty() || !self.is_polling());
            }
        }
        self.send_held(&mut state);
        self.flush_log(&mut state.log);
        self.parking.leave(&seat);
        self.leave(&state);
        // The others wait for the same end.
        self.wake_everyone();
    }

    /// What the calling thread keeps between turns; without a `thread` it runs no requests.
    pub(crate) fn turn_state<'a>(
        &self,
        thread: Option<&'a mut A::Thread>,
    ) -> TurnState<'a, A::Thread> {
        TurnState::new(thread, self.watch.join(), self.outboxes.join(), &self.books)
    }

    pub(crate) fn leave(&self, state: &TurnState<A::Thread>) {
        self.watch.leave(&state.activity);
        self.outboxes.leave(&state.outbox);
    }

    /// Sleeps in the lot unless `missed` says that there is something to do after all.
    fn rest(&self, seat: &Arc<Seat>, missed: impl Fn() -> bool) {
        // If nobody polls, only the monitor will notice work that nobody takes.
        self.monitor.wake_if_asleep();
        if missed() {
            self.parking.step_forward(seat);
        } else {
            self.parking.rest(seat);
        }
    }

    fn take_turn(&self, ready: Ready, seat: &Seat, state: &mut TurnState<A::Thread>) {
        let begun_ns = now_ns();
        let limit_ns = self.watch.limits.queue_ns;
        state.late = limit_ns != 0 && begun_ns.saturating_sub(ready.since_ns) > limit_ns;
        seat.begin_turn(begun_ns);
        (state.now_ns, state.gil_wait_ns, state.gil_held_ns) = (begun_ns, 0, 0);
        self.drive(self.table.resume(ready.connection), state);
        seat.end_turn();
        self.turns.fetch_add(1, Relaxed);
        let service_ns = (state.now_ns - begun_ns).saturating_sub(state.gil_wait_ns);
        average(&self.service_ns, service_ns);
        average(&self.parallel_ns, service_ns.saturating_sub(state.gil_held_ns));
    }

    /// Requests by place and path, of all threads together.
    pub fn requests(&self) -> PathTables {
        self.books.paths()
    }

    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    pub fn books(&self) -> &Arc<Books> {
        &self.books
    }

    /// Has the threads that rest call `Application::tidy`. One that is about to rest may miss it.
    pub fn call_everyone(&self) {
        self.parking.wake_all();
        self.kick.kick();
    }

    pub fn open_connections(&self) -> usize {
        self.table.open()
    }

    pub(crate) fn access_log(&self) -> Option<&AccessLog> {
        self.access_log.as_ref()
    }

    pub(crate) fn average_turn_ns(&self) -> u64 {
        self.service_ns.load(Relaxed)
    }

    /// Whether one thread does as well as several.
    pub(crate) fn is_light(&self) -> bool {
        self.parallel_ns.load(Relaxed) < LONG_TURN_NS
    }

    /// Called before a turn, behind which `waiting` connections are ready, so that the others need not
    /// wait for its end. If none is ready, and there is a GIL, that nobody polls is the monitor's business:
    /// to wake a thread for each of the short requests between long ones would cost these their core.
    fn wake_another_if_worth_it(&self, waiting: usize) {
        let worth_it = match self.parallel {
            true => waiting > 0 || !(self.is_light() || self.is_polling()),
            false => waiting > 0 && !self.is_light(),
        };
        if worth_it && self.parking.has_parked() {
            self.parking.wake_one();
        }
    }

    /// Whether the calling thread has stepped back, for another is awake that will do: with a GIL, two
    /// that run short requests only wait for each other. One that polls does not do for what is ready.
    fn is_one_too_many(&self, seat: &Arc<Seat>, state: &TurnState<A::Thread>) -> bool {
        self.is_light()
            && self.parking.has_several_awake()
            && !state.outbox.is_open()
            && (self.ready.is_empty() || !self.parallel && !self.is_polling())
            && self.parking.step_back_behind_another(seat, now_ns())
    }

    /// Something is ready while a thread sleeps in epoll, which will not take it. Asked after
    /// stepping back; who polls asks for what is ready after it set `polling`, so that one of the
    /// two sees the other.
    fn has_work_nobody_sees(&self) -> bool {
        self.is_polling() && !self.ready.is_empty()
    }

    pub(crate) fn flush_log(&self, log: &mut LogBuffer) {
        if let Some(file) = &self.access_log {
            log.flush(file);
        }
    }
}

fn average(of: &AtomicU64, sample: u64) {
    let past = of.load(Relaxed);
    of.store(past - past / 16 + sample / 16, Relaxed);
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
