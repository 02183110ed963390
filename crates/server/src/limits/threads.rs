//! The worker threads of a pool.

use crate::limits::WorkerStatus;
use headway_threads::lock::Lock;
use std::sync::{Arc, MutexGuard};

/// One entry per worker thread, from its start to its end. Threads lock the list to copy from it,
/// and while they signal a worker thread, so that the thread exists until the signal is sent.
#[derive(Default)]
pub struct Threads(Lock<Vec<Arc<WorkerStatus>>>);

impl Threads {
    pub fn lock(&self) -> MutexGuard<'_, Vec<Arc<WorkerStatus>>> {
        self.0.lock()
    }

    /// The endpoint of the request that a thread runs now. `native_id` is the kernel's id of the
    /// thread.
    pub fn endpoint_of(&self, native_id: u32) -> Option<String> {
        let threads = self.lock();
        let thread = threads.iter().find(|thread| thread.native_id as u32 == native_id)?;
        thread.begun_ns().map(|_| thread.endpoint())
    }
}
