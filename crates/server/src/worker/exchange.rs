//! One request and its response, between the turn that read the head and the application.
//!
//! What waits says so in its name or its comment; the application drops the GIL around those
//! calls. Knows sockets and HTTP, not Python. One thread, the owner of the peer.

use super::entrance::Forwarding;
use super::file_body::FileBody;
use super::forked::Ancestry;
use super::outbox::{self, Outbox};
use super::peer::Peer;
use super::socket::{Direction, Transfer};
use super::watch::Activity;
use crate::http::connection::{Finished, Surroundings};
use crate::http::forwarding::Origin;
use crate::http::{Connection, Event, Head, Limits, Rejection, Response};
use crate::record::RequestRecord;
use crate::record::clock::now_ns;
use crate::record::routes::Routes;

/// What the server writes into the Server field unless the application does.
pub const SERVER_FIELD: &[u8] = concat!("headway/", env!("CARGO_PKG_VERSION")).as_bytes();

/// How far a request has come, in case it takes several turns to arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Beginning of `queue_time`: when the event that brought the first bytes was seen.
    pub noticed_ns: u64,
    /// Beginning of `server_time`: when a thread took it up.
    pub started_ns: u64,
}

/// Why a request could not be read or a response not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The peer closed the connection or it failed.
    PeerGone,
    /// Nothing moved for as long as is allowed.
    TimedOut,
    Malformed(Rejection),
}

/// How long an application's thread waits for a peer without any byte moving.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub receive_ms: i32,
    pub send_ms: i32,
}

/// What an exchange asks of the pool that runs it.
pub trait Host {
    /// Asked when the head is framed, which may be long after the request began.
    fn is_stopping(&self) -> bool;
    /// The calling thread, which took the GIL from another, may lose its core to it. False if that
    /// does not matter: it will soon have it back. Another thread looks for requests if need be.
    fn prepare_for_preemption(&self) -> bool;
    /// There is something for it in an outbox.
    fn wake_monitor(&self);
    fn patience(&self) -> Patience;
}

pub struct Exchange<'a> {
    peer: &'a mut Peer,
    date: &'a [u8],
    host: &'a dyn Host,
    activity: &'a Activity,
    /// Takes a complete response, which then need not go out by itself.
    outbox: &'a Outbox,
    /// It has something of this peer's.
    entrusted: bool,
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

impl<'a> Exchange<'a> {
    pub fn new(
        peer: &'a mut Peer,
        date: &'a [u8],
        host: &'a dyn Host,
        activity: &'a Activity,
        outbox: &'a Outbox,
        routes: Option<&'a Routes>,
    ) -> Self {
        let ended_ns = peer.progress.started_ns;
        let record = RequestRecord {
            input_bytes: peer.body.unread().len() as u64,
            ..RequestRecord::default()
        };
        Self {
            peer,
            date,
            host,
            activity,
            outbox,
            entrusted: false,
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
        self.peer.http.head()
    }

    /// What others know of the thread that runs this request.
    pub fn activity(&self) -> &'a Activity {
        self.activity
    }

