//! The trace: every take, wait, drop and drop request as an event of its own, the last of them
//! kept.
//!
//! [`recording`] is for hooks: it stores events in the [`ring`] of the present trace. [`control`]
//! begins, ends and reads a trace.

pub mod control;
mod recording;
pub mod ring;

pub use recording::{EventKind, forget, is_on, name_gil, name_thread, record, record_closed};
