//! One request and its response, from the parsed head to the end of the response.
//!
//! The documentation of a method says if it waits; the application drops the GIL around such a
//! method. This module knows sockets and HTTP, not Python. The connection's owner is the only
//! thread that uses it.

use crate::connection::deadline::IoTimeouts;
use crate::connection::deferred::{DeferredResponses, is_small};
use crate::connection::state::{Connection, Forwarding};
use crate::connection::{read, write};
use crate::http::connection::{Finished, Surroundings};
use crate::http::forwarding::Origin;
use crate::http::response::HopByHopFields;
use crate::http::{Event, Head, Limits, Rejection, Response};
use crate::limits::WorkerStatus;
use crate::net::sendfile::FileBody;
use crate::net::socket::{Direction, Transfer};
use crate::request::ThreadScheduling;
use crate::request::forked::Ancestry;
use crate::request::refusal::{SERVER_FIELD, encode_refusal};
use crate::shutdown::Shutdown;
use crate::stats::routes::Routes;
use crate::stats::{RequestRecord, Route};
use headway_measure::clock::now_ns;
use std::ops::Range;

/// Large data is framed and sent in pieces of this size.
const PIECE_BYTES: usize = 262_144;

/// The reason why a request could not be read or a response could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The client closed the connection or it failed.
    PeerGone,
    /// No byte moved within the allowed time.
    TimedOut,
    /// The request exceeded request-timeout, and is interrupted.
    Interrupted,
    /// The server ends, and the time that requests have is over.
    CutOff,
    Malformed(Rejection),
}

/// The parts of the server that a request needs.
#[derive(Clone, Copy)]
pub struct Resources<'a> {
    /// The value of the Date field.
    pub date: &'a [u8],
    pub shutdown: &'a Shutdown,
    pub scheduling: &'a dyn ThreadScheduling,
    pub io_timeouts: IoTimeouts,
    pub worker_status: &'a WorkerStatus,
    pub deferred: &'a DeferredResponses,
    /// The names of the application's routes, with telemetry.
    pub routes: Option<&'a Routes>,
}

pub struct RequestContext<'a> {
    connection: &'a mut Connection,
    resources: Resources<'a>,
    ancestry: Ancestry,
    /// The monitor may be sending the response: `resources.deferred` has it.
    is_handed_off: bool,
    head_sent: bool,
    /// The fields of the application's head that are not sent.
    left_out: HopByHopFields,
    transmitted: bool,
    send_failed: bool,
    excess: bool,
    finished: Option<Finished>,
    broken: Option<Broken>,
    /// When the application returned; if it was never called, when the request began.
    ended_ns: u64,
    /// When bytes were last passed to the kernel.
    transmitted_ns: u64,
    /// Only this module fills it in until the application has returned, and then the driver.
    record: RequestRecord,
}

impl<'a> RequestContext<'a> {
    pub fn new(connection: &'a mut Connection, resources: Resources<'a>) -> Self {
        let ended_ns = connection.times.started_ns;
        let record = RequestRecord {
            input_bytes: connection.body.unread().len() as u64,
            ..RequestRecord::default()
        };
        Self {
            connection,
            resources,
            ancestry: Ancestry::here(),
            is_handed_off: false,
            head_sent: false,
            left_out: HopByHopFields::default(),
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

    pub fn limits(&self) -> &Limits {
        self.connection.http.limits()
    }

    /// The status of the thread that runs this request, which other threads read.
    pub fn worker_status(&self) -> &'a WorkerStatus {
        self.resources.worker_status
    }

    pub fn routes(&self) -> Option<&'a Routes> {
        self.resources.routes
    }

    /// The client's address and port (0: unknown), from a trusted proxy if there is one.
    pub fn client(&self) -> (&str, u16) {
        self.connection.client()
    }

    /// The index of the listener that accepted the connection.
    pub fn listener(&self) -> usize {
        self.connection.listener.into()
    }

    pub fn is_encrypted(&self) -> bool {
        self.connection.tls.is_some()
    }

