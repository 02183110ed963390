//! A turn: what a worker thread does with one connection that is ready, until it has to wait.
//!
//! Read, parse, gather a small body, run the application, write, and again while further requests
//! are at hand. Called with the connection owned (its word BUSY); never waits, except where the
//! application does.

use crate::connection::deadline::{Timeouts, has_gone_on};
use crate::connection::deferred::{self, Deferred, DeferredResponses};
use crate::connection::lingering;
use crate::connection::preamble::{Preamble, PreambleStep};
use crate::connection::state::{BufferPool, Connection, Forwarding, Progress, Stage};
use crate::connection::table::Queued;
use crate::http::connection::Finished;
use crate::http::{Event, Head, Rejection};
use crate::limits::{Watch, WorkerStatus};
use crate::net::socket::{self, Transfer};
use crate::pool::dispatcher::Dispatcher;
use crate::request::{Application, Patience, RequestContext, encode_refusal};
use crate::stats::access_log::{Asked, LogBuffer, LogForm, Request};
use crate::stats::cpu_charges::CpuCharges;
use crate::stats::date_cache::DateCache;
use crate::stats::{AccessLog, Counters, RequestRecord, Slot, ThreadCounters};
use headway_measure::clock::now_ns;
use headway_reporter::lock::Lock;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A body is gathered before the application is called until it is complete or this large, so
/// that a slow sender of a small form holds no thread, and its framing is checked beforehand.
const GATHERED_BODY_BYTES: usize = 65_536;
/// Requests of one connection that a turn runs before others get theirs.
const REQUESTS_PER_TURN: usize = 16;

/// For so long a request may hold the GIL without others being run beside it: they would wait for it.
const SHORT_HOLD_NS: u64 = 1_000_000;

/// What one worker thread keeps between turns.
pub struct WorkerState<'a, T> {
    /// What the application keeps of this thread; without it no requests are run.
    pub thread: Option<&'a mut T>,
    /// What this turn is for has waited for a thread for longer than is allowed.
    pub late: bool,
    /// Responses of this thread that may go out later.
    pub deferred: Arc<DeferredResponses>,
    /// Where what was in the outbox lies while it is sent; empty between turns.
    pub held: Vec<Deferred>,
    /// Connections whose responses were sent just now; empty between turns.
    pub sent: Vec<Queued>,
    /// What others may know of this thread.
    pub activity: Arc<WorkerStatus>,
    pub dates: DateCache,
    pub log: LogBuffer,
    /// Written by this thread, read or taken by whoever wants to know.
    pub book: Arc<Lock<ThreadCounters>>,
    /// What others may know of it with telemetry, where it runs requests.
    pub slot: Option<Arc<Slot>>,
    /// Memory for the next requests that begin.
    pub buffers: BufferPool,
    /// The date of the response under way, so that it does not borrow from `dates`.
    pub date: Vec<u8>,
    pub cpu: CpuCharges,
    /// When this turn began or, later, when its last request ended.
    pub now_ns: u64,
    /// How long its requests have waited for the GIL.
    pub gil_wait_ns: u64,
    /// And held it, those that did so for a short time.
    pub gil_held_ns: u64,
}

impl<'a, T> WorkerState<'a, T> {
    pub fn new(
        thread: Option<&'a mut T>,
        activity: Arc<WorkerStatus>,
        deferred: Arc<DeferredResponses>,
        counters: &Counters,
    ) -> Self {
        let slot = thread.as_ref().and_then(|_| counters.join_workers());
        Self {
            thread,
            late: false,
            deferred,
            held: Vec::new(),
            sent: Vec::new(),
            activity,
            dates: DateCache::default(),
            log: LogBuffer::default(),
            book: counters.join(),
            slot,
            buffers: BufferPool::default(),
            date: Vec::new(),
            cpu: CpuCharges::of_this_thread(),
            now_ns: now_ns(),
            gil_wait_ns: 0,
            gil_held_ns: 0,
        }
    }
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// It waits for an event.
    Wait,
    /// It has more requests at hand, but others may go first.
    Yield,
    /// Its response is to go out with others'.
    Hold(RequestRecord),
    Close,
}

