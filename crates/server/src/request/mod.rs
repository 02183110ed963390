//! One request and its response, between the turn that read the head and the application.
//!
//! What waits says so in its name or its comment; the application drops the GIL around those
//! calls. Knows sockets and HTTP, not Python. One thread, the owner of the peer.

pub mod body;
pub mod forked;
mod response;

pub use response::encode_refusal;

use crate::connection::deferred::DeferredResponses;
use crate::connection::state::{Connection, Forwarding};
use crate::http::connection::Finished;
use crate::http::forwarding::Origin;
use crate::http::{Event, Head, Limits, Rejection};
use crate::limits::WorkerStatus;
use crate::net::socket::{Direction, Transfer};
use crate::pool::dispatcher::Dispatcher;
use crate::request::forked::Ancestry;
use crate::stats::RequestRecord;
use crate::stats::routes::Routes;
use headway_measure::clock::now_ns;

/// Why a request could not be read or a response not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The peer closed the connection or it failed.
    PeerGone,
    /// Nothing moved for as long as is allowed.
    TimedOut,
    /// The request exceeded request-timeout, and is interrupted.
    Interrupted,
    Malformed(Rejection),
}

/// How long an application's thread waits for a peer without any byte moving.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub receive_ms: i32,
    pub send_ms: i32,
}

pub struct RequestContext<'a> {
    connection: &'a mut Connection,
    date: &'a [u8],
    dispatcher: &'a Dispatcher,
    patience: Patience,
    activity: &'a WorkerStatus,
    /// Takes a complete response, which then need not go out by itself.
    deferred: &'a DeferredResponses,
    /// It has something of this peer's.
    handed_off: bool,
    ancestry: Ancestry,
    /// Where the application's routes have their numbers, if somebody wants to know.
    routes: Option<&'a Routes>,
    head_sent: bool,
    transmitted: bool,
    send_failed: bool,
    excess: bool,
    finished: Option<Finished>,
    broken: Option<Broken>,
    /// When the application was done; when the request began if it was never called.
    pub ended_ns: u64,
    /// When something was last handed to the kernel.
    pub transmitted_ns: u64,
    /// The application's adapter fills in what it knows; the rest is filled in here.
    pub record: RequestRecord,
}

impl<'a> RequestContext<'a> {
    pub fn new(
        connection: &'a mut Connection,
        date: &'a [u8],
        dispatcher: &'a Dispatcher,
        patience: Patience,
        activity: &'a WorkerStatus,
        deferred: &'a DeferredResponses,
        routes: Option<&'a Routes>,
    ) -> Self {
        let ended_ns = connection.progress.started_ns;
        let record = RequestRecord {
            input_bytes: connection.body.unread().len() as u64,
            ..RequestRecord::default()
        };
        Self {
            connection,
            date,
            dispatcher,
            patience,
            activity,
            deferred,
            handed_off: false,
            ancestry: Ancestry::here(),
            routes,
            head_sent: false,
            transmitted: false,
            send_failed: false,
            excess: false,
            finished: None,
            broken: None,
            ended_ns,
            transmitted_ns: 0,
            record,
        }
    }

    /// The head, and the bytes that its ranges refer to.
    pub fn head(&self) -> (&Head, &[u8]) {
        self.connection.http.head()
    }

