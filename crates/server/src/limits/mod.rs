//! The limits that a worker process watches itself: how long it may serve, a request may run, the GIL
//! may be held.
//!
//! What is found goes to stderr and, once per process, to the supervisor, which alone decides what
//! becomes of the process; serving goes on until it does. Only if the supervisor has gone does the
//! process end itself: see `parent_death`. Checked by the monitor once a second or
//! more often, without the GIL: each of these limits is for a process in which Python is stuck.
//! What costs a request something is kept only where its limit is set.

mod control;
mod findings;
mod in_flight;
pub mod inbox;
mod interruption;
mod parent_death;
mod slow_requests;
mod stamp;
mod threads;
mod worker_status;

pub use control::{Reason, say_on_stderr};
pub use interruption::Interruption;
pub use slow_requests::{SlowRequestReport, SlowRequests};
pub use stamp::note_journal;
pub use threads::Threads;
pub use worker_status::WorkerStatus;

use crate::limits::inbox::Inbox;
use control::Control;
use findings::{Consequence, Finding, Findings};
use parent_death::ParentDeathWatchdog;
use std::fmt::Display;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use worker_status::Overdue;

/// How late it may be noticed that a limit has passed; less where the limit is short itself.
const LONGEST_SWEEP: Duration = Duration::from_secs(1);
const SHORTEST_SWEEP: Duration = Duration::from_millis(10);
/// Overdue requests of one sweep; a later sweep finds the others.
const STACKS_PER_SWEEP: usize = 8;

/// 0 turns a limit off.
#[derive(Clone, Copy, Debug)]
pub struct ProcessLimits {
    pub maximum_requests: u64,
    /// Without a request, once there was one.
    pub inactivity_ns: u64,
    /// How long a request may run in the application.
    pub request_ns: u64,
    /// How long it may go on after it was interrupted; 0: it is not interrupted.
    pub interrupt_ns: u64,
    /// How long a thread may hold the GIL while another waits for it.
    pub deadlock_ns: u64,
    /// How long a request may wait for a thread before it is answered 504.
    pub queue_ns: u64,
    /// How long the process may take to end once its supervisor has gone.
    pub orphan_ns: u64,
    /// Where the supervisor listens; -1 for nobody. Stays the caller's, and open.
    pub control_fd: RawFd,
    /// A request that runs for so long is told of in telemetry; 0: none is.
    pub slow_request_ns: u64,
    /// And what its client calls itself.
    pub user_agents: bool,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            maximum_requests: 0,
            inactivity_ns: 0,
            request_ns: 0,
            interrupt_ns: 0,
            deadlock_ns: 0,
            queue_ns: 0,
            orphan_ns: 0,
            control_fd: -1,
            slow_request_ns: 0,
            user_agents: false,
        }
    }
}

impl ProcessLimits {
    fn times(&self) -> impl Iterator<Item = u64> {
        let all = [self.inactivity_ns, self.request_ns, self.deadlock_ns, self.queue_ns];
        all.into_iter().filter(|ns| *ns != 0)
    }

    /// Whether the process ends itself where its supervisor does not.
    fn minds_supervisor(&self) -> bool {
        self.control_fd >= 0 && self.orphan_ns != 0
    }
}

pub struct Watch {
    pub limits: ProcessLimits,
    control: Arc<Control>,
    pub threads: Arc<Threads>,
    /// Whether somebody wants to know of every request what it is for: who reports long holds of a GIL.
    reported: bool,
    pub slow_requests: Option<Arc<SlowRequests>>,
    /// Requests that ran. Written by all threads, only if there is a maximum; relaxed.
    requests: AtomicU64,
    parent_death: ParentDeathWatchdog,
    pub interruptions: Arc<Inbox<Interruption>>,
    findings: Findings,
}

impl Watch {
    /// `reported`: see `PoolSettings`.
    pub fn new(limits: ProcessLimits, reported: bool) -> Self {
        let control = Arc::new(Control::new(limits.control_fd));
        let interruptions = Arc::<Inbox<Interruption>>::default();
        let findings = Findings::new(Arc::clone(&control), Arc::clone(&interruptions));
        let threads = Arc::<Threads>::default();
        let (slow_ns, user_agents) = (limits.slow_request_ns, limits.user_agents);
        let slow_requests = (slow_ns != 0)
            .then(|| Arc::new(SlowRequests::new(slow_ns, user_agents, Arc::clone(&threads))));
        Self {
            limits,
            control,
            threads,
            reported,
            slow_requests,
            requests: AtomicU64::new(0),
            parent_death: ParentDeathWatchdog::default(),
            interruptions,
            findings,
        }
    }

    /// Whether time alone can bring something to light.
    pub fn has_timers(&self) -> bool {
        self.limits.times().next().is_some() || self.limits.minds_supervisor()
    }

    /// How often to look.
    pub fn sweep(&self) -> Duration {
        let least = self.limits.times().min().map_or(LONGEST_SWEEP, Duration::from_nanos);
        (least / 4).clamp(SHORTEST_SWEEP, LONGEST_SWEEP)
    }

