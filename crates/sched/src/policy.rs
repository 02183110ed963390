//! The interface of a policy.

use crate::thread::{ThreadId, Threads};

/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// A rule that decides which thread takes the GIL next and when a waiter requests a drop.
///
/// A [`Scheduler`](crate::Scheduler) reports events to a policy, in order: threads *wait*, *leave*
/// without having taken the GIL, *take* and *drop*. It asks two questions: which waiter to wake
/// when the GIL is free ([`next`](Policy::next)), and when a waiter requests a drop
/// ([`ask_ns`](Policy::ask_ns)). A policy stores its queues, and its data of a thread in that
/// thread's fields. It has no clock, no lock and no other memory. The driver ensures that, whatever
/// a policy answers, no wakeup is lost and no two threads hold the GIL at the same time. A thread
/// that finds the GIL free takes it even if the policy chose another; policies must allow for that.
///
/// A new policy is a file with these methods, a name in [`PolicyName`](crate::PolicyName), and a
/// variant of [`LivePolicy`](crate::LivePolicy).
pub trait Policy {
    /// `waiter` found the GIL held and waits for it. Its earlier times are up to date.
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, now_ns: u64);

    /// Removes `waiter` from the queues: it checks the GIL itself, or has given up.
    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId);

    /// `thread` has taken the GIL and is in no queue.
    fn take<T: Threads>(&mut self, _threads: &mut T, _thread: ThreadId, _now_ns: u64) {}

    /// `thread` has dropped the GIL. Its times are up to date.
    fn drop<T: Threads>(&mut self, _threads: &mut T, _thread: ThreadId, _now_ns: u64) {}

    /// Returns the waiter to wake if the GIL is free now.
    fn next<T: Threads>(&self, threads: &T, now_ns: u64) -> Option<ThreadId>;

    /// Returns the time at which `waiter` requests that `holder` drop, unless an event happens
    /// before. A time up to `now_ns` means at once, [`NEVER`] means never.
    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64;
}
