//! Limits that have passed, reported with the Python stack of the thread that each is about.
//!
//! A stack takes up to 450 ms where its thread does not answer, and the monitor sends held
//! responses twice a millisecond. So a thread of its own takes the stacks, for as long as there are
//! some to take.

use crate::limits::control::{Control, Reason, say_on_stderr};
use crate::limits::inbox::Inbox;
use crate::limits::interruption::Interruption;
use headway_reporter::stacks::{self, Missing, Stack};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// For a thread to write its stack, and for the reporter to be done with another's.
const STACK_PATIENCE: Duration = Duration::from_millis(200);

pub struct Finding {
    pub native_id: i32,
    pub detail: String,
    pub consequence: Consequence,
}

/// What follows once the stack is written: a process that is replaced may end at any time.
pub enum Consequence {
    Replace(Reason),
    Interrupt(Interruption),
}

pub struct Findings {
    control: Arc<Control>,
    interruptions: Arc<Inbox<Interruption>>,
    /// The thread that reports some. Locked by the monitor only.
    reporting: Mutex<Option<JoinHandle<()>>>,
}

impl Findings {
    pub fn new(control: Arc<Control>, interruptions: Arc<Inbox<Interruption>>) -> Self {
        Self { control, interruptions, reporting: Mutex::default() }
    }

    pub fn are_being_reported(&self) -> bool {
        let reporting = self.reporting.lock().expect("no panic under this lock");
        reporting.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Does not wait. Called when no others are being reported.
    pub fn report(&self, found: Vec<Finding>) {
        if found.is_empty() {
            return;
        }
        // Shared: where the system has no thread to give, they are not lost with the closure.
        let found = Arc::new(Mutex::new(found));
        let (control, interruptions) = (Arc::clone(&self.control), Arc::clone(&self.interruptions));
        let theirs = Arc::clone(&found);
        let spawned = std::thread::Builder::new()
            .name("headway-stacks".into())
            .spawn(move || report_all(&theirs, &control, &interruptions, with_stack));
        match spawned {
            Ok(thread) => {
                *self.reporting.lock().expect("no panic under this lock") = Some(thread);
            }
            Err(error) => {
                let describe = |finding: &Finding| format!("{}. No stack: {error}", finding.detail);
                report_all(&found, &self.control, &self.interruptions, describe);
            }
        }
    }

    pub fn finish(&self) {
        let reporting = self.reporting.lock().expect("no panic under this lock").take();
        if let Some(thread) = reporting {
            let _ = thread.join();
        }
    }
}

fn report_all(
    found: &Mutex<Vec<Finding>>,
    control: &Control,
    interruptions: &Inbox<Interruption>,
    describe: impl Fn(&Finding) -> String,
) {
    let found = std::mem::take(&mut *found.lock().expect("no panic under this lock"));
    for finding in found {
        say_on_stderr(&describe(&finding));
        match finding.consequence {
            Consequence::Replace(reason) => control.say(reason, || finding.detail),
            Consequence::Interrupt(interruption) => interruptions.push(interruption),
        }
    }
}

fn with_stack(finding: &Finding) -> String {
    let detail = &finding.detail;
    match stacks::read(finding.native_id as u32, STACK_PATIENCE) {
        Ok(Stack { calls, .. }) => {
            format!("{detail}. Where it is:\nStack (most recent call first):\n{calls}")
        }
        Err(Missing::Unregistered) => detail.clone(),
        Err(missing) => format!("{detail}. No stack: {}", missing.as_str()),
    }
}