    pub fn forwarding(&self) -> Forwarding {
        self.connection.forwarding
    }

    /// The origin of the request as a trusted proxy reports it.
    pub fn origin(&self) -> Option<&Origin> {
        self.connection.origin.as_deref()
    }

    /// The record of the request so far.
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// The later of the times at which the application returned and bytes were last passed to the
    /// kernel.
    pub fn last_ns(&self) -> u64 {
        self.ended_ns.max(self.transmitted_ns)
    }

    /// The interpreter slot that runs the request.
    pub fn note_slot(&mut self, slot: usize) {
        self.record.slot = slot;
    }

    /// The application is called.
    pub fn note_call(&mut self, called_ns: u64) {
        self.record.server_ns = called_ns - self.started_ns();
    }

    /// The application, called at `called_ns`, has returned; `failed` if it raised an exception.
    pub fn note_return(&mut self, called_ns: u64, route: Route, failed: bool) {
        self.record.route = route;
        self.ended_ns = now_ns();
        self.record.application_ns = self.ended_ns - called_ns;
        self.record.failed = failed;
    }

    /// The body does not match its Content-Length.
    pub fn note_wrong_length(&mut self) {
        self.record.failed = true;
    }

    pub fn note_gil_wait(&mut self, wait_ns: Option<u64>) {
        self.record.gil_wait_ns = wait_ns;
    }

    pub fn note_gil_hold(&mut self, held_ns: Option<u64>) {
        self.record.gil_held_ns = held_ns;
    }

    /// When a thread took the request.
    pub fn started_ns(&self) -> u64 {
        self.connection.times.started_ns
    }

    /// The reason why the request could not be read or the response could not be sent, if there is
    /// one.
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    fn break_off(&mut self, broken: Broken) -> Broken {
        if self.broken.is_none() && broken == Broken::CutOff {
            self.resources.shutdown.note_cut_off();
        }
        *self.broken.get_or_insert(broken)
    }

    /// Whether the request must not go on: the exception can be raised, and the stream closed, only
    /// once the thread has returned to Python.
    fn check_cancelled(&self) -> Result<(), Broken> {
        if self.worker_status().is_interrupted() {
            Err(Broken::Interrupted)
        } else if self.resources.shutdown.is_aborted() {
            Err(Broken::CutOff)
        } else {
            Ok(())
        }
    }

    /// Ends the process if it is a child that the application forked: it must not send anything of
    /// the response.
    pub fn leave_forked_child(&self) {
        self.ancestry.leave_forked_child();
    }

    /// The received part of the body, without the bytes that `consume_body` removed.
    pub fn body(&self) -> &[u8] {
        self.connection.body.unread()
    }

    /// Drops the first `count` bytes of `body`.
    pub fn consume_body(&mut self, count: usize) {
        self.connection.body.take(count);
    }

    /// Counts a call of the application that reads.
    pub fn note_read(&mut self) {
        self.record.input_reads += 1;
    }

    /// The length of the rest of the body, with `body`; `None` unless the request has a
    /// Content-Length.
    pub fn body_left(&self) -> Option<u64> {
        let left = self.connection.http.sized_left()?;
        Some(left + self.body().len() as u64)
    }

    /// Moves bytes of the body that have already arrived into `buffer`, which is not empty, without
    /// waiting. Returns how many.
    pub fn read_body(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let body = &mut self.connection.body;
        if !body.unread().is_empty() {
            let count = body.unread().len().min(buffer.len());
            buffer[..count].copy_from_slice(&body.unread()[..count]);
            body.take(count);
            return Ok(count);
        }
        let Some(range) = self.next_data(buffer.len())? else { return Ok(0) };
        let data = self.connection.http.bytes(range);
        buffer[..data.len()].copy_from_slice(data);
        Ok(data.len())
    }

    /// Makes bytes that `read_body` has moved or `receive_body` has received the beginning of
    /// `body`, which is empty.
    pub fn restore_body(&mut self, bytes: &[u8]) {
        debug_assert!(self.body().is_empty());
        self.connection.body.extend_from_slice(bytes);
    }

