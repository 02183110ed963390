//! The limits that a worker process enforces itself, without the GIL, and the reports of requests
//! that exceed them.

mod checks;
mod in_flight;
pub mod inbox;
mod interruption;
mod parent_death;
mod replacement_request;
mod slow_requests;
mod stack_reports;
mod threads;
mod worker_status;

pub use checks::{LimitChecks, ProcessLimits};
pub use interruption::Interruption;
pub use slow_requests::{SlowRequestReport, SlowRequests};
pub use threads::Threads;
pub use worker_status::WorkerStatus;
