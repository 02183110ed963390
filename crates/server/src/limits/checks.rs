//! The limits that a worker process enforces itself: on its requests, on the time of one request,
//! and on how long a thread holds the GIL.
//!
//! An exceeded limit is reported on stderr and, once per process, to the supervisor, which alone
//! decides whether to replace the process; the process serves until then. Only if the supervisor is
//! gone does the process end itself (`parent_death`). The monitor checks the limits at least once
//! per second, without the GIL, because each limit exists for a process in which Python is stuck.
//! Data that costs time in each request is recorded only if its limit is set.

use crate::limits::inbox::Inbox;
use crate::limits::interruption::Interruption;
use crate::limits::parent_death::ParentDeathWatchdog;
use crate::limits::replacement_request::{Control, Reason};
use crate::limits::slow_requests::SlowRequests;
use crate::limits::stack_reports::{Consequence, Finding, Findings};
use crate::limits::threads::Threads;
use crate::limits::worker_status::{Overdue, WorkerStatus};
use crate::stderr::Seconds;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The longest delay until an exceeded limit is noticed. Short limits are checked more often.
const LONGEST_SWEEP: Duration = Duration::from_secs(1);
const SHORTEST_SWEEP: Duration = Duration::from_millis(10);
/// The most overdue requests that one sweep reports; later sweeps report the others.
const STACKS_PER_SWEEP: usize = 8;

/// A limit of 0 is off. A limit of time also has its place in `time_limits_ns` and, if requests are
/// watched for it, in `join`.
#[derive(Clone, Copy, Debug)]
pub struct ProcessLimits {
    /// Requests after which the process is replaced.
    pub maximum_requests: u64,
    /// How long the process may be without a request, once it has had one.
    pub inactivity_ns: u64,
    /// How long a request may run in the application.
    pub request_ns: u64,
    /// How long a request may continue after it was interrupted; 0: it is not interrupted.
    pub interrupt_ns: u64,
    /// How long a thread may hold the GIL while another waits for it.
    pub deadlock_ns: u64,
    /// How long a request may wait for a thread before it is answered with 504.
    pub queue_ns: u64,
    /// How long the process may take to end once its supervisor is gone.
    pub orphan_ns: u64,
    /// The socket to the supervisor; -1 without one. The caller owns it and keeps it open.
    pub control_fd: RawFd,
    /// Requests that run for at least this long are reported in telemetry; 0: none are.
    pub slow_request_ns: u64,
    /// Whether these reports contain the User-Agent field.
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
    fn time_limits_ns(&self) -> impl Iterator<Item = u64> {
        let all = [self.inactivity_ns, self.request_ns, self.deadlock_ns, self.queue_ns];
        all.into_iter().filter(|ns| *ns != 0)
    }

    /// Returns true if the process ends itself once its supervisor is gone.
    fn watches_supervisor(&self) -> bool {
        self.control_fd >= 0 && self.orphan_ns != 0
    }
}

pub struct LimitChecks {
    pub limits: ProcessLimits,
    control: Arc<Control>,
    pub threads: Arc<Threads>,
    /// Whether the current request of each thread is recorded for the reports of long GIL holds.
    reported: bool,
    pub slow_requests: Option<Arc<SlowRequests>>,
    /// The number of requests that have ended. All threads write and read it, only if there is a
    /// maximum; relaxed, because the count orders no other data.
    requests: AtomicU64,
    parent_death: ParentDeathWatchdog,
    pub interruptions: Arc<Inbox<Interruption>>,
    findings: Findings,
}

