//! The figures of one request.

use crate::stats::routes::Route;

/// The time that one request spent in each phase: mod_wsgi's phases under mod_wsgi's names, in
/// nanoseconds.
///
/// `queue`, `server` and `application` follow one another; `input_read`, `output_write` and
/// `gil_wait` lie within them, except that a part of `output_write` may lie after them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestRecord {
    /// The interpreter slot that had the request.
    pub slot: usize,
    /// The route within the application, if its framework reports one.
    pub route: Route,
    /// From the moment when the poller saw the connection ready until a worker thread took the
    /// request.
    pub queue_ns: u64,
    /// From there until the call of the application: parsing, taking the GIL, building the environ.
    pub server_ns: u64,
    /// In the application: its call, its iterable and `close()`.
    pub application_ns: u64,
    /// Waiting for the GIL, including in the application's own code. Exact; `None` without a meter.
    pub gil_wait_ns: Option<u64>,
    /// Holding the GIL, including in the application's own code. Exact; `None` without a meter.
    pub gil_held_ns: Option<u64>,
    /// Waiting for and receiving the request body on behalf of the application.
    pub input_read_ns: u64,
    /// Handing the response to the kernel.
    pub output_write_ns: u64,
    /// CPU time of the worker thread; see `CpuCharges`. A short request is charged its
    /// elapsed time; the charges of all requests add up to the CPU time that the threads used.
    pub cpu_ns: u64,
    /// From the beginning of `queue` until the last byte was handed to the kernel.
    pub response_ns: u64,
    /// Bytes of the bodies, without framing.
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// How often the application read a part of the request body, and produced a part of the
    /// response body.
    pub input_reads: u32,
    pub output_writes: u32,
    pub status: u16,
    /// The application raised an exception, or its body does not match its Content-Length. This is
    /// an error even if the status, which was sent before, indicates success.
    pub failed: bool,
}
