//! The counters, in memory that any thread and any other process can read without the GIL.
//!
//! The memory is shared between the processes of a run: [`mapping`] creates and maps it, [`file`]
//! writes and reads it as a file. Each process has one [`ProcessCounters`], which has
//! [`GilCounters`] for its GILs and [`ThreadCounters`] for each pair of a thread and a GIL that it
//! uses. [`free_list`] hands out the latter.
//!
//! Counters only count. `events` decides what an event means and which counters it changes.
//!
//! Every field is an atomic with relaxed ordering unless its comment says otherwise, because this
//! process or another one may read it at any time. All zero bytes are unused counters. No field is
//! a pointer, so a copy in a file has the same meaning.
//!
//! The writer of a counter is the thread that runs the event, while it holds the mutex of that GIL.
//! The mutex makes one writer of many threads. Comments of fields state the exceptions.

pub mod aggregation;
mod event_loop;
pub mod file;
pub mod free_list;
mod gil;
mod late_line;
pub mod mapping;
mod process;
pub mod state;
mod text;
mod thread;

pub use event_loop::LoopCounters;
pub use gil::{GilCounters, gap};
pub use late_line::{LateLine, LateLineRow};
pub use process::{
    GILS, LOOPS, NO_GIL, ProcessCounters, ROWS, forget_process, of_this_process,
    set_of_this_process,
};
pub use text::{NAME_BYTES, Name};
pub use thread::ThreadCounters;
