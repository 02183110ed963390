//! Who gets the GIL next, and when its holder is asked to drop it: policies as pure state machines.
//!
//! A driver tells a [`Scheduler`] the events of one GIL (wait, leave, take, drop) with their time, and
//! asks it whom to wake and when to request a drop. `crates/gil` drives it live from its hooks; the
//! simulator drives the very same code in virtual time.
//!
//! No OS, no clock, no lock, no allocation, no unsafe: a call is a few dozen instructions, but for a
//! queue in which a thread has to find its place. `simulation`, a feature, is the virtual time, and does
//! allocate.

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "simulation"), no_std)]

mod beazley;
mod deadline;
mod interval;
mod policy;
mod priority;
mod queue;
mod requests;
mod scheduler;
#[cfg(feature = "simulation")]
pub mod simulation;
mod thread;
mod ticks;

pub use policy::{NEVER, Policy, PolicyName};
pub use queue::Queue;
pub use scheduler::{Scheduler, is_cpu_bound};
pub use thread::{NOBODY, Thread, ThreadId, Threads, WINDOW_NS};