    /// True when nothing more will be added to `body`.
    pub fn is_body_complete(&self) -> bool {
        self.connection.http.is_body_complete()
    }

    /// Adds bytes that have already arrived to `body`, without waiting. False if there were none.
    pub fn decode_body(&mut self) -> Result<bool, Broken> {
        let Some(range) = self.next_data(usize::MAX)? else { return Ok(false) };
        self.connection.body.extend_from_slice(self.connection.http.bytes(range));
        Ok(true)
    }

    fn next_data(&mut self, max_bytes: usize) -> Result<Option<Range<usize>>, Broken> {
        match self.connection.http.next_event_of(max_bytes) {
            Event::Data(range) => {
                self.record.input_bytes += range.len() as u64;
                Ok(Some(range))
            }
            Event::Refused(rejection) => Err(self.break_off(Broken::Malformed(rejection))),
            Event::Closed => Err(self.broken.unwrap_or(Broken::PeerGone)),
            Event::NeedData | Event::Paused | Event::EndOfMessage | Event::Request => Ok(None),
        }
    }

    /// Waits for more of the body, which has to be decoded. Uses no Python. Bytes of a body whose
    /// length is known are received and decoded in `buffer`, until it is full; returns how many,
    /// and what else happened.
    pub fn receive_body(&mut self, buffer: &mut [u8]) -> (usize, Result<(), Broken>) {
        let begun_ns = now_ns();
        let mut filled = 0;
        let result = self.wait_for_body(buffer, &mut filled);
        self.record.input_read_ns += now_ns() - begun_ns;
        self.record.input_bytes += filled as u64;
        (filled, result.map_err(|broken| self.break_off(broken)))
    }

    fn wait_for_body(&mut self, buffer: &mut [u8], filled: &mut usize) -> Result<(), Broken> {
        if self.is_handed_off {
            // A forked child has no monitor, and the monitor may have held the lock at the fork.
            self.leave_forked_child();
            // Reading needs the TLS session. Only here can it follow a complete response.
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
            // A client that sends again and again leaves no wait in which `wait_ready` looks.
            self.check_cancelled()?;
            let space = self.connection.http.space_in(&mut buffer[*filled..]);
            let in_place = !space.is_empty();
            if *filled > 0 && !in_place {
                return Ok(());
            }
            let transfer = match in_place {
                true => read::receive_body(self.connection, space),
                false => read::receive(self.connection),
            };
            match transfer {
                Transfer::Moved(count) if in_place => *filled += count,
                // An end is an event too: the connection determines whether it came too early.
                Transfer::Moved(_) | Transfer::Ended | Transfer::Unfinished => return Ok(()),
                Transfer::WouldBlock => {
                    self.wait_ready(Direction::Receive, self.resources.io_timeouts.receive_ms)?;
                }
            }
        }
    }

    /// Waits for the socket, for `timeout_ms` without any byte moving, or until the request is
    /// cancelled.
    fn wait_ready(&self, direction: Direction, timeout_ms: i32) -> Result<(), Broken> {
        let is_cancelled = || self.check_cancelled().is_err();
        match write::wait_ready(self.connection, direction, timeout_ms, is_cancelled) {
            true => Ok(()),
            false => self.check_cancelled().and(Err(Broken::TimedOut)),
        }
    }

    /// True once the head was framed: nothing in it can be changed.
    pub fn is_head_sent(&self) -> bool {
        self.head_sent
    }

    /// The hop-by-hop fields of the application's head, which are not sent.
    pub fn left_out(&self) -> HopByHopFields {
        self.left_out
    }

    /// Frames the head. `body_bytes` is the length of the whole body if the caller knows it.
    pub fn send_head(&mut self, response: &Response, body_bytes: Option<u64>) {
        debug_assert!(!self.head_sent);
        self.head_sent = true;
        self.record.status = response.code();
        self.left_out = response.left_out();
        let surroundings = Surroundings {
            date: self.resources.date,
            server: SERVER_FIELD,
            body_bytes,
            closing: self.resources.shutdown.is_stopping() || self.broken.is_some(),
        };
        self.connection.http.encode_head(response, surroundings, &mut self.connection.outgoing);
    }