    pub fn routes(&self) -> Option<&'a Routes> {
        self.routes
    }

    /// The client's address and port (0: unknown), by a trusted proxy's word if need be.
    pub fn client(&self) -> (&str, u16) {
        self.peer.client()
    }

    /// Which of the server's listeners the connection came by.
    pub fn listener(&self) -> usize {
        self.peer.listener.into()
    }

    pub fn is_encrypted(&self) -> bool {
        self.peer.tls.is_some()
    }

    pub fn forwarding(&self) -> Forwarding {
        self.peer.forwarding
    }

    /// What a trusted proxy says of where the request began.
    pub fn origin(&self) -> Option<&Origin> {
        self.peer.origin.as_deref()
    }

    /// When a thread took the request up.
    pub fn started_ns(&self) -> u64 {
        self.peer.progress.started_ns
    }

    /// The body, as far as it was received and not taken by `consume_body`.
    pub fn body(&self) -> &[u8] {
        self.peer.body.unread()
    }

    /// Forgets the first `count` bytes of `body`.
    pub fn consume_body(&mut self, count: usize) {
        self.record.input_reads += 1;
        self.peer.body.take(count);
    }

    /// True when nothing of the body will be added to `body` any more.
    pub fn is_body_complete(&self) -> bool {
        self.peer.http.is_body_complete()
    }

    /// Adds what was already received to `body`, without waiting. False if there was nothing.
    pub fn decode_body(&mut self) -> Result<bool, Broken> {
        match self.peer.http.next_event() {
            Event::Data(range) => {
                self.record.input_bytes += range.len() as u64;
                self.peer.body.extend_from_slice(self.peer.http.bytes(range));
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
        if self.entrusted {
            // The monitor, which has the lock now and then, is not here in a child.
            self.leave_forked_child();
            // Its TLS session has to be here. Nobody else reads on after the whole response.
            self.take_back();
            self.send_all()?;
        }
        if self.peer.http.awaits_continue() {
            self.leave_forked_child();
            self.peer.outgoing.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.send_all()?;
            self.peer.http.continued();
        }
        loop {
            match self.peer.receive() {
                // An end is an event too: the connection knows whether it came too early.
                Transfer::Moved(_) | Transfer::Ended | Transfer::Unfinished => return Ok(()),
                Transfer::WouldBlock => {
                    if !self.peer.wait_ready(Direction::Receive, self.host.patience().receive_ms) {
                        return Err(Broken::TimedOut);
                    }
                }
            }
        }
    }

    /// True once the head was framed: nothing about it can be changed.
    pub fn is_head_sent(&self) -> bool {
        self.head_sent
    }

    /// Frames the head. `body_bytes` is the length of the whole body if the caller knows it.
    pub fn send_head(&mut self, response: &Response, body_bytes: Option<u64>) {
        debug_assert!(!self.head_sent);
        self.head_sent = true;
        self.record.status = response.code();
        let surroundings = Surroundings {
            date: self.date,
            server: SERVER_FIELD,
            body_bytes,
            closing: self.host.is_stopping() || self.broken.is_some(),
        };
        self.peer.http.encode_head(response, surroundings, &mut self.peer.outgoing);
    }

    /// Frames a block of the body; returns how many of its bytes there was room for.
    pub fn send_data(&mut self, block: &[u8]) -> usize {
        let taken = self.peer.http.encode_data(block, &mut self.peer.outgoing);
        self.record.output_bytes += taken as u64;
        self.record.output_writes += 1;
        taken
    }

    /// True if the body has a length, so that a file can be the rest of it as it is.
    pub fn can_send_file(&self) -> bool {
        self.peer.http.has_known_length()
    }

    /// Frames `file`, as far as there is room, as the rest of the body. It goes out when the
    /// application has returned, without the GIL, and waits for the client without a thread.
    pub fn send_file(&mut self, mut file: FileBody) {
        let taken = self.peer.http.pass_over_data(file.left());
        self.record.output_bytes += taken;
        self.record.output_writes += 1;
        if taken > 0 {
            file.truncate(taken);
            self.peer.append_file(file);
        }
    }

    /// True when `send_file` has left something to be sent at the end.
    pub fn has_file(&self) -> bool {
        self.peer.file.is_some()
    }

    /// The body went beyond its Content-Length.
    pub fn note_excess(&mut self) {
        self.excess = true;
    }

    pub fn has_excess(&self) -> bool {
        self.excess
    }

    /// True when this response never has a body, whatever its Content-Length says.
    pub fn is_bodiless(&self) -> bool {
        self.peer.http.is_bodiless()
    }

    pub fn is_head_request(&self) -> bool {
        self.peer.http.is_method(b"HEAD")
    }

    /// True when something of the response was handed over before its end.
    pub fn has_transmitted(&self) -> bool {
        self.transmitted
    }

    /// True when no further byte of a body can be sent.
    pub fn is_response_full(&self) -> bool {
        self.peer.http.is_response_full()
    }

    /// Nothing of the response is sent by a child that the application forked; it ends here.
    pub fn leave_forked_child(&self) {
        self.ancestry.leave_forked_child();
    }

    /// Waits until the kernel has taken everything framed so far.
    pub fn transmit(&mut self) -> Result<(), Broken> {
        self.leave_forked_child();
        let begun_ns = now_ns();
        self.transmitted = true;
        let result = self.send_all();
        self.note_transmitted(begun_ns);
        self.send_failed |= result.is_err();
        result.map_err(|broken| self.break_off(broken))
    }

    /// Hands to the kernel what it takes at once of a complete response. The monitor goes on with the
    /// rest while the application is not done; then it goes when the peer makes room.
    pub fn transmit_without_waiting(&mut self) {
        self.leave_forked_child();
        let begun_ns = now_ns();
        self.transmitted = true;
        match self.peer.send() {
            Transfer::Ended => {
                self.send_failed = true;
                self.break_off(Broken::PeerGone);
            }
            Transfer::WouldBlock if self.peer.file.is_none() => {
                self.outbox.entrust_rest(self.peer);
                self.entrusted = true;
                self.host.wake_monitor();
            }
            Transfer::WouldBlock | Transfer::Moved(_) | Transfer::Unfinished => {}
        }
        self.note_transmitted(begun_ns);
    }

    fn note_transmitted(&mut self, begun_ns: u64) {
        self.transmitted_ns = now_ns();
        self.record.output_write_ns += self.transmitted_ns - begun_ns;
    }

    /// Hands over what completes the response, in the midst of the application. It may leave it to
    /// the outbox, which then sees to it that it goes out soon.
    pub fn transmit_last(&mut self) {
        self.leave_forked_child();
        if self.outbox.entrust(self.peer) {
            self.entrusted = true;
            self.transmitted = true;
        } else {
            self.transmit_without_waiting();
        }
    }

    /// The end of what is entrusted to the outbox: the peer has all that is unsent again.
    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.entrusted) {
            self.outbox.give_back(self.peer);
        }
    }

    /// The thread, which took the GIL from another, may lose its core to it: hands over what takes
    /// no more than a moment. The monitor goes on with a rest; the GIL does not wait for that.
    pub fn prepare_for_preemption(&mut self) {
        if self.host.prepare_for_preemption() && !self.outbox.has_rest() {
            self.take_back();
            if outbox::is_small(self.peer) {
                self.transmit_without_waiting();
            }
        }
    }

    fn send_all(&mut self) -> Result<(), Broken> {
        loop {
            match self.peer.send() {
                Transfer::Moved(_) => return Ok(()),
                Transfer::Unfinished => {}
                Transfer::Ended => return Err(Broken::PeerGone),
                Transfer::WouldBlock => {
                    if !self.peer.wait_ready(Direction::Send, self.host.patience().send_ms) {
                        return Err(Broken::TimedOut);
                    }
                }
            }
        }
    }

    /// Ends the response; `complete` is false if the application failed after the head was sent.
    pub fn finish(&mut self, complete: bool) {
        let complete = complete && !self.send_failed;
        self.finished = Some(self.peer.http.finish(complete, &mut self.peer.outgoing));
    }

    /// Answers what is malformed or did not come in time, instead of the application. Before any
    /// head only.
    pub fn refuse(&mut self, rejection: Rejection) {
        debug_assert!(!self.head_sent);
        self.head_sent = true;
        let (http, out) = (&mut self.peer.http, &mut self.peer.outgoing);
        self.record.status = encode_refusal(http, rejection, self.date, out);
        self.finished = Some(Finished::Close);
    }

    pub fn limits(&self) -> &Limits {
        self.peer.http.limits()
    }

    /// What went wrong with the peer, if anything.
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// How the response ended; truncated if the application's adapter did not say.
    pub fn finished(&self) -> Finished {
        match (self.broken, self.finished) {
            (Some(Broken::PeerGone), _) | (_, None) => Finished::Truncated { reset: true },
            (_, Some(finished)) => finished,
        }
    }

    fn break_off(&mut self, broken: Broken) -> Broken {
        *self.broken.get_or_insert(broken)
    }
}

/// Writes a whole response that explains why a request is refused; returns its status code.
pub fn encode_refusal(
    http: &mut Connection,
    rejection: Rejection,
    date: &[u8],
    out: &mut Vec<u8>,
) -> u16 {
    let mut response = Response::default();
    response.begin(rejection.status()).expect("a constant that is valid");
    response
        .push_field(b"Content-Type", b"text/plain; charset=utf-8")
        .expect("a constant that is valid");
    let surroundings = Surroundings { date, server: SERVER_FIELD, body_bytes: None, closing: true };
    let body = format!("{}\n", rejection.explanation(http.limits()));
    http.refuse(&response, surroundings, body.as_bytes(), out);
    response.code()
}
