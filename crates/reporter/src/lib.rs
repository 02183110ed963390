//! The reporter: a thread that tells, once an interval, what this process has done since it last did.
//!
//! It needs no GIL and waits for nobody: what it tells goes out in one datagram (`post`), or, where nobody listens
//! or has time to, into the next one. What there is to tell comes from *sources* (`source`): `resources` with `cgroup`
//! knows what the process takes of its machine, `gils` what became of the GIL, `long_holds` who kept it from others,
//! `gc_pauses` what the garbage collector did; others are added by whoever has them, such as a server. `stacks` says
//! what Python a thread runs. `identity` is what never changes, `bell` wakes the thread, `rows` keeps a tick within what a datagram holds,
//! `mod_wsgi` converts histograms.
//!
//! Knows the format (`headway_telemetry`), the meter's books and Linux; nothing of Python, requests or
//! who receives.

mod bell;
mod cgroup;
pub mod gc_pauses;
mod gils;
mod identity;
pub mod long_holds;
mod mod_wsgi;
mod post;
mod reporter;
mod resources;
mod rows;
mod source;
pub mod stacks;

pub use bell::ring_for_signal;
pub use gils::Gils;
pub use identity::Identity;
pub use mod_wsgi::{MOD_WSGI_BUCKETS, mod_wsgi_buckets};
pub use post::{Post, TargetError};
pub use reporter::{Ending, Reporter, Settings, monotonic_ns, wall_of_ns};
pub use resources::Resources;
pub use rows::{Bounds, OTHER, Row};
pub use source::{RequestCounts, Source, Tick};