impl LimitChecks {
    /// `reported`: see `PoolSettings`.
    pub fn new(limits: ProcessLimits, reported: bool) -> Self {
        // SAFETY: the settings name the control socket, which this process never closes.
        let control = Arc::new(unsafe { Control::new(limits.control_fd) });
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

    /// Returns true if a limit can be exceeded by the passage of time alone.
    pub fn has_timers(&self) -> bool {
        self.limits.time_limits_ns().next().is_some() || self.limits.watches_supervisor()
    }

    /// The period at which the monitor calls `check`.
    pub fn sweep_period(&self) -> Duration {
        let shortest =
            self.limits.time_limits_ns().min().map_or(LONGEST_SWEEP, Duration::from_nanos);
        (shortest / 4).clamp(SHORTEST_SWEEP, LONGEST_SWEEP)
    }

    /// Registers the calling thread as a worker thread.
    pub fn join(&self) -> Arc<WorkerStatus> {
        let has_limit = self.limits.inactivity_ns != 0 || self.limits.request_ns != 0;
        let describes = self.slow_requests.is_some();
        let is_tracked = has_limit || self.reported || describes;
        let status = Arc::new(WorkerStatus::of_this_thread(is_tracked, describes));
        self.threads.lock().push(Arc::clone(&status));
        status
    }

    /// Removes a worker thread.
    pub fn leave(&self, status: &Arc<WorkerStatus>) {
        self.threads.lock().retain(|other| !Arc::ptr_eq(other, status));
    }

    /// Counts a request that has ended, and requests a replacement at the maximum.
    pub fn count_request(&self) {
        let maximum = self.limits.maximum_requests;
        if maximum != 0 && self.requests.fetch_add(1, Relaxed) + 1 >= maximum {
            self.control.request_replacement(Reason::MaximumRequests, || {
                format!("{maximum} requests have ended")
            });
        }
    }

    /// Checks all limits that time can exceed. Only the monitor calls this.
    pub fn check(&self, now_ns: u64) {
        self.check_inactivity(now_ns);
        // The findings of an earlier sweep are reported first; a later sweep checks again.
        if !self.findings.are_being_reported() {
            let mut found = self.overdue_requests(now_ns);
            found.extend(self.long_hold());
            self.check_interrupted(now_ns);
            self.findings.report(found);
        }
        self.check_supervisor();
    }

    /// Waits until all findings are reported. The monitor calls this when the server has ended.
    pub fn finish(&self) {
        self.findings.finish();
    }

    /// Starts the parent-death watchdog if the supervisor is gone. The monitor calls this once more
    /// when the server has ended, because the process may continue for long after that.
    pub fn check_supervisor(&self) {
        let watches = self.limits.watches_supervisor() && !self.parent_death.is_running();
        if watches && self.control.has_hangup() {
            self.parent_death.end_process_in(self.limits.orphan_ns);
        }
    }

    fn check_inactivity(&self, now_ns: u64) {
        let limit_ns = self.limits.inactivity_ns;
        let threads = self.threads.lock();
        // A running request counts as activity, whatever it does.
        if limit_ns == 0 || threads.iter().any(|thread| thread.begun_ns().is_some()) {
            return;
        }
        // Before the first request there is nothing to gain from a new process.
        let Some(last_ns) = threads.iter().filter_map(|thread| thread.ended_ns()).max() else {
            return;
        };
        let idle_ns = now_ns.saturating_sub(last_ns);
        if idle_ns > limit_ns {
            self.control.request_replacement(Reason::InactivityTimeout, || {
                format!("no request for {} s", Seconds(idle_ns))
            });
        }
    }

    /// Returns the requests that exceed `request-timeout` and were not returned before.
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
                Seconds(request.run_ns),
                Seconds(limit_ns)
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
        let exceeds_grace = |thread: &Arc<WorkerStatus>| thread.exceeds_grace(now_ns, grace_ns);
        if self.limits.request_ns != 0
            && grace_ns != 0
            && self.threads.lock().iter().any(exceeds_grace)
        {
            self.control.request_replacement(Reason::RequestTimeout, || {
                format!("a request runs on {} s after it was interrupted", Seconds(grace_ns))
            });
        }
    }

    /// Returns a GIL hold that exceeds `deadlock-timeout`, unless one was reported before.
    fn long_hold(&self) -> Option<Finding> {
        let limit_ns = self.limits.deadlock_ns;
        if limit_ns == 0 || self.control.has_requested(Reason::DeadlockTimeout) {
            return None;
        }
        let hold = headway_gil::holds_longer_than(limit_ns, limit_ns).into_iter().next()?;
        let native_id = hold.native_id.unwrap_or(0);
        let detail = format!(
            "thread {} (native id {native_id}) has held the GIL for {} s while another waited; \
             deadlock-timeout allows {} s",
            hold.name,
            Seconds(hold.held_ns),
            Seconds(limit_ns)
        );
        let consequence = Consequence::Replace(Reason::DeadlockTimeout);
        Some(Finding { native_id: native_id as i32, detail, consequence })
    }
}
