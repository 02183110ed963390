//! Scheduling policies for a GIL, as pure state machines: which thread takes it next, and when a
//! waiting thread requests a drop of its holder.
//!
//! A driver reports the events of one GIL (wait, leave, take, drop) with their times to a
//! [`Scheduler`], and asks it which thread to wake and when to request a drop. `crates/gil` drives
//! the policies of a running CPython from its hooks; `lab/crates/simulation` drives the same code
//! in virtual time.
//!
//! A policy uses no operating system, clock, lock, memory allocation or unsafe code. A call takes a
//! few dozen instructions, plus the search for a thread's position in a queue.

#![forbid(unsafe_code)]
#![no_std]

mod deadline;
mod interval;
mod live;
mod policy;
mod priority;
mod queue;
mod scheduler;
mod thread;

pub use deadline::Deadline;
pub use interval::Interval;
pub use live::{LivePolicy, PolicyName};
pub use policy::{NEVER, Policy};
pub use priority::{LONG_BURST_NS, Priority};
pub use queue::Queue;
pub use scheduler::{Scheduler, is_cpu_bound};
pub use thread::{NOBODY, Thread, ThreadId, Threads, WHOLE_HOLD, WINDOW_NS};
