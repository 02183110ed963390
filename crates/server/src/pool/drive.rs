//! The connection driver: reads, collects a small body, runs the application and writes the
//! response, again and again while further requests have arrived, until the connection has to wait.
//!
//! The caller owns the connection. The driver never waits, except where the application does.

use crate::connection::buffers::BufferPool;
use crate::connection::close::{Lingered, begin_lingering, linger, lingers_until_ns};
use crate::connection::deadline::{Deadlines, IoTimeouts, has_progressed};
use crate::connection::deferred::{DeferredResponses, is_small};
use crate::connection::preamble::{Handshake, Preamble};
use crate::connection::read::{Read, begin_body, read_request};
use crate::connection::state::{Connection, FirstRequest, Forwarding, RequestTimes, Stage};
use crate::connection::write;
use crate::http::connection::Finished;
use crate::http::{Head, Rejection};
use crate::limits::{LimitChecks, WorkerStatus};
use crate::net::socket::{self, Transfer};
use crate::pool::handover::Handover;
use crate::pool::scheduler::PoolScheduler;
use crate::request::{Application, RequestContext, Resources, encode_refusal};
use crate::shutdown::Shutdown;
use crate::stats::access_log::{Asked, LogForm, Request};
use crate::stats::thread_requests::ThreadRequests;
use crate::stats::{RequestRecord, ServerStats};
use headway_measure::clock::now_ns;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The requests of one connection that run before other connections get their turn.
const REQUESTS_PER_TURN: usize = 16;
/// Up to this long, a request's hold of the GIL does not count as time that other threads could
/// use, because they would only wait for the GIL.
const SHORT_HOLD_NS: u64 = 1_000_000;

/// The parts of a server that drive its connections.
pub struct Driver<A> {
    pub application: A,
    pub preamble: Arc<Preamble>,
    pub deadlines: Deadlines,
    pub io_timeouts: IoTimeouts,
    pub shutdown: Arc<Shutdown>,
    pub handover: Option<Handover>,
    pub scheduler: Arc<PoolScheduler>,
    pub limits: LimitChecks,
    pub stats: Arc<ServerStats>,
}

/// The state that one thread keeps between turns.
pub struct WorkerState<'a, T> {
    /// The application's state for this thread. `None`: the thread runs no requests.
    pub thread: Option<&'a mut T>,
    /// The request exceeded queue-timeout.
    pub queue_timed_out: bool,
    pub deferred: Arc<DeferredResponses>,
    /// The part of this thread's state that other threads read.
    pub status: Arc<WorkerStatus>,
    pub requests: ThreadRequests,
    pub buffers: BufferPool,
    /// The date of the current response, copied so that it does not borrow from `requests`.
    pub date: Vec<u8>,
    /// When this turn began or, later, when its last request ended.
    pub now_ns: u64,
    /// The time for which the requests of this turn have waited for the GIL.
    pub gil_wait_ns: u64,
    /// The time for which they have held the GIL; at most `SHORT_HOLD_NS` of each request.
    pub gil_held_ns: u64,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The connection waits for an event.
    Wait,
    /// The connection has more requests, but other connections go first.
    Yield,
    /// The response is sent later, together with others.
    Defer(RequestRecord),
    Close,
}

