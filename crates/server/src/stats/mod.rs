//! The records of requests: the phases of each request, the access log, the counters per path, and,
//! with telemetry, the report of each interval.
//!
//! This module does not depend on HTTP's bytes, sockets or Python. Each worker thread writes its
//! own records.

pub mod access_log;
pub mod block;
pub mod contexts;
pub mod counters;
pub mod cpu_charges;
pub mod date_cache;
pub mod endpoints;
pub mod interval;
pub mod paths;
pub mod report;
pub mod request_counters;
mod request_record;
pub mod routes;
pub mod thread_requests;
pub mod worker_times;

pub use access_log::{AccessLog, LogForm};
pub use counters::{ServerStats, WorkerCounters};
pub use paths::{PathRow, PathTables};
pub use request_record::RequestRecord;
pub use routes::Route;
pub use worker_times::WorkerTimes;
