//! The queue of the threads that wait for a GIL, while a policy schedules it.
//!
//! A thread that would wait on `cond` waits here instead, on a futex of its own, and the thread
//! that drops the GIL wakes the one that the policy chose. To make the holder drop, a waiter
//! returns to `take_gil` as if its timed wait had timed out; CPython then makes the drop request
//! itself. This keeps CPython's protocol, so a waiter may return to `take_gil` at any time and
//! check the GIL itself. That happens when the policy changes or the meter is removed.
//!
//! Everything in this file runs with the GIL's mutex held. `forced_switch` is the wait of a thread
//! that was forced to drop.

pub mod cpu_time;
pub mod forced_switch;
pub mod futex;
pub mod waiters;
pub mod wakeup;

use std::sync::atomic::{AtomicU32, Ordering::*};

use headway_sched::{PolicyName, Scheduler, ThreadId, Threads, WHOLE_HOLD};

use futex::Futex;

/// The next waiter checks the GIL itself after this time, so a lost wakeup costs at most this time.
const RECHECK_NS: u64 = 100_000_000;
/// So does every other waiter after this one.
const LATER_RECHECK_NS: u64 = 10 * RECHECK_NS;

/// The policy that is set, as an index into `PolicyName::ALL`. Writer: the holder of the main GIL,
/// with release. Readers: events, which apply it to their GIL.
static POLICY: AtomicU32 = AtomicU32::new(PolicyName::Interval as u32);
/// The serial number of the next scheduler. Writers: events, by atomic addition.
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);

pub fn set_policy(policy: PolicyName) {
    POLICY.store(policy as u32, Release);
}

pub fn policy() -> PolicyName {
    PolicyName::ALL.get(POLICY.load(Acquire) as usize).copied().unwrap_or(PolicyName::Interval)
}

/// The threads of a GIL, as the queue needs them.
pub trait Waiters: Threads {
    type Futex: Futex;
    fn futex(&self, thread: ThreadId) -> &Self::Futex;
    /// Notes the core that the calling thread runs on.
    fn note_core(&mut self, this_thread: ThreadId);
    /// Returns whether two threads were last seen on the same core.
    fn share_a_core(&self, one: ThreadId, other: ThreadId) -> bool;
    /// The calling thread begins to hold; see [`cpu_time`].
    fn note_cpu_time(&mut self, this_thread: ThreadId, now_ns: u64);
    /// Returns for how long the calling thread ran during a hold of this length, which ends; see
    /// [`cpu_time`].
    fn ran_ns(&mut self, this_thread: ThreadId, hold_ns: u64, now_ns: u64) -> u64;
}

/// The next step of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Return from the timed wait, to check whether the GIL is free.
    Recheck,
    /// Return as if the timed wait had timed out, to request a drop. `early` is true before the
    /// switch interval, or the holder's slice if that is shorter, has passed since the wait began.
    RequestDrop { early: bool },
    /// Release the mutex and wait, until `until_ns` at most. Spinning first is worthwhile if the
    /// waiter is next and the holder runs on another core.
    Wait { until_ns: u64, spin: bool },
}

/// The meaning of a take for a thread in a forced-switch wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The thread continues to wait: another thread took that did not wait, while others do. So a
    /// thread that was forced to drop passes such a waiter only once after each request.
    Pending,
    /// Its wait ends.
    Made,
    /// Its wait ends, and it stands back if the hold is brief: an I/O-bound thread took, and no
    /// thread is in the queue.
    Brief,
}

/// The queue of one GIL. Guarded by the GIL's mutex.
pub struct Queue {
    policy: PolicyName,
    /// `None` under `interval`, which leaves scheduling to CPython.
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

    /// Returns whether another policy is set than the one in force.
    pub fn is_outdated(&self) -> bool {
        self.policy as u32 != POLICY.load(Relaxed)
    }

    /// Puts the policy that is set in force. Wakes all waiters, which begin to wait again.
    pub fn follow<W: Waiters>(&mut self, waiters: &mut W, holder: Option<ThreadId>, now_ns: u64) {
        self.change(policy(), waiters, holder, now_ns);
    }