impl<A: Application> Driver<A> {
    pub fn drive(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Outcome {
        state.buffers.lend_to(connection);
        let outcome = match std::mem::take(&mut connection.deadline.expired) {
            true => self.drive_expired(connection, state),
            false => self.advance(connection, state),
        };
        let is_idle = matches!(connection.stage, Stage::Idle | Stage::Preamble { .. });
        if matches!(outcome, Outcome::Close) || matches!(outcome, Outcome::Wait) && is_idle {
            state.buffers.take_from(connection);
        }
        outcome
    }

    fn advance(&self, connection: &mut Connection, state: &mut WorkerState<A::Thread>) -> Outcome {
        let mut requests = 0;
        loop {
            match connection.stage {
                Stage::Preamble { .. } => match self.preamble.proceed(connection) {
                    Handshake::Done => {
                        connection.stage = Stage::Idle;
                        connection.readable = true;
                        if self.shutdown.is_stopping() {
                            connection.first_request = FirstRequest::Promised;
                        }
                    }
                    Handshake::Refused(rejection) => {
                        connection.begin_request(state.now_ns);
                        self.refuse(connection, rejection, state);
                    }
                    Handshake::Silent
                        if self.shutdown.is_stopping() && !self.shutdown.keeps_idle() =>
                    {
                        return Outcome::Close;
                    }
                    Handshake::Silent | Handshake::Wait => return Outcome::Wait,
                    Handshake::Close => return Outcome::Close,
                },
                Stage::Lingering { since_ns, expecting } => {
                    let until_ns = lingers_until_ns(&self.shutdown, since_ns, expecting);
                    return match linger(connection, until_ns) {
                        Lingered::Wait => Outcome::Wait,
                        Lingered::Yield => Outcome::Yield,
                        Lingered::Close => Outcome::Close,
                    };
                }
                Stage::Writing(finished) => match write::send(connection) {
                    Transfer::Moved(_) => {
                        if is_closed_after_response(connection, finished) {
                            return Outcome::Close;
                        }
                    }
                    Transfer::WouldBlock => return Outcome::Wait,
                    Transfer::Unfinished => return Outcome::Yield,
                    Transfer::Ended => return Outcome::Close,
                },
                Stage::Idle | Stage::Head | Stage::Body => {
                    if requests == REQUESTS_PER_TURN {
                        return Outcome::Yield;
                    }
                    match self.serve_next(connection, state) {
                        Some(outcome) => return outcome,
                        None => requests += 1,
                    }
                }
            }
        }
    }

    /// Reads a request and answers it (`None`), or reads until the connection has to wait or is
    /// over.
    fn serve_next(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Option<Outcome> {
        if self.hands_over(connection) {
            return Some(Outcome::Close);
        }
        loop {
            match read_request(connection, &self.shutdown, state.now_ns) {
                Read::Head => {
                    if state.queue_timed_out {
                        self.refuse(connection, Rejection::QueueTimeout, state);
                        return None;
                    }
                    if begin_body(connection) {
                        return self.run(connection, state);
                    }
                }
                Read::Request => return self.run(connection, state),
                Read::Refused(rejection) => {
                    self.refuse(connection, rejection, state);
                    return None;
                }
                // The rest of a body may have been dropped only now.
                Read::Wait if self.hands_over(connection) => return Some(Outcome::Close),
                Read::Wait => return Some(Outcome::Wait),
                Read::Close => return Some(Outcome::Close),
            }
        }
    }

    /// Also while this process stops: where the others stop too, the queue is shut down.
    fn hands_over(&self, connection: &mut Connection) -> bool {
        self.handover.as_ref().is_some_and(|handover| handover.hands_over(connection))
    }

    /// Calls the application. Sends as much of its response as the socket accepts (`None`), or
    /// defers the response.
    fn run(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Option<Outcome> {
        let Some(thread) = state.thread.as_deref_mut().filter(|_| !state.queue_timed_out) else {
            self.refuse(connection, Rejection::QueueTimeout, state);
            return None;
        };
        let begun = connection.times;
        state.date.clear();
        state.date.extend_from_slice(state.requests.http_date().as_bytes());
        if connection.forwarding != Forwarding::Unknown {
            connection.origin = self.preamble.origin_of(connection);
        }
        let slow_requests = self.limits.slow_requests.as_deref();
        if let Some(slow_requests) = slow_requests {
            slow_requests.begin(&state.status, connection);
        }
        let (head, bytes) = connection.http.head();
        let target = &bytes[head.target.clone()];
        state.requests.begin_request(state.now_ns, target);
        state.status.begin_request(&bytes[head.method.clone()], target);
        let in_batch = state.deferred.is_open();
        let resources = Resources {
            date: &state.date,
            shutdown: &self.shutdown,
            scheduling: &*self.scheduler,
            io_timeouts: self.io_timeouts,
            worker_status: &state.status,
            deferred: &state.deferred,
            routes: self.stats.is_reported().then_some(&self.stats.routes),
        };
        let mut context = RequestContext::new(connection, resources);
        self.application.handle(thread, &mut context);
        let (mut record, finished) = (*context.record(), context.finished());
        let last_ns = context.last_ns();
        // This reclaims the bytes that the monitor has not sent.
        drop(context);
        state.gil_wait_ns += record.gil_wait_ns.unwrap_or(0);
        state.gil_held_ns += record.gil_held_ns.unwrap_or(0).min(SHORT_HOLD_NS);
        record.queue_ns = begun.started_ns.saturating_sub(begun.noticed_ns);
        connection.stage = Stage::Writing(finished);
        let defers = in_batch && is_small(connection) && write::has_unsent(connection);
        let end_ns = match defers {
            true => now_ns(),
            false => self.send_response(connection, &mut record, last_ns),
        };
        if let Some(slow_requests) = slow_requests {
            slow_requests.end(&state.status, &record, end_ns);
        }
        state.status.end_request(end_ns);
        self.limits.count_request();
        let elapsed_ns = end_ns - std::mem::replace(&mut state.now_ns, end_ns);
        record.cpu_ns = state.requests.end_request(end_ns, elapsed_ns);
        if defers {
            return Some(Outcome::Defer(record));
        }
        self.end_request(connection, &record, end_ns, &mut state.requests);
        None
    }

    /// Sends as much as the socket accepts, and returns the time at which sending ended. If nothing
    /// was unsent this is `begun_ns`, even if this thread has lost its core since.
    pub fn send_response(
        &self,
        connection: &mut Connection,
        record: &mut RequestRecord,
        begun_ns: u64,
    ) -> u64 {
        let mut end_ns = begun_ns;
        if write::has_unsent(connection) {
            if write::send(connection) == Transfer::Ended {
                connection.stage = Stage::Writing(Finished::Truncated { reset: false });
            }
            end_ns = now_ns();
        }
        record.output_write_ns += end_ns - begun_ns;
        record.response_ns = record.queue_ns + (end_ns - connection.times.started_ns);
        end_ns
    }

    /// Completes the record. The next request of this connection may begin.
    pub fn end_request(
        &self,
        connection: &mut Connection,
        record: &RequestRecord,
        end_ns: u64,
        requests: &mut ThreadRequests,
    ) {
        keep_record(connection, Some(connection.http.head()), record, requests);
        // A request that arrived meanwhile has waited for this one, so it counts as noticed now.
        // There may be no event for a request that is still unread.
        connection.times = RequestTimes { noticed_ns: end_ns, started_ns: end_ns };
        connection.noticed_ns = end_ns;
    }

    /// Answers a malformed or late request. The connection then closes.
    fn refuse(
        &self,
        connection: &mut Connection,
        rejection: Rejection,
        state: &mut WorkerState<A::Thread>,
    ) {
        let date = state.requests.http_date().as_bytes();
        let status =
            encode_refusal(&mut connection.http, rejection, date, &mut connection.outgoing);
        connection.stage = Stage::Writing(Finished::Close);
        let begun = connection.times;
        let record = RequestRecord {
            status,
            queue_ns: begun.started_ns.saturating_sub(begun.noticed_ns),
            response_ns: now_ns().saturating_sub(begun.noticed_ns),
            ..RequestRecord::default()
        };
        connection.origin =
            connection.http.request().and_then(|_| self.preamble.origin_of(connection));
        keep_record(connection, connection.http.request(), &record, &mut state.requests);
    }

    /// Drives a connection past its deadline. The bytes that it waited for may have arrived while
    /// no thread was free to notice them.
    fn drive_expired(
        &self,
        connection: &mut Connection,
        state: &mut WorkerState<A::Thread>,
    ) -> Outcome {
        connection.readable = true;
        match self.advance(connection, state) {
            Outcome::Wait if !has_progressed(connection) => self.give_up(connection, state),
            outcome => outcome,
        }
    }

    fn give_up(&self, connection: &mut Connection, state: &mut WorkerState<A::Thread>) -> Outcome {
        match connection.stage {
            // The request of the connection was answered.
            Stage::Head if connection.http.is_discarding() => Outcome::Close,
            Stage::Head | Stage::Body => {
                self.refuse(connection, Rejection::RequestTimeout, state);
                self.advance(connection, state)
            }
            Stage::Writing(_) => {
                socket::reset(connection.socket.as_fd());
                Outcome::Close
            }
            Stage::Preamble { .. } | Stage::Idle | Stage::Lingering { .. } => Outcome::Close,
        }
    }
}

/// Records a request. It may have no head.
fn keep_record(
    connection: &Connection,
    request: Option<(&Head, &[u8])>,
    record: &RequestRecord,
    requests: &mut ThreadRequests,
) {
    let target = request.map_or(&b"-"[..], |(head, bytes)| &bytes[head.target.clone()]);
    requests.record(target, connection.times.noticed_ns, record, |form| Asked {
        address: connection.client().0,
        request: request.map(|(head, bytes)| {
            let field = |name: &[u8]| match form {
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
        }),
    });
}

/// Ends a response that has been sent. True if the connection is over. Otherwise its next stage is
/// set, or its end has to wait for room in the socket.
fn is_closed_after_response(connection: &mut Connection, finished: Finished) -> bool {
    match finished {
        Finished::KeepAlive => {
            connection.stage = if connection.http.is_idle() { Stage::Idle } else { Stage::Head };
            // The next request has a deadline of its own.
            connection.deadline.stage = None;
            false
        }
        Finished::Close => {
            if !write::close_sending(connection) {
                return false;
            }
            let Some(stage) = begin_lingering(connection) else { return true };
            connection.stage = stage;
            false
        }
        Finished::Truncated { reset } => {
            if reset {
                socket::reset(connection.socket.as_fd());
            }
            true
        }
    }
}