    /// Reserves memory for a block of the body and its framing. False if there is not enough
    /// memory.
    pub fn make_room(&mut self, block_bytes: usize) -> bool {
        /// The approximate size of the head and the framing of a chunk.
        const FRAMING_BYTES: usize = 4096;
        /// More than the framing of a piece that is a chunk of its own.
        const PIECE_FRAMING_BYTES: usize = 16;
        let framing = FRAMING_BYTES + block_bytes / PIECE_BYTES * PIECE_FRAMING_BYTES;
        self.connection.outgoing.try_reserve(block_bytes.saturating_add(framing)).is_ok()
    }

    /// Frames a block of the body; returns how many of its bytes there was room for.
    pub fn send_data(&mut self, block: &[u8]) -> usize {
        let taken = self.connection.http.encode_data(block, &mut self.connection.outgoing);
        self.record.output_bytes += taken as u64;
        self.record.output_writes += 1;
        taken
    }

    /// As `send_data`, and passes what is framed to the kernel meanwhile, as much as the socket
    /// accepts. So the client reads while the rest is framed, into the same memory again. If the
    /// client is gone, the next call that sends reports it.
    pub fn send_large_data(&mut self, block: &[u8]) -> usize {
        let mut taken = 0;
        for piece in block.chunks(PIECE_BYTES) {
            let pieces_before = self.connection.outgoing.len() / PIECE_BYTES;
            let room = self.connection.http.encode_data(piece, &mut self.connection.outgoing);
            taken += room;
            // Not before each piece of a small block, while a slow client makes no room.
            if self.connection.outgoing.len() / PIECE_BYTES > pieces_before && !self.send_failed {
                self.send_unsent();
            }
            if room < piece.len() {
                break;
            }
        }
        self.record.output_bytes += taken as u64;
        self.record.output_writes += 1;
        taken
    }

    /// True if the body has a length, so that a file can be sent as its rest.
    pub fn can_send_file(&self) -> bool {
        self.connection.http.has_known_length()
    }

    /// Frames `file`, up to the remaining length, as the rest of the body. It is sent after the
    /// application has returned, without the GIL and without a thread that waits for the client.
    pub fn send_file(&mut self, mut file: FileBody) {
        let taken = self.connection.http.pass_over_data(file.left());
        self.record.output_bytes += taken;
        self.record.output_writes += 1;
        if taken > 0 {
            file.truncate(taken);
            write::append_file(self.connection, file);
        }
    }

    /// True if `send_file` has left a file to be sent at the end.
    pub fn has_file(&self) -> bool {
        self.connection.file.is_some()
    }

    /// The body exceeded its Content-Length.
    pub fn note_excess(&mut self) {
        self.excess = true;
    }

    pub fn has_excess(&self) -> bool {
        self.excess
    }

    /// True when this response never has a body, whatever its Content-Length says.
    pub fn is_bodiless(&self) -> bool {
        self.connection.http.is_bodiless()
    }

    pub fn is_head_request(&self) -> bool {
        self.connection.http.is_method(b"HEAD")
    }

    /// True if a block was transmitted. The pieces of `send_large_data` do not count.
    pub fn has_transmitted(&self) -> bool {
        self.transmitted
    }

    /// True when no further byte of the body can be sent.
    pub fn is_response_full(&self) -> bool {
        self.connection.http.is_response_full()
    }

    /// Waits until the kernel has taken everything framed so far. An error if nothing may follow.
    pub fn transmit(&mut self) -> Result<(), Broken> {
        self.leave_forked_child();
        let begun_ns = now_ns();
        self.transmitted = true;
        let result = match self.send_all() {
            // A stream whose client keeps up never waits.
            Ok(()) if self.resources.shutdown.is_aborted() => Err(Broken::CutOff),
            result => result,
        };
        self.note_transmitted(begun_ns);
        self.send_failed |= result.is_err();
        result.map_err(|broken| self.break_off(broken))
    }

