//! What a policy is asked, and the policies by name.

use crate::thread::{ThreadId, Threads};

/// When to ask: never, as things are.
pub const NEVER: u64 = u64::MAX;

/// A rule for who gets the GIL next and when its holder is asked to drop it.
///
/// A [`Scheduler`](crate::Scheduler) tells a policy what happens, in order: threads *wait*, *leave*
/// without having got it, *take* and *drop*. It asks two things: whom to wake when the GIL is free
/// ([`next`](Policy::next)), and from when on a waiter is to request a drop ([`ask_ns`](Policy::ask_ns)).
/// A policy keeps its queues, and what it likes in the threads' own fields; it has no clock, no
/// lock and no memory but that. Whatever it answers, no wake-up is lost and nobody holds at the same
/// time as another: the driver sees to that. A thread that finds the GIL free takes it, chosen
/// or not; policies live with that.
///
/// A new policy is a file with these methods, a name in [`PolicyName`], and a line in `AnyPolicy`.
pub trait Policy {
    /// `waiter` wants the GIL and found it held. Its earlier times are up to date.
    fn wait<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId, now_ns: u64);

    /// `waiter` is to be in no queue any more: it goes to look for itself, or has given up.
    fn leave<T: Threads>(&mut self, threads: &mut T, waiter: ThreadId);

    /// The thread, in no queue by now, has taken the GIL.
    fn take<T: Threads>(&mut self, _threads: &mut T, _thread: ThreadId, _now_ns: u64) {}

    /// The thread has dropped it. Its times are up to date.
    fn drop<T: Threads>(&mut self, _threads: &mut T, _thread: ThreadId, _now_ns: u64) {}

    /// The waiter to wake if the GIL is free now.
    fn next<T: Threads>(&self, threads: &T, now_ns: u64) -> Option<ThreadId>;

    /// From when on `waiter` is to ask `holder` to drop, if nothing happens until then: a time up to
    /// `now_ns` is at once, [`NEVER`] never.
    fn ask_ns<T: Threads>(
        &self,
        threads: &T,
        waiter: ThreadId,
        holder: ThreadId,
        now_ns: u64,
    ) -> u64;
}
