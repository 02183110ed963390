//! Reports of exceeded limits, each with the Python stack of the thread concerned.
//!
//! Taking a stack lasts up to 450 ms if the thread does not respond, and the monitor sends deferred
//! responses twice per millisecond. Therefore a separate thread takes the stacks; it exists while
//! there are findings to report.

use crate::limits::inbox::Inbox;
use crate::limits::interruption::Interruption;
use crate::limits::replacement_request::{Control, Reason};
use crate::stderr::log_to_stderr;
use headway_reporter::stacks::{self, Missing, Stack};
use headway_threads::internal_thread::{self, InternalThread};
use headway_threads::lock::Lock;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread may take to write its stack, and how long to wait for the reporter while it
/// takes another stack.
const STACK_TIMEOUT: Duration = Duration::from_millis(200);

pub struct Finding {
    pub native_id: i32,
    pub detail: String,
    pub consequence: Consequence,
}

/// The action taken after the stack is written. The stack comes first because a process that is
/// being replaced may exit at any time.
pub enum Consequence {
    Replace(Reason),
    Interrupt(Interruption),
}

pub struct Findings {
    control: Arc<Control>,
    interruptions: Arc<Inbox<Interruption>>,
    /// The thread that reports the latest findings. Only the monitor locks it.
    reporting: Lock<Option<InternalThread>>,
}

impl Findings {
    pub fn new(control: Arc<Control>, interruptions: Arc<Inbox<Interruption>>) -> Self {
        Self { control, interruptions, reporting: Lock::default() }
    }

    pub fn are_being_reported(&self) -> bool {
        let reporting = self.reporting.lock();
        reporting.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Reports the findings on another thread and returns at once. The caller first checks that
    /// `are_being_reported` returns false.
    pub fn report(&self, found: Vec<Finding>) {
        if found.is_empty() {
            return;
        }
        // The findings are shared, so that they survive the closure if the system cannot create a
        // thread.
        let found = Arc::new(Lock::new(found));
        let (control, interruptions) = (Arc::clone(&self.control), Arc::clone(&self.interruptions));
        let shared = Arc::clone(&found);
        let spawned = internal_thread::spawn("headway-stacks", move || {
            report_all(&shared, &control, &interruptions, with_stack);
        });
        match spawned {
            Ok(thread) => {
                *self.reporting.lock() = Some(thread);
            }
            Err(error) => {
                let describe = |finding: &Finding| format!("{}. No stack: {error}", finding.detail);
                report_all(&found, &self.control, &self.interruptions, describe);
            }
        }
    }

    pub fn finish(&self) {
        let reporting = self.reporting.lock().take();
        if let Some(thread) = reporting {
            thread.join();
        }
    }
}

fn report_all(
    found: &Lock<Vec<Finding>>,
    control: &Control,
    interruptions: &Inbox<Interruption>,
    describe: impl Fn(&Finding) -> String,
) {
    let found = std::mem::take(&mut *found.lock());
    for finding in found {
        log_to_stderr(&describe(&finding));
        match finding.consequence {
            Consequence::Replace(reason) => control.request_replacement(reason, || finding.detail),
            Consequence::Interrupt(interruption) => interruptions.push(interruption),
        }
    }
}

fn with_stack(finding: &Finding) -> String {
    let detail = &finding.detail;
    match stacks::read(finding.native_id as u32, STACK_TIMEOUT) {
        Ok(Stack { calls, .. }) => {
            format!("{detail}. Where it is:\nStack (most recent call first):\n{calls}")
        }
        Err(Missing::Unregistered) => detail.clone(),
        Err(missing) => format!("{detail}. No stack: {}", missing.as_str()),
    }
}
