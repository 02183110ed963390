//! Requests that are to be interrupted: from the monitor, which finds them, to the one thread that sets
//! exceptions, since that needs the GIL.

use super::Activity;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long the end of the server may go unnoticed.
const LOOK: Duration = Duration::from_millis(200);

pub struct Interruption {
    activity: Arc<Activity>,
    begun_ns: u64,
}

impl Interruption {
    pub fn new(activity: &Arc<Activity>, begun_ns: u64) -> Self {
        Self { activity: Arc::clone(activity), begun_ns }
    }

    /// See `Activity::interrupt`.
    pub fn carry_out(&self, set: impl FnOnce(libc::pthread_t)) {
        self.activity.interrupt(self.begun_ns, set);
    }
}

#[derive(Default)]
pub struct Interruptions {
    queue: Mutex<VecDeque<Interruption>>,
    added: Condvar,
}

impl Interruptions {
    pub fn push(&self, interruption: Interruption) {
        self.queue.lock().expect("no panic under this lock").push_back(interruption);
        self.added.notify_one();
    }

    /// Waits for the next; `None` once `is_over`.
    pub fn wait(&self, is_over: impl Fn() -> bool) -> Option<Interruption> {
        let mut queue = self.queue.lock().expect("no panic under this lock");
        while !is_over() {
            if let Some(next) = queue.pop_front() {
                return Some(next);
            }
            queue = self.added.wait_timeout(queue, LOOK).expect("no panic under this lock").0;
        }
        None
    }
}