/// What turns need of the server.
pub struct Driver<A> {
    pub application: A,
    pub dispatcher: Arc<Dispatcher>,
    pub preamble: Arc<Preamble>,
    pub timeouts: Timeouts,
    pub patience: Patience,
    pub watch: Watch,
    pub access_log: Option<AccessLog>,
}

impl<A: Application> Driver<A> {
    pub fn turn(&self, connection: &mut Connection, state: &mut WorkerState<A::Thread>) -> Outcome {
        connection.borrow_buffers(&mut state.buffers);
        match std::mem::take(&mut connection.expired) {
            true => self.drive_expired(connection, state),
            false => self.advance(connection, state),
        }
    }

    fn advance(&self, connection: &mut Connection, state: &mut WorkerState<A::Thread>) -> Outcome {
        let mut requests = 0;
        loop {
            match connection.stage {
                Stage::Opening { .. } => match self.preamble.pass(connection) {
                    PreambleStep::Passed => {
                        connection.stage = Stage::Idle;
                        connection.readable = true;
                        connection.owes_first_request = self.dispatcher.phase.is_stopping();
                    }
                    PreambleStep::Refused(rejection) => {
                        begin_request(connection, state.now_ns);
                        self.refuse(connection, rejection, state);
                    }
                    PreambleStep::Silent
                        if self.dispatcher.phase.is_stopping() && !self.dispatcher.keeps_idle() =>
                    {
                        return Outcome::Close;
                    }
                    PreambleStep::Silent | PreambleStep::Wait => return Outcome::Wait,
                    PreambleStep::Close => return Outcome::Close,
                },
                Stage::Lingering { since_ns, expecting } => {
                    let is_stopping = self.dispatcher.phase.is_stopping();
                    let end_ns = lingering::end_ns(since_ns, expecting, is_stopping);
                    return match lingering::linger(connection, end_ns) {
                        Transfer::Ended => Outcome::Close,
                        Transfer::Unfinished => Outcome::Yield,
                        Transfer::WouldBlock | Transfer::Moved(_) => Outcome::Wait,
                    };
                }
                Stage::Writing(finished) => match connection.send() {
                    Transfer::Moved(_) => match after_response(connection, finished) {
                        Outcome::Wait => {}
                        other => return other,
                    },
                    Transfer::WouldBlock => return Outcome::Wait,
                    Transfer::Unfinished => return Outcome::Yield,
                    Transfer::Ended => return Outcome::Close,
                },
                Stage::Idle | Stage::Head | Stage::Body => {
                    if requests == REQUESTS_PER_TURN {
                        return Outcome::Yield;
                    }
                    match self.read_request(connection, state) {
                        Some(outcome) => return outcome,
                        None => requests += 1,
                    }
                }
            }
        }
    }

