//! A queue of tasks for one Python thread, which waits for them without the GIL. Threads that must
//! not run the tasks themselves push them.

use headway_threads::lock::Lock;
use std::collections::VecDeque;
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

/// The longest time until a waiting thread notices that the server has ended.
const END_CHECK_PERIOD: Duration = Duration::from_millis(200);

pub enum Received<T> {
    Task(T),
    /// The timeout expired without a task.
    Nothing,
    /// The server has ended.
    Over,
}

pub struct Inbox<T> {
    queue: Lock<VecDeque<T>>,
    added: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { queue: Lock::default(), added: Condvar::default() }
    }
}

impl<T> Inbox<T> {
    pub fn push(&self, task: T) {
        self.queue.lock().push_back(task);
        self.added.notify_one();
    }

    /// Waits for the next task, until `is_over` returns true or `timeout` expires.
    pub fn wait(&self, timeout: Duration, is_over: impl Fn() -> bool) -> Received<T> {
        let deadline = Instant::now().checked_add(timeout);
        let mut queue = self.queue.lock();
        while !is_over() {
            if let Some(next) = queue.pop_front() {
                return Received::Task(next);
            }
            let left = deadline.map_or(END_CHECK_PERIOD, |deadline| deadline - Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            let wait = self.added.wait_timeout(queue, left.min(END_CHECK_PERIOD));
            queue = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Received::Over
    }
}