    /// What others know of the thread that runs this request.
    pub fn activity(&self) -> &'a WorkerStatus {
        self.activity
    }

    pub fn routes(&self) -> Option<&'a Routes> {
        self.routes
    }

    /// The client's address and port (0: unknown), by a trusted proxy's word if need be.
    pub fn client(&self) -> (&str, u16) {
        self.connection.client()
    }

    /// Which of the server's listeners the connection came by.
    pub fn listener(&self) -> usize {
        self.connection.listener.into()
    }

    pub fn is_encrypted(&self) -> bool {
        self.connection.tls.is_some()
    }

    pub fn forwarding(&self) -> Forwarding {
        self.connection.forwarding
    }

    /// What a trusted proxy says of where the request began.
    pub fn origin(&self) -> Option<&Origin> {
        self.connection.origin.as_deref()
    }

    /// When a thread took the request up.
    pub fn started_ns(&self) -> u64 {
        self.connection.progress.started_ns
    }

    /// The body, as far as it was received and not taken by `consume_body`.
    pub fn body(&self) -> &[u8] {
        self.connection.body.unread()
    }

    /// Forgets the first `count` bytes of `body`.
    pub fn consume_body(&mut self, count: usize) {
        self.record.input_reads += 1;
        self.connection.body.take(count);
    }

    /// True when nothing of the body will be added to `body` any more.
    pub fn is_body_complete(&self) -> bool {
        self.connection.http.is_body_complete()
    }

    /// Adds what was already received to `body`, without waiting. False if there was nothing.
    pub fn decode_body(&mut self) -> Result<bool, Broken> {
        match self.connection.http.next_event() {
            Event::Data(range) => {
                self.record.input_bytes += range.len() as u64;
                self.connection.body.extend_from_slice(self.connection.http.bytes(range));
                Ok(true)
            }
            Event::Refused(rejection) => Err(self.break_off(Broken::Malformed(rejection))),
            Event::Closed => Err(self.broken.unwrap_or(Broken::PeerGone)),
            Event::NeedData | Event::Paused | Event::EndOfMessage | Event::Request => Ok(false),
        }
    }

    /// Waits for more of the body. Nothing of Python is touched.
    pub fn receive_body(&mut self) -> Result<(), Broken> {
        let begun_ns = now_ns();
        let result = self.wait_for_body();
        self.record.input_read_ns += now_ns() - begun_ns;
        result.map_err(|broken| self.break_off(broken))
    }

    fn wait_for_body(&mut self) -> Result<(), Broken> {
        if self.handed_off {
            // The monitor, which has the lock now and then, is not here in a child.
            self.leave_forked_child();
            // Its TLS session has to be here. Nobody else reads on after the whole response.
            self.take_back();
            self.send_all()?;
        }
        if self.connection.http.awaits_continue() {
            self.leave_forked_child();
            self.connection.outgoing.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.send_all()?;
            self.connection.http.continued();
        }
        loop {
            match self.connection.receive() {
                // An end is an event too: the connection knows whether it came too early.
                Transfer::Moved(_) | Transfer::Ended | Transfer::Unfinished => return Ok(()),
                Transfer::WouldBlock => {
                    self.wait_ready(Direction::Receive, self.patience.receive_ms)?;
                }
            }
        }
    }

    /// Waits for the socket, for so long without any byte moving, or until the request is interrupted: the
    /// exception can be raised only once the thread has returned to Python.
    fn wait_ready(&self, direction: Direction, timeout_ms: i32) -> Result<(), Broken> {
        match self.connection.wait_ready(direction, timeout_ms, || self.activity.is_interrupted()) {
            true => Ok(()),
            false if self.activity.is_interrupted() => Err(Broken::Interrupted),
            false => Err(Broken::TimedOut),
        }
    }

    pub fn limits(&self) -> &Limits {
        self.connection.http.limits()
    }

    /// What went wrong with the peer, if anything.
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    fn break_off(&mut self, broken: Broken) -> Broken {
        *self.broken.get_or_insert(broken)
    }
}

/// What the worker calls for each request.
pub trait Application {
    /// What one worker thread keeps between requests.
    type Thread;

    /// Runs one request to its end: the response is framed, and handed to the kernel as far as
    /// the application streams. Returns with `exchange.finish` called.
    fn handle(&self, thread: &mut Self::Thread, exchange: &mut RequestContext);

    /// Called by each thread between turns; see `Pool::call_everyone`.
    fn tidy(&self, _: &mut Self::Thread) {}
}
