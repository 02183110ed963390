//! The reporter: a thread that reports the activity of this process once an interval.
//!
//! It does not take the GIL and never blocks. A report is one datagram (`datagram_sender`); if no
//! receiver accepts it, its contents are part of the next one. The contents come from *sources*
//! (`source`):
//! - `resources` with `cgroup`: the resources that the process uses;
//! - `gils` with `loops`: the meter's counters;
//! - `long_holds`: holds of a GIL that kept other threads waiting;
//! - `lines` with `late_lines`, `call_tree` and `contexts`: the code that ran while other threads
//!   waited, and while event loops were late;
//! - `gc_pauses`: the garbage collector;
//! - others that the user of the crate adds, such as a server.
//!
//! `stacks` reads the Python stack of a thread, and `calls` names its calls. `identity` has the
//! fields that never change, `rows` limits a tick to the size of a
//! datagram, and `mod_wsgi` converts histograms.
//!
//! The crate depends on the format (`headway_telemetry`), the meter and Linux, but not on Python,
//! requests or receivers.

mod call_tree;
mod calls;
mod cgroup;
pub mod contexts;
mod datagram_sender;
pub mod gc_pauses;
mod gils;
mod identity;
mod late_lines;
mod lines;
pub mod long_holds;
mod loops;
mod mod_wsgi;
mod reporter;
mod resources;
mod rows;
mod source;
pub mod stacks;

pub use datagram_sender::{DatagramSender, TargetError};
pub use gils::Gils;
pub use identity::Identity;
pub use lines::Lines;
pub use mod_wsgi::{MOD_WSGI_BUCKETS, mod_wsgi_buckets};
pub use reporter::{Ending, Reporter, Settings};
pub use resources::Resources;
pub use rows::{Bounds, OTHER, Row};
pub use source::{RequestCounts, Source, Tick};
