//! The limits that a worker process enforces itself, without the GIL, and the reports of requests
//! that exceed them.

mod control;
mod findings;
mod in_flight;
pub mod inbox;
mod interruption;
mod monitor;
mod parent_death;
mod slow_requests;
mod threads;
mod worker_status;

pub use interruption::Interruption;
pub use monitor::{LimitMonitor, ProcessLimits};
pub use slow_requests::{SlowRequestReport, SlowRequests};
pub use threads::Threads;
pub use worker_status::WorkerStatus;
