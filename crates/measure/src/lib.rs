//! The clocks and the histogram of durations that every part of Headway measures with.
//!
//! - [`clock`]: the clocks of the operating system.
//! - [`tsc`]: a cheaper reading of one of them.
//! - [`scale`]: the log-linear buckets, shared by both forms of the histogram.
//! - [`AtomicHistogram`]: the form that a thread writes while others read it, also in shared
//!   memory.
//! - [`Histogram`]: the form that is merged, subtracted, sent and asked for percentiles.

mod atomic;
pub mod clock;
mod histogram;
pub mod scale;
pub mod tsc;

pub use atomic::{AtomicHistogram, add};
pub use histogram::{Histogram, Merge};
