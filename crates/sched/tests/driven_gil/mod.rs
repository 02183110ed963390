//! A scheduler and a few threads, whose events a test reports one by one.
#![allow(dead_code)] // Each test file is a separate crate and uses only a part of this module.

use headway_sched::{NEVER, Policy, Scheduler, Thread, ThreadId, Threads, WHOLE_HOLD};
use std::ops::{Index, IndexMut};

/// The threads, by id.
pub struct Table(pub Vec<Thread>);

impl Index<ThreadId> for Table {
    type Output = Thread;
    fn index(&self, id: ThreadId) -> &Thread {
        &self.0[id as usize]
    }
}

impl IndexMut<ThreadId> for Table {
    fn index_mut(&mut self, id: ThreadId) -> &mut Thread {
        &mut self.0[id as usize]
    }
}

impl Threads for Table {}

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const INTERVAL_NS: u64 = 5 * MS;

/// A scheduler and a few threads, whose events a test reports one by one.
pub struct Gil<P> {
    pub scheduler: Scheduler<P>,
    pub threads: Table,
    /// Threads that were forced to drop. Their forced-switch wait ends when a test says so, or with
    /// their next event.
    forced: Vec<ThreadId>,
    now_ns: u64,
}

impl<P: Policy> Gil<P> {
    pub fn under(policy: P) -> Self {
        let threads = Table(vec![Thread::new(); 50]);
        Self {
            scheduler: Scheduler::with_policy(policy, 1),
            threads,
            forced: Vec::new(),
            now_ns: MS,
        }
    }

    pub fn pass(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self
    }

    pub fn wait(&mut self, thread: ThreadId) -> &mut Self {
        self.end_forced_wait(thread);
        self.scheduler.wait(&mut self.threads, thread, INTERVAL_NS, self.now_ns);
        self
    }

    pub fn take(&mut self, thread: ThreadId) -> &mut Self {
        self.end_forced_wait(thread);
        self.scheduler.take(&mut self.threads, thread, self.now_ns);
        self
    }

    pub fn drop(&mut self, thread: ThreadId) -> &mut Self {
        self.scheduler.drop(&mut self.threads, thread, false, WHOLE_HOLD, self.now_ns);
        self
    }

    pub fn drop_forced(&mut self, thread: ThreadId) -> &mut Self {
        self.drop_after_running(thread, WHOLE_HOLD)
    }

    /// Drops on request, after a hold in which the thread ran for `ran_ns`.
    pub fn drop_after_running(&mut self, thread: ThreadId, ran_ns: u64) -> &mut Self {
        self.scheduler.drop(&mut self.threads, thread, true, ran_ns, self.now_ns);
        self.forced.push(thread);
        self
    }

    /// The forced-switch wait of a thread ends.
    pub fn end_forced_wait(&mut self, thread: ThreadId) -> &mut Self {
        if self.forced.contains(&thread) {
            self.forced.retain(|forced| *forced != thread);
            self.threads[thread].forced_wait_ended(self.now_ns);
        }
        self
    }

    /// A thread comes too late for its forced-switch wait: another has taken.
    pub fn skip_forced_wait(&mut self, thread: ThreadId) -> &mut Self {
        self.forced.retain(|forced| *forced != thread);
        self
    }

    pub fn leave(&mut self, thread: ThreadId) -> &mut Self {
        self.scheduler.leave(&mut self.threads, thread);
        self
    }

    /// Holds for `ns` and drops voluntarily.
    pub fn hold(&mut self, thread: ThreadId, ns: u64) -> &mut Self {
        self.take(thread).pass(ns).drop(thread)
    }

    /// Holds for `ns` and drops on request.
    pub fn hold_until_asked(&mut self, thread: ThreadId, ns: u64) -> &mut Self {
        self.take(thread).pass(ns).drop_forced(thread)
    }

    pub fn next(&self) -> Option<ThreadId> {
        self.scheduler.next(&self.threads, self.now_ns)
    }

    /// Returns the time from now until `waiter` requests that `holder` drop.
    pub fn asks_in_ns(&self, waiter: ThreadId, holder: ThreadId) -> u64 {
        let ask_ns = self.scheduler.ask_ns(&self.threads, waiter, holder, self.now_ns);
        if ask_ns == NEVER { NEVER } else { ask_ns.saturating_sub(self.now_ns) }
    }

    /// Lets `holder` and `other`, both I/O-bound, hold in turns of less than a millisecond, each
    /// waiting while the other holds. `holder` holds first and last.
    pub fn fill_with_io_bound_holds(&mut self, holder: ThreadId, other: ThreadId, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            assert_ne!(self.next(), Some(holder));
            self.pass(400 * US).wait(other);
            assert_eq!(self.next(), Some(other));
            self.drop(holder).take(other).pass(400 * US).wait(holder);
            self.drop(other).take(holder);
        }
    }

    /// Returns the order in which the waiters would take the GIL if none returned and no time
    /// passed.
    pub fn order(&mut self) -> Vec<ThreadId> {
        let order: Vec<_> = std::iter::from_fn(|| {
            let next = self.next()?;
            self.scheduler.leave(&mut self.threads, next);
            Some(next)
        })
        .collect();
        assert!(self.threads.0.iter().all(|thread| !thread.is_queued()));
        order
    }
}
