//! What every part of Headway measures with: the clocks, and the histogram of durations.

pub mod clock;
pub mod histogram;
