//! The state of the counters of a thread or a GIL.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | `FREE` | on the free list, or never used | `LIVE` |
//! | `LIVE` | the thread runs and its GIL is open | `ENDED` |
//! | `ENDED` | the thread or the GIL has ended; its counters are still separate | `FREE`, once aggregated |
//! | `AGGREGATE` | the sum of counters that ended, by name; also those of the unmeasured threads of a GIL | `FREE` |
//!
//! The owning thread changes `FREE` to `LIVE`, in a hook. The thread that ends, or the one that
//! closes the GIL, changes `LIVE` to `ENDED` by compare-and-swap. All other changes are made under
//! the registry lock.

pub const FREE: u32 = 0;
pub const LIVE: u32 = 1;
pub const ENDED: u32 = 2;
pub const AGGREGATE: u32 = 3;
