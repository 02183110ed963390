//! A request that is to be interrupted: from the monitor, which finds it, to the one thread that sets
//! exceptions, since that needs the GIL.

use crate::limits::WorkerStatus;
use std::sync::Arc;

pub struct Interruption {
    activity: Arc<WorkerStatus>,
    begun_ns: u64,
}

impl Interruption {
    pub fn new(activity: &Arc<WorkerStatus>, begun_ns: u64) -> Self {
        Self { activity: Arc::clone(activity), begun_ns }
    }

    /// See `Activity::interrupt`.
    pub fn carry_out(&self, set: impl FnOnce(libc::pthread_t)) {
        self.activity.interrupt(self.begun_ns, set);
    }

    /// Who of the application has the request, if it has not ended; 0: nobody yet.
    pub fn holder(&self) -> usize {
        self.activity.holder()
    }
}
