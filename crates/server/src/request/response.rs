//! The response: what of it is framed, and how what is framed gets to the kernel.

use crate::connection::deferred;
use crate::http::connection::{Finished, Surroundings};
use crate::http::{self, Rejection, Response};
use crate::net::sendfile::FileBody;
use crate::net::socket::{Direction, Transfer};
use crate::request::{Broken, RequestContext};
use headway_measure::clock::now_ns;

/// What the server writes into the Server field unless the application does.
const SERVER_FIELD: &[u8] = concat!("headway/", env!("CARGO_PKG_VERSION")).as_bytes();

impl RequestContext<'_> {
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
            closing: self.dispatcher.phase.is_stopping() || self.broken.is_some(),
        };
        self.connection.http.encode_head(response, surroundings, &mut self.connection.outgoing);
    }

    /// Reserves memory for a block of the body and its framing. False if there is none.
    pub fn make_room(&mut self, block_bytes: usize) -> bool {
        /// The head and the chunk's framing, about.
        const FRAMING_BYTES: usize = 4096;
        self.connection.outgoing.try_reserve(block_bytes.saturating_add(FRAMING_BYTES)).is_ok()
    }

    /// Frames a block of the body; returns how many of its bytes there was room for.
    pub fn send_data(&mut self, block: &[u8]) -> usize {
        let taken = self.connection.http.encode_data(block, &mut self.connection.outgoing);
        self.record.output_bytes += taken as u64;
        self.record.output_writes += 1;
        taken
    }

    /// True if the body has a length, so that a file can be the rest of it as it is.
    pub fn can_send_file(&self) -> bool {
        self.connection.http.has_known_length()
    }

    /// Frames `file`, as far as there is room, as the rest of the body. It goes out when the
    /// application has returned, without the GIL, and waits for the client without a thread.
    pub fn send_file(&mut self, mut file: FileBody) {
        let taken = self.connection.http.pass_over_data(file.left());
        self.record.output_bytes += taken;
        self.record.output_writes += 1;
        if taken > 0 {
            file.truncate(taken);
            self.connection.append_file(file);
        }
    }

    /// True when `send_file` has left something to be sent at the end.
    pub fn has_file(&self) -> bool {
        self.connection.file.is_some()
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
        self.connection.http.is_bodiless()
    }

    pub fn is_head_request(&self) -> bool {
        self.connection.http.is_method(b"HEAD")
    }

    /// True when something of the response was handed over before its end.
    pub fn has_transmitted(&self) -> bool {
        self.transmitted
    }

    /// True when no further byte of a body can be sent.
    pub fn is_response_full(&self) -> bool {
        self.connection.http.is_response_full()
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
        match self.connection.send() {
            Transfer::Ended => {
                self.send_failed = true;
                self.break_off(Broken::PeerGone);
            }
            Transfer::WouldBlock if self.connection.file.is_none() => {
                self.deferred.hand_off_rest(self.connection);
                self.handed_off = true;
                self.dispatcher.monitor.wake_if_asleep();
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
        if self.deferred.hand_off(self.connection) {
            self.handed_off = true;
            self.transmitted = true;
        } else {
            self.transmit_without_waiting();
        }
    }

    /// The end of what is entrusted to the outbox: the peer has all that is unsent again.
    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.handed_off) {
            self.deferred.reclaim(self.connection);
        }
    }

    /// The thread, which took the GIL from another, may lose its core to it: hands over what takes
    /// no more than a moment. The monitor goes on with a rest; the GIL does not wait for that.
    pub fn prepare_for_preemption(&mut self) {
        if self.dispatcher.prepare_for_preemption() && !self.deferred.has_rest() {
            self.take_back();
            if deferred::is_small(self.connection) {
                self.transmit_without_waiting();
            }
        }
    }

    pub(crate) fn send_all(&mut self) -> Result<(), Broken> {
        loop {
            match self.connection.send() {
                Transfer::Moved(_) => return Ok(()),
                Transfer::Unfinished => {}
                Transfer::Ended => return Err(Broken::PeerGone),
                Transfer::WouldBlock => {
                    self.wait_ready(Direction::Send, self.patience.send_ms)?;
                }
            }
        }
    }

    /// Ends the response; `complete` is false if the application failed after the head was sent.
    pub fn finish(&mut self, complete: bool) {
        let complete = complete && !self.send_failed;
        self.finished = Some(self.connection.http.finish(complete, &mut self.connection.outgoing));
    }

    /// Answers what is malformed or did not come in time, instead of the application. Before any
    /// head only.
    pub fn refuse(&mut self, rejection: Rejection) {
        debug_assert!(!self.head_sent);
        self.head_sent = true;
        let (http, out) = (&mut self.connection.http, &mut self.connection.outgoing);
        self.record.status = encode_refusal(http, rejection, self.date, out);
        self.finished = Some(Finished::Close);
    }

    /// How the response ended; truncated if the application's adapter did not say.
    pub fn finished(&self) -> Finished {
        match (self.broken, self.finished) {
            (Some(Broken::PeerGone), _) | (_, None) => Finished::Truncated { reset: true },
            (_, Some(finished)) => finished,
        }
    }
}

/// Writes a whole response that explains why a request is refused; returns its status code.
pub fn encode_refusal(
    http: &mut http::Connection,
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
