//! What is kept of each request: its phases, a line in the access log, a row per path, and, with telemetry,
//! what is told once an interval.
//!
//! Knows nothing of HTTP's bytes, sockets or Python. Each worker thread writes its own records.

pub mod access_log;
pub mod clock;
pub mod counters;
pub mod endpoints;
pub mod interval;
pub mod paths;
pub mod report;
pub mod requests;
pub mod routes;
pub mod slots;

pub use access_log::{AccessLog, LogForm};
pub use counters::{Counters, ThreadCounters};
pub use paths::{PathRow, PathTable, PathTables};
pub use routes::Route;
pub use slots::Slot;

/// Where one request's time went: mod_wsgi's phases under mod_wsgi's names, in nanoseconds.
///
/// The first three follow one another; `input_read`, `output_write` and `gil_wait` lie within
/// them, `output_write` partly after.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestRecord {
    /// Which of the application's places had the request.
    pub place: usize,
    /// Which of its routes, if its framework says.
    pub route: Route,
    /// From when the thread that polls saw the connection ready to when a thread took it up.
    pub queue_ns: u64,
    /// From there to the call of the application: parsing, taking the GIL, the environ.
    pub server_ns: u64,
    /// The application: its call, its iterable, `close()`.
    pub application_ns: u64,
    /// Waiting for the GIL, the application's own code included. Exact; `None` without a meter.
    pub gil_wait_ns: Option<u64>,
    /// Holding the GIL; likewise.
    pub gil_held_ns: Option<u64>,
    /// Waiting for and receiving the request's body on behalf of the application.
    pub input_read_ns: u64,
    /// Handing the response to the kernel.
    pub output_write_ns: u64,
    /// CPU time of the worker thread, see `clock::CpuCharges`: for a short request the time that
    /// it took; all requests add up to what the threads used.
    pub cpu_ns: u64,
    /// From the beginning of `queue` to the last byte that was handed over.
    pub response_ns: u64,
    /// Bytes of the bodies, without framing.
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// How often the application took a part of the body, and gave one.
    pub input_reads: u32,
    pub output_writes: u32,
    pub status: u16,
    /// The application raised, or sent another length than its Content-Length: an error even if
    /// the status, sent before, says otherwise.
    pub failed: bool,
}