    /// Passes as much of a complete response to the kernel as the socket accepts. Until the
    /// application returns the monitor sends the rest; afterwards the rest is sent when the client
    /// makes room.
    pub fn transmit_without_waiting(&mut self) {
        self.transmitted = true;
        if self.send_unsent() == Transfer::WouldBlock && self.connection.file.is_none() {
            self.resources.deferred.hand_off_rest(self.connection);
            self.is_handed_off = true;
            self.resources.scheduling.wake_monitor_if_asleep();
        }
    }

    fn send_unsent(&mut self) -> Transfer {
        self.leave_forked_child();
        let begun_ns = now_ns();
        let transfer = write::send(self.connection);
        if transfer == Transfer::Ended {
            self.send_failed = true;
            self.break_off(Broken::PeerGone);
        }
        self.note_transmitted(begun_ns);
        transfer
    }

    /// Passes on the end of the response, before the application returns: to the kernel or, while a
    /// batch is open, to the monitor, which sends it soon.
    pub fn transmit_last(&mut self) {
        self.leave_forked_child();
        if self.resources.deferred.hand_off(self.connection) {
            self.is_handed_off = true;
            self.transmitted = true;
        } else {
            self.transmit_without_waiting();
        }
    }

    fn note_transmitted(&mut self, begun_ns: u64) {
        self.transmitted_ns = now_ns();
        self.record.output_write_ns += self.transmitted_ns - begun_ns;
    }

    /// Ends a hand-off: the connection has all unsent bytes again.
    fn take_back(&mut self) {
        if std::mem::take(&mut self.is_handed_off) {
            self.resources.deferred.reclaim(self.connection);
        }
    }

    /// Called before the thread drops a GIL that it took from another thread, to which it may lose
    /// its core. Sends the response if that takes no more than a moment. The monitor sends the
    /// rest, and the GIL does not wait for it.
    pub fn prepare_for_preemption(&mut self) {
        let sends = self.resources.scheduling.sends_before_preemption();
        if sends && !self.resources.deferred.has_rest() {
            self.take_back();
            if is_small(self.connection) {
                self.transmit_without_waiting();
            }
        }
    }

    fn send_all(&mut self) -> Result<(), Broken> {
        loop {
            match write::send(self.connection) {
                Transfer::Moved(_) => return Ok(()),
                Transfer::Unfinished => {}
                Transfer::Ended => return Err(Broken::PeerGone),
                Transfer::WouldBlock => {
                    self.wait_ready(Direction::Send, self.resources.io_timeouts.send_ms)?;
                }
            }
        }
    }

    /// Ends the response; `complete` is false if the application failed after the head was sent.
    pub fn finish(&mut self, complete: bool) {
        let complete = complete && !self.send_failed;
        self.finished = Some(self.connection.http.finish(complete, &mut self.connection.outgoing));
    }

    /// Answers a malformed or late request instead of the application. Must be called before any
    /// head is framed.
    pub fn refuse(&mut self, rejection: Rejection) {
        debug_assert!(!self.head_sent);
        self.head_sent = true;
        let (http, out) = (&mut self.connection.http, &mut self.connection.outgoing);
        self.record.status = encode_refusal(http, rejection, self.resources.date, out);
        self.finished = Some(Finished::Close);
    }

    /// How the response ended; truncated if the application's adapter did not end it.
    pub fn finished(&self) -> Finished {
        match (self.broken, self.finished) {
            (Some(Broken::PeerGone), _) | (_, None) => Finished::Truncated { reset: true },
            (_, Some(finished)) => finished,
        }
    }
}

impl Drop for RequestContext<'_> {
    /// This also runs if the application panics: the connection is then closed, and the monitor
    /// must not send to a descriptor that has a new owner.
    fn drop(&mut self) {
        self.take_back();
    }
}
