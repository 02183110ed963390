//! Sources provide the contents of a tick.

use super::datagram_sender::DatagramSender;
use super::rows::{self, Bounds, Row};
use headway_telemetry::datagram::Writer;
use std::time::Duration;

/// A source of fields and rows. One thread at a time calls it: the reporter's thread, or the thread
/// that ends the process. The caller never holds a GIL, and a source must not wait for a thread
/// that waits for one.
pub trait Source: Send + Sync {
    /// Writes the activity since the last tick that was sent. If a tick was not sent, the next call
    /// writes its contents again.
    fn collect(&self, tick: &mut Tick);

    /// The bytes that the sources before this one must leave free: enough for all fields of
    /// `collect` and some rows.
    fn bytes(&self) -> usize {
        0
    }

    /// Called after the last tick was sent. The next tick begins where that one ended.
    fn sent(&self) {}

    /// The interval between calls of `look`; `None` for no calls.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Observes states that may be over by the next tick. A call may occasionally take some
    /// milliseconds.
    fn look(&self) {}

    /// Sends datagrams of other kinds after a tick that was sent. A source keeps records that
    /// cannot be sent, or counts them as lost (`DatagramSender::lose`).
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
    /// The fields. There is always room for a few; `rows` writes rows.
    pub fields: &'a mut Writer,
    pub(super) scratch: &'a mut Writer,
    pub(super) folded: &'a mut u64,
}

impl Tick<'_> {
    /// Writes rows, the most important first. Rows without room are summed up in one row with the
    /// name `(other)`, and counted.
    pub fn rows<R: Row>(&mut self, id: u16, bounds: Bounds, rows: Vec<R>) {
        *self.folded += rows::write(self.fields, self.scratch, id, bounds, rows);
    }
}
