//! Tasks for one thread of Python's, which waits for them without the GIL: from whoever may not do
//! them itself.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long the end of the server may go unnoticed.
const LOOK: Duration = Duration::from_millis(200);

pub enum Received<T> {
    Task(T),
    /// In time.
    Nothing,
    Over,
}

pub struct Inbox<T> {
    queue: Mutex<VecDeque<T>>,
    added: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { queue: Mutex::default(), added: Condvar::default() }
    }
}

impl<T> Inbox<T> {
    pub fn push(&self, task: T) {
        self.queue.lock().expect("no panic under this lock").push_back(task);
        self.added.notify_one();
    }

    /// Waits for the next until `is_over`, or for so long.
    pub fn wait(&self, patience: Duration, is_over: impl Fn() -> bool) -> Received<T> {
        let deadline = Instant::now().checked_add(patience);
        let mut queue = self.queue.lock().expect("no panic under this lock");
        while !is_over() {
            if let Some(next) = queue.pop_front() {
                return Received::Task(next);
            }
            let left = deadline.map_or(LOOK, |deadline| deadline - Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            let wait = self.added.wait_timeout(queue, left.min(LOOK));
            queue = wait.expect("no panic under this lock").0;
        }
        Received::Over
    }
}
