//! Where a tick's content comes from.

use super::post::Post;
use super::rows::{self, Bounds, Row};
use headway_telemetry::datagram::Writer;
use std::time::Duration;

/// Something that knows what this process did. Called by one thread at a time, the reporter's or, at the end of the
/// process, the one that ends it; never with a GIL held, so whatever waits for one must not be waited for.
pub trait Source: Send + Sync {
    /// Adds what happened since the last tick that was sent. May be called several times before `sent`, and then says
    /// all of it again, and what is new.
    fn collect(&self, tick: &mut Tick);

    /// What `collect` writes in any case, at most, and some of its rows: sources before this one leave so much.
    fn bytes(&self) -> usize {
        0
    }

    /// The tick that `collect` was last called for has gone out: the next one begins where it ended.
    fn sent(&self) {}

    /// How often to call `look`; `None`: never.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Looks at what is over by the next tick. It may take some milliseconds now and then.
    fn look(&self) {}

    /// Sends datagrams of other kinds behind a tick that went out. What cannot be sent is kept for the next turn or
    /// counted (`Post::lose`).
    fn post(&self, _post: &mut Post) {}

    /// What a server says at the end of its process.
    fn requests(&self) -> Option<RequestCounts> {
        None
    }
}

/// Requests of a process at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Since it began.
    pub lifetime: u64,
    /// Under way.
    pub active: u64,
}

/// A tick that is being written.
pub struct Tick<'a> {
    /// The moment that it tells of, by CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// How long ago the last tick that was sent was, or the reporter's start.
    pub period_s: f64,
    /// Fields are written here; they have room, as long as there are few. Rows go through `rows`.
    pub fields: &'a mut Writer,
    pub(super) scratch: &'a mut Writer,
    pub(super) folded: &'a mut u64,
}

impl Tick<'_> {
    /// Writes rows, the most important first. Those that have no room become one that is called `(other)`, and are
    /// counted.
    pub fn rows<R: Row>(&mut self, id: u16, bounds: Bounds, rows: Vec<R>) {
        *self.folded += rows::write(self.fields, self.scratch, id, bounds, rows);
    }
}
