//! The live queue: how the threads that wait for a GIL wait, while a policy schedules it.
//!
//! A thread that would wait on `cond` waits here instead, on a word of its own, and whoever drops the GIL
//! calls the one that the policy chose. To make the holder drop, a waiter returns to `take_gil` as
//! if its timed wait had run out; CPython then makes the drop request itself. So CPython's
//! protocol is kept to the letter, and a waiter may at any time be sent back to look for itself, which is
//! what happens when the policy changes or the meter is removed.
//!
//! Everything here runs with the GIL's mutex held. It knows nothing of hooks and books.

use std::sync::atomic::{AtomicU32, Ordering::*};

pub mod forced_switch;
pub mod futex;
pub mod waiters;

use futex::Word;
use headway_sched::{PolicyName, Scheduler, ThreadId, Threads};

/// A waiter looks for itself after so long, whatever it was told: a lost call costs this much, once.
const LOOK_NS: u64 = 100_000_000;

/// The policy that every GIL is to have, as an index into `PolicyName::ALL`. Written by whoever holds
/// the main GIL; each GIL follows at its next event.
static POLICY: AtomicU32 = AtomicU32::new(PolicyName::Interval as u32);
/// Each scheduler has a serial of its own.
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);

pub fn set_policy(policy: PolicyName) {
    POLICY.store(policy as u32, Release);
}

pub fn policy() -> PolicyName {
    PolicyName::ALL[POLICY.load(Acquire) as usize]
}

/// The threads of a GIL, as the queue needs them.
pub trait Waiters: Threads {
    type Word: Word;
    fn word(&self, thread: ThreadId) -> &Self::Word;
    /// The slice that the calling thread has now; 0 for one switch interval of the GIL.
    fn own_slice_ns(&self, this_thread: ThreadId) -> u64;
    /// The calling thread runs on the core that it runs on now.
    fn note_core(&mut self, this_thread: ThreadId);
    /// Whether two threads were last seen on the same core.
    fn share_a_core(&self, one: ThreadId, other: ThreadId) -> bool;
}

/// What a waiter is to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Return from the timed wait, to see whether the GIL is free.
    Look,
    /// Return as if the timed wait had run out, to request a drop; `early` if neither that has nor the holder's
    /// slice, had it begun with the wait.
    Ask { early: bool },
    /// Let go of the mutex and wait, until then at the latest. To spin first is worth while if it is next
    /// and the holder runs on another core.
    Park { until_ns: u64, spin: bool },
}

/// The queue of one GIL. Guarded by the GIL's mutex.
pub struct Queue {
    policy: PolicyName,
    /// `None` under `interval`: CPython's own scheduling is left alone.
    scheduler: Option<Scheduler>,
}

impl Queue {
    pub const fn new() -> Self {
        Self { policy: PolicyName::Interval, scheduler: None }
    }

    #[inline(always)]
    pub fn schedules(&self) -> bool {
        self.scheduler.is_some()
    }

    /// Whether another policy is wanted than the one in force.
    pub fn is_outdated(&self) -> bool {
        self.policy as u32 != POLICY.load(Relaxed)
    }

    /// Puts the wanted policy in force. Who waits is called, and begins to wait afresh.
    pub fn follow<W: Waiters>(&mut self, waiters: &mut W, holder: Option<ThreadId>, now_ns: u64) {
        self.change(policy(), waiters, holder, now_ns);
    }

    /// As `follow`, to a given policy.
    pub fn change<W: Waiters>(
        &mut self,
        policy: PolicyName,
        waiters: &mut W,
        holder: Option<ThreadId>,
        now_ns: u64,
    ) {
        if let Some(scheduler) = &mut self.scheduler {
            while let Some(waiter) = scheduler.next(waiters, now_ns) {
                scheduler.leave(waiters, waiter);
                futex::call(waiters.word(waiter));
            }
        }
        self.policy = policy;
        self.scheduler = (policy != PolicyName::Interval)
            .then(|| Scheduler::new(policy, NEXT_SERIAL.fetch_add(1, Relaxed)));
        if let (Some(scheduler), Some(holder)) = (&mut self.scheduler, holder) {
            scheduler.take(waiters, holder, now_ns);
        }
    }