    /// Reads until a request can be run, and runs it (`None`), or until something must be waited
    /// for or the connection is over.
    fn read_request(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Option<Outcome> {
        loop {
            match connection.http.next_event() {
                Event::NeedData => {
                    if connection.stage == Stage::Head && connection.http.is_idle() {
                        // What came was no head: the rest of a body, an empty line.
                        connection.stage = Stage::Idle;
                    }
                    if connection.readable {
                        if connection.stage == Stage::Idle || connection.http.is_discarding() {
                            begin_request(connection, state.now_ns);
                        }
                        connection.receive();
                        if connection.stage == Stage::Idle && !connection.http.is_idle() {
                            connection.stage = Stage::Head;
                        }
                    } else if self.dispatcher.phase.is_stopping()
                        && connection.stage == Stage::Idle
                        && !connection.owes_first_request
                    {
                        // Nobody may have polled since a next request came.
                        connection.readable = true;
                        match connection.receive() {
                            Transfer::Moved(_) => {
                                begin_request(connection, state.now_ns);
                                connection.stage = Stage::Head;
                            }
                            Transfer::WouldBlock if self.dispatcher.keeps_idle() => {
                                return Some(Outcome::Wait);
                            }
                            _ => return Some(Outcome::Close),
                        }
                    } else {
                        return Some(Outcome::Wait);
                    }
                }
                Event::Request => {
                    connection.has_sent_request = true;
                    if state.late {
                        // Nobody had time for it while it was worth it.
                        self.refuse(connection, Rejection::QueueTimeout, state);
                        return None;
                    }
                    connection.stage = Stage::Body;
                    connection.body.clear();
                    if connection.http.awaits_continue() {
                        return self.run(connection, state);
                    }
                }
                Event::Data(range) => {
                    connection.body.extend_from_slice(connection.http.bytes(range));
                    if connection.body.unread().len() >= GATHERED_BODY_BYTES {
                        return self.run(connection, state);
                    }
                }
                Event::EndOfMessage => return self.run(connection, state),
                Event::Refused(rejection) => {
                    self.refuse(connection, rejection, state);
                    return None;
                }
                Event::Paused | Event::Closed => return Some(Outcome::Close),
            }
        }
    }

    /// Calls the application; sends its response as far as it goes (`None`), or has it held.
    fn run(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Option<Outcome> {
        let Some(thread) = state.thread.as_deref_mut().filter(|_| !state.late) else {
            self.refuse(connection, Rejection::QueueTimeout, state);
            return None;
        };
        let begun = connection.progress;
        state.date.clear();
        state.date.extend_from_slice(state.dates.http().as_bytes());
        if connection.forwarding != Forwarding::Unknown {
            connection.origin = self.preamble.origin_of(connection);
        }
        if let Some(slot) = &state.slot {
            slot.begin(state.now_ns);
        }
        let slow_requests = self.watch.slow_requests.as_deref();
        if let Some(slow_requests) = slow_requests {
            slow_requests.begin(&state.activity, connection);
        }
        let (head, bytes) = connection.http.head();
        state.activity.begin_request(&bytes[head.method.clone()], &bytes[head.target.clone()]);
        let (date, activity) = (&state.date, &state.activity);
        let in_burst = state.deferred.is_open();
        let routes =
            self.dispatcher.counters.is_reported().then_some(&self.dispatcher.counters.routes);
        let mut exchange = RequestContext::new(
            connection,
            date,
            &self.dispatcher,
            self.patience,
            activity,
            &state.deferred,
            routes,
        );
        self.application.handle(thread, &mut exchange);
        exchange.take_back();
        let (mut record, finished) = (exchange.record, exchange.finished());
        let (ended_ns, transmitted_ns) = (exchange.ended_ns, exchange.transmitted_ns);
        state.gil_wait_ns += record.gil_wait_ns.unwrap_or(0);
        state.gil_held_ns += record.gil_held_ns.unwrap_or(0).min(SHORT_HOLD_NS);
        record.queue_ns = begun.started_ns.saturating_sub(begun.noticed_ns);
        connection.stage = Stage::Writing(finished);
        let holds = in_burst && deferred::is_small(connection) && connection.has_unsent();
        let end_ns = match holds {
            true => now_ns(),
            false => self.send_response(connection, &mut record, ended_ns.max(transmitted_ns)),
        };
        if let Some(slow_requests) = slow_requests {
            slow_requests.end(&state.activity, &record, end_ns);
        }
        state.activity.end_request(end_ns);
        self.watch.count_request();
        record.cpu_ns = state.cpu.charge(end_ns - std::mem::replace(&mut state.now_ns, end_ns));
        if let Some(slot) = &state.slot {
            slot.end(end_ns, record.cpu_ns);
        }
        if holds {
            return Some(Outcome::Hold(record));
        }
        self.end_request(connection, &record, end_ns, state);
        None
    }

    /// A turn of a connection whose deadline has passed. What it waited for may be there, and no
    /// thread was free to see it.
    fn drive_expired(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Outcome {
        connection.readable = true;
        match self.advance(connection, state) {
            Outcome::Wait if !has_gone_on(connection) => self.give_up(connection, state),
            outcome => outcome,
        }
    }

    fn give_up(&self, connection: &mut Connection, state: &mut WorkerState<A::Thread>) -> Outcome {
        match connection.stage {
            // Its request was answered.
            Stage::Head if connection.http.is_discarding() => Outcome::Close,
            Stage::Head | Stage::Body => {
                self.refuse(connection, Rejection::RequestTimeout, state);
                self.advance(connection, state)
            }
            Stage::Writing(_) => {
                socket::reset(connection.socket.as_fd());
                Outcome::Close
            }
            Stage::Opening { .. } | Stage::Idle | Stage::Lingering { .. } => Outcome::Close,
        }
    }

    /// Hands over what is unsent as far as it goes, since `begun_ns`; returns when that was done. What
    /// was out by then was out then, even if this thread has lost its core since.
    pub fn send_response(
        &self,
        connection: &mut Connection,
        record: &mut RequestRecord,
        begun_ns: u64,
    ) -> u64 {
        let mut end_ns = begun_ns;
        if connection.has_unsent() {
            if connection.send() == Transfer::Ended {
                connection.stage = Stage::Writing(Finished::Truncated { reset: false });
            }
            end_ns = now_ns();
        }
        record.output_write_ns += end_ns - begun_ns;
        record.response_ns = record.queue_ns + (end_ns - connection.progress.started_ns);
        end_ns
    }

    /// The record is complete, and the next request of this connection may begin.
    pub fn end_request(
        &self,
        connection: &mut Connection,
        record: &RequestRecord,
        end_ns: u64,
        state: &mut WorkerState<A::Thread>,
    ) {
        self.keep_record(connection, Some(connection.http.head()), record, state);
        // A request that came meanwhile waited for this one; it is noticed now. Of one that is still to be
        // read no event may tell any more.
        connection.progress = Progress { noticed_ns: end_ns, started_ns: end_ns };
        connection.noticed_ns = end_ns;
    }

    /// Counts a request, of which there may be no head, and writes its line.
    fn keep_record(
        &self,
        connection: &Connection,
        request: Option<(&Head, &[u8])>,
        record: &RequestRecord,
        state: &mut WorkerState<A::Thread>,
    ) {
        let target = request.map_or(&b"-"[..], |(head, bytes)| &bytes[head.target.clone()]);
        state.book.lock().record(target, record);
        if let Some(log) = &self.access_log {
            let request = request.map(|(head, bytes)| {
                let field = |name: &[u8]| match log.form {
                    LogForm::Combined => head.field(bytes, name),
                    _ => None,
                };
                Request {
                    method: &bytes[head.method.clone()],
                    target,
                    minor_version: head.minor_version,
                    referer: field(b"referer"),
                    user_agent: field(b"user-agent"),
                }
            });
            let asked = Asked { address: connection.client().0, request };
            state.log.push(log, asked, record, &mut state.dates);
        }
    }

    /// Answers what is malformed, or came too late; the connection will close.
    fn refuse(
        &self,
        connection: &mut Connection,
        rejection: Rejection,
        state: &mut WorkerState<A::Thread>,
    ) {
        let date = state.dates.http().as_bytes();
        let status =
            encode_refusal(&mut connection.http, rejection, date, &mut connection.outgoing);
        connection.stage = Stage::Writing(Finished::Close);
        let begun = connection.progress;
        let record = RequestRecord {
            status,
            queue_ns: begun.started_ns.saturating_sub(begun.noticed_ns),
            response_ns: now_ns().saturating_sub(begun.noticed_ns),
            ..RequestRecord::default()
        };
        connection.origin =
            connection.http.request().and_then(|_| self.preamble.origin_of(connection));
        self.keep_record(connection, connection.http.request(), &record, state);
    }
}

fn begin_request(connection: &mut Connection, now_ns: u64) {
    connection.progress = Progress { noticed_ns: connection.noticed_ns, started_ns: now_ns };
}

/// The response is out.
fn after_response(connection: &mut Connection, finished: Finished) -> Outcome {
    match finished {
        Finished::KeepAlive => {
            connection.stage = if connection.http.is_idle() { Stage::Idle } else { Stage::Head };
            // The next request has a time of its own.
            connection.deadline_stage = None;
            Outcome::Wait
        }
        Finished::Close => {
            if !connection.close_sending() {
                return Outcome::Wait;
            }
            let Some(stage) = lingering::begin(connection) else { return Outcome::Close };
            connection.stage = stage;
            Outcome::Wait
        }
        Finished::Truncated { reset } => {
            if reset {
                socket::reset(connection.socket.as_fd());
            }
            Outcome::Close
        }
    }
}
