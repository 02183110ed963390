//! Sources: where the contents of a tick come from.

use super::datagram_sender::DatagramSender;
use super::rows::{self, Bounds, Row};
use headway_telemetry::datagram::Writer;
use std::time::Duration;

/// A source of fields and rows. Called by one thread at a time: the reporter's, or the one that
/// ends the process. The caller never holds a GIL, so a source must not wait for a thread that
/// waits for one.
pub trait Source: Send + Sync {
    /// Adds what happened since the last tick that was sent. After a tick that was not sent, it
    /// adds all of that again.
    fn collect(&self, tick: &mut Tick);

    /// The bytes that sources before this one leave free: the most that the fields of `collect`
    /// need, and some rows.
    fn bytes(&self) -> usize {
        0
    }

    /// The last tick was sent: the next one begins where it ended.
    fn sent(&self) {}

    /// The interval between calls of `look`; `None` for no calls.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Observes what is over by the next tick. A call may take some milliseconds now and then.
    fn look(&self) {}

    /// Sends datagrams of other kinds after a tick that was sent. A source keeps what cannot be
    /// sent, or counts it (`DatagramSender::lose`).
    fn send_events(&self, _sender: &mut DatagramSender) {}

    /// The requests of a server, for the report of the end of its process.
    fn requests(&self) -> Option<RequestCounts> {
        None
    }
}

/// Requests of a process at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests since the process started.
    pub lifetime: u64,
    /// Requests in flight.
    pub active: u64,
}

/// A tick that is being written.
pub struct Tick<'a> {
    /// The time of the tick, of CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// The time since the last tick that was sent, or since the reporter started.
    pub period_s: f64,
    /// The fields. A few always have room; rows are written by `rows`.
    pub fields: &'a mut Writer,
    pub(super) scratch: &'a mut Writer,
    pub(super) folded: &'a mut u64,
}

impl Tick<'_> {
    /// Writes rows, the most important first. Rows without room become one with the name `(other)`,
    /// and are counted.
    pub fn rows<R: Row>(&mut self, id: u16, bounds: Bounds, rows: Vec<R>) {
        *self.folded += rows::write(self.fields, self.scratch, id, bounds, rows);
    }
}
