//! A request to interrupt. The monitor finds it and passes it to the one thread that sets
//! exceptions, which needs the GIL.

use crate::limits::WorkerStatus;
use headway_threads::c_library::ThreadNumber;
use std::sync::Arc;

pub struct Interruption {
    status: Arc<WorkerStatus>,
    begun_ns: u64,
}

impl Interruption {
    pub fn new(status: &Arc<WorkerStatus>, begun_ns: u64) -> Self {
        Self { status: Arc::clone(status), begun_ns }
    }

    /// Calls `set` unless the request has left the application; see `WorkerStatus::interrupt`.
    pub fn carry_out(&self, set: impl FnOnce(ThreadNumber)) {
        self.status.interrupt(self.begun_ns, set);
    }

    /// The number of the interpreter that runs the request, if the request has not ended; 0 before
    /// the application is called.
    pub fn interpreter_number(&self) -> usize {
        self.status.interpreter_number()
    }
}
