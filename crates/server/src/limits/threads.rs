//! The threads that work in a pool.

use crate::limits::WorkerStatus;
use std::sync::{Arc, Mutex, MutexGuard};

/// One entry for each, while it works. Locked for a copy of the list, and while a thread is sent a signal, so that
/// it exists.
#[derive(Default)]
pub struct Threads(Mutex<Vec<Arc<WorkerStatus>>>);

impl Threads {
    pub fn lock(&self) -> MutexGuard<'_, Vec<Arc<WorkerStatus>>> {
        self.0.lock().expect("no panic under this lock")
    }

    /// What the request is for that a thread runs now, by the kernel's id of the thread.
    pub fn endpoint_of(&self, native_id: u32) -> Option<String> {
        let threads = self.lock();
        let thread = threads.iter().find(|thread| thread.native_id as u32 == native_id)?;
        thread.begun_ns().map(|_| thread.endpoint())
    }
}