    /// The calling thread begins to work here.
    pub fn join(&self) -> Arc<WorkerStatus> {
        let has_limit = self.limits.inactivity_ns != 0 || self.limits.request_ns != 0;
        let describes = self.slow_requests.is_some();
        let wanted = has_limit || self.reported || describes;
        let activity = Arc::new(WorkerStatus::of_this_thread(wanted, describes));
        self.threads.lock().push(Arc::clone(&activity));
        activity
    }

    pub fn leave(&self, activity: &Arc<WorkerStatus>) {
        self.threads.lock().retain(|other| !Arc::ptr_eq(other, activity));
    }

    /// A request has ended.
    pub fn count_request(&self) {
        let maximum = self.limits.maximum_requests;
        if maximum != 0 && self.requests.fetch_add(1, Relaxed) + 1 >= maximum {
            self.control.say(Reason::MaximumRequests, || format!("{maximum} requests have ended"));
        }
    }

    /// Looks at all limits that time can break. For the monitor.
    pub fn check(&self, now_ns: u64) {
        self.check_inactivity(now_ns);
        // Those of an earlier sweep are still being reported: a later sweep looks again.
        if !self.findings.are_being_reported() {
            let mut found = self.overdue_requests(now_ns);
            found.extend(self.long_hold());
            self.check_interrupted(now_ns);
            self.findings.report(found);
        }
        self.check_supervisor();
    }

    /// Waits until what was found is reported. For the monitor, when the server is over.
    pub fn finish(&self) {
        self.findings.finish();
    }

    /// For the monitor, which calls it once more when the server is over: the end of the process
    /// may be far yet.
    pub fn check_supervisor(&self) {
        let minds = self.limits.minds_supervisor() && !self.parent_death.is_known();
        if minds && self.control.has_hangup() {
            self.parent_death.end_process_in(self.limits.orphan_ns);
        }
    }

    fn check_inactivity(&self, now_ns: u64) {
        let limit_ns = self.limits.inactivity_ns;
        let threads = self.threads.lock();
        // A request that runs is activity, whatever it does.
        if limit_ns == 0 || threads.iter().any(|thread| thread.begun_ns().is_some()) {
            return;
        }
        // Nobody has asked for anything yet, so that nothing is gained by starting afresh.
        let Some(last_ns) = threads.iter().filter_map(|thread| thread.ended_ns()).max() else {
            return;
        };
        let idle_ns = now_ns.saturating_sub(last_ns);
        if idle_ns > limit_ns {
            self.control
                .say(Reason::InactivityTimeout, || format!("no request for {} s", Tenths(idle_ns)));
        }
    }

    /// Requests that have run for longer than they may and were not found before.
    fn overdue_requests(&self, now_ns: u64) -> Vec<Finding> {
        let (limit_ns, grace_ns) = (self.limits.request_ns, self.limits.interrupt_ns);
        if limit_ns == 0 {
            return Vec::new();
        }
        let threads = self.threads.lock();
        let overdue = threads
            .iter()
            .filter_map(|thread| thread.overdue(now_ns, limit_ns).map(|request| (thread, request)));
        let found = |(thread, request): (&Arc<WorkerStatus>, Overdue)| {
            let native_id = thread.native_id;
            let name = headway_gil::name_of(native_id as u32).unwrap_or_default();
            let detail = format!(
                "{} has run for {} s on thread {name} (native id {native_id}); request-timeout \
                 allows {} s",
                request.line,
                Tenths(request.run_ns),
                Tenths(limit_ns)
            );
            let consequence = match grace_ns {
                0 => Consequence::Replace(Reason::RequestTimeout),
                _ => Consequence::Interrupt(Interruption::new(thread, request.begun_ns)),
            };
            Finding { native_id, detail, consequence }
        };
        overdue.take(STACKS_PER_SWEEP).map(found).collect()
    }

    fn check_interrupted(&self, now_ns: u64) {
        let grace_ns = self.limits.interrupt_ns;
        let outlasts = |thread: &Arc<WorkerStatus>| thread.outlasts(now_ns, grace_ns);
        if self.limits.request_ns != 0 && grace_ns != 0 && self.threads.lock().iter().any(outlasts)
        {
            self.control.say(Reason::RequestTimeout, || {
                format!("a request runs on {} s after it was interrupted", Tenths(grace_ns))
            });
        }
    }

    /// A hold of a GIL that has lasted for longer than it may, unless one was reported before.
    fn long_hold(&self) -> Option<Finding> {
        let limit_ns = self.limits.deadlock_ns;
        if limit_ns == 0 || self.control.has_said(Reason::DeadlockTimeout) {
            return None;
        }
        let hold = headway_gil::holds_longer_than(limit_ns, limit_ns).into_iter().next()?;
        let native_id = hold.native_id.unwrap_or(0);
        let detail = format!(
            "thread {} (native id {native_id}) has held the GIL for {} s while another waited; \
             deadlock-timeout allows {} s",
            hold.name,
            Tenths(hold.held_ns),
            Tenths(limit_ns)
        );
        let consequence = Consequence::Replace(Reason::DeadlockTimeout);
        Some(Finding { native_id: native_id as i32, detail, consequence })
    }
}

/// Nanoseconds, written as seconds with one digit after the point.
struct Tenths(u64);

impl Display for Tenths {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "{:.1}", self.0 as f64 / 1e9)
    }
}