    /// `me` found the GIL held, and waits with this switch interval.
    pub fn begin_wait<W: Waiters>(
        &mut self,
        waiters: &mut W,
        me: ThreadId,
        interval_ns: u64,
        now_ns: u64,
    ) {
        if let Some(scheduler) = &mut self.scheduler {
            waiters.note_core(me);
            let own_slice_ns = waiters.own_slice_ns(me);
            waiters[me].set_slice(own_slice_ns);
            scheduler.wait(waiters, me, interval_ns, now_ns);
        }
    }

    /// What the waiter `me` is to do now; `requested_ns` is when a drop was last requested of this holder. Whoever is to look or to ask has left the queue; it comes back
    /// with its place if it waits on.
    pub fn step<W: Waiters>(
        &mut self,
        waiters: &mut W,
        me: ThreadId,
        holder: Option<ThreadId>,
        requested_ns: Option<u64>,
        now_ns: u64,
    ) -> Step {
        let Some(scheduler) = &mut self.scheduler else { return Step::Look };
        let Some(holder) = holder.filter(|_| waiters[me].is_queued()) else {
            scheduler.leave(waiters, me);
            return Step::Look;
        };
        let ask_ns = match requested_ns {
            None => scheduler.ask_ns(waiters, me, holder, now_ns),
            // CPython may have taken the request back, for a thread that ended after it had asked.
            Some(asked_ns) => asked_ns + waiters[me].interval_ns,
        };
        if ask_ns <= now_ns {
            scheduler.leave(waiters, me);
            let patience_ns = waiters[me].interval_ns.min(waiters[holder].slice_ns());
            let early = now_ns < waiters[me].waiting_since_ns + patience_ns;
            return Step::Ask { early };
        }
        let until_ns = ask_ns.min(now_ns + LOOK_NS);
        waiters[me].looks_at_ns = until_ns;
        futex::prepare(waiters.word(me));
        let spin = scheduler.next(waiters, now_ns) == Some(me) && !waiters.share_a_core(me, holder);
        Step::Park { until_ns, spin }
    }

    /// `me` has taken the GIL. The next waiter is called if it may ask sooner now than it knows. `false` if
    /// `me` did not wait while others do: then those forced to switch wait on, so that each can come
    /// before a waiter like that only once after it was asked.
    pub fn took<W: Waiters>(&mut self, waiters: &mut W, me: ThreadId, now_ns: u64) -> bool {
        let Some(scheduler) = &mut self.scheduler else { return true };
        let waited = waiters[me].waiting_since_ns != 0;
        let own_slice_ns = waiters.own_slice_ns(me);
        waiters[me].set_slice(own_slice_ns);
        scheduler.take(waiters, me, now_ns);
        waiters.note_core(me);
        let Some(next) = scheduler.next(waiters, now_ns) else { return true };
        let ask_ns = scheduler.ask_ns(waiters, next, me, now_ns);
        // To look a little late is better than to wake up twice.
        let slack_ns = waiters[next].interval_ns.min(waiters[me].slice_ns()) / 8;
        let slack_ns = if ask_ns <= now_ns { 0 } else { slack_ns };
        if ask_ns.saturating_add(slack_ns) < waiters[next].looks_at_ns {
            waiters[next].looks_at_ns = ask_ns;
            futex::call(waiters.word(next));
        }
        waited
    }

    /// `me` has dropped the GIL. Calls the thread that is to have it, and returns its id.
    pub fn dropped<W: Waiters>(
        &mut self,
        waiters: &mut W,
        me: ThreadId,
        forced: bool,
        now_ns: u64,
    ) -> Option<ThreadId> {
        let scheduler = self.scheduler.as_mut()?;
        scheduler.drop(waiters, me, forced, now_ns);
        let next = scheduler.next(waiters, now_ns)?;
        futex::call(waiters.word(next));
        Some(next)
    }

    /// `me` signalled `cond` without holding the GIL: it gives up waiting, and whoever is next is to look too.
    pub fn gave_up<W: Waiters>(&mut self, waiters: &mut W, me: ThreadId, now_ns: u64) {
        let Some(scheduler) = &mut self.scheduler else { return };
        scheduler.leave(waiters, me);
        waiters[me].waiting_since_ns = 0;
        if let Some(next) = scheduler.next(waiters, now_ns) {
            futex::call(waiters.word(next));
        }
    }
}

#[cfg(test)]
mod tests;