    /// Puts a policy in force, like `follow`.
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
                wakeup::wake(waiters.futex(waiter));
            }
        }
        self.policy = policy;
        self.scheduler = (policy != PolicyName::Interval)
            .then(|| Scheduler::new(policy, NEXT_SERIAL.fetch_add(1, Relaxed)));
        if let (Some(scheduler), Some(holder)) = (&mut self.scheduler, holder) {
            scheduler.take(waiters, holder, now_ns);
        }
    }

    /// `me` found the GIL held, and waits with this switch interval. `own_slice_ns` is the slice of
    /// the calling thread, or 0 for one switch interval of the GIL.
    pub fn begin_wait<W: Waiters>(
        &mut self,
        waiters: &mut W,
        me: ThreadId,
        interval_ns: u64,
        own_slice_ns: u64,
        now_ns: u64,
    ) {
        if let Some(scheduler) = &mut self.scheduler {
            waiters.note_core(me);
            waiters[me].set_slice(own_slice_ns);
            scheduler.wait(waiters, me, interval_ns, now_ns);
        }
    }

    /// Decides the next step of the waiter `me`. `requested_ns` is the time of the last drop
    /// request against the present hold. `Recheck` and `RequestDrop` remove the waiter from the
    /// queue; it keeps its position if it waits again.
    pub fn step<W: Waiters>(
        &mut self,
        waiters: &mut W,
        me: ThreadId,
        holder: Option<ThreadId>,
        requested_ns: Option<u64>,
        now_ns: u64,
    ) -> Step {
        let Some(scheduler) = &mut self.scheduler else { return Step::Recheck };
        let Some(holder) = holder.filter(|_| waiters[me].is_queued()) else {
            scheduler.leave(waiters, me);
            return Step::Recheck;
        };
        let ask_ns = match requested_ns {
            None => scheduler.ask_ns(waiters, me, holder, now_ns),
            // CPython may have withdrawn the request, for a thread that ended after it.
            Some(requested_ns) => requested_ns + waiters[me].interval_ns,
        };
        if ask_ns <= now_ns {
            scheduler.leave(waiters, me);
            let turn_ns = waiters[me].interval_ns.min(waiters[holder].slice_ns());
            let early = now_ns < waiters[me].waiting_since_ns + turn_ns;
            return Step::RequestDrop { early };
        }
        let is_next = scheduler.next(waiters, now_ns) == Some(me);
        let recheck_ns = if is_next { RECHECK_NS } else { LATER_RECHECK_NS };
        let until_ns = ask_ns.min(now_ns + recheck_ns);
        waiters[me].looks_at_ns = until_ns;
        wakeup::prepare(waiters.futex(me));
        let spin = is_next && !waiters.share_a_core(me, holder);
        Step::Wait { until_ns, spin }
    }

    /// `me` has taken the GIL. Wakes the next waiter if it may now request a drop earlier than it
    /// expects. Returns what the take means for a thread in a forced-switch wait.
    pub fn took<W: Waiters>(
        &mut self,
        waiters: &mut W,
        me: ThreadId,
        own_slice_ns: u64,
        now_ns: u64,
    ) -> Switch {
        let Some(scheduler) = &mut self.scheduler else { return Switch::Made };
        let waited = waiters[me].waiting_since_ns != 0;
        waiters[me].set_slice(own_slice_ns);
        scheduler.take(waiters, me, now_ns);
        waiters.note_core(me);
        // A CPU-bound thread keeps its class whatever it loses, and the system call at its takes
        // costs an echo server beside eight of them a fifth of its requests.
        if !headway_sched::is_cpu_bound(waiters, me) {
            waiters.note_cpu_time(me, now_ns);
        }
        let Some(next) = scheduler.next(waiters, now_ns) else {
            return match headway_sched::is_cpu_bound(waiters, me) {
                true => Switch::Made,
                false => Switch::Brief,
            };
        };
        let ask_ns = scheduler.ask_ns(waiters, next, me, now_ns);
        // A request that is a little late is better than two wakeups.
        let slack_ns = waiters[next].interval_ns.min(waiters[me].slice_ns()) / 8;
        let slack_ns = if ask_ns <= now_ns { 0 } else { slack_ns };
        if ask_ns.saturating_add(slack_ns) < waiters[next].looks_at_ns {
            waiters[next].looks_at_ns = ask_ns;
            wakeup::wake(waiters.futex(next));
        }
        if waited { Switch::Made } else { Switch::Pending }
    }

    /// `holder` has dropped the GIL. It is the calling thread if `seen`; otherwise the event of its
    /// drop was missed. Wakes the thread that the policy chose, and returns it.
    pub fn dropped<W: Waiters>(
        &mut self,
        waiters: &mut W,
        holder: ThreadId,
        forced: bool,
        seen: bool,
        now_ns: u64,
    ) -> Option<ThreadId> {
        let scheduler = self.scheduler.as_mut()?;
        let hold_ns = now_ns.saturating_sub(waiters[holder].taken_ns);
        let ran_ns = match seen {
            true => waiters.ran_ns(holder, hold_ns, now_ns),
            false => WHOLE_HOLD,
        };
        scheduler.drop(waiters, holder, forced, ran_ns, now_ns);
        let next = scheduler.next(waiters, now_ns)?;
        wakeup::wake(waiters.futex(next));
        Some(next)
    }

    /// `me` signalled `cond` without holding the GIL: it stops waiting. Wakes the next waiter, so
    /// that it checks the GIL too.
    pub fn gave_up<W: Waiters>(&mut self, waiters: &mut W, me: ThreadId, now_ns: u64) {
        let Some(scheduler) = &mut self.scheduler else { return };
        scheduler.leave(waiters, me);
        waiters[me].waiting_since_ns = 0;
        if let Some(next) = scheduler.next(waiters, now_ns) {
            wakeup::wake(waiters.futex(next));
        }
    }
}

#[cfg(test)]
mod tests;
