//! Which GILs, interpreters and threads exist, and which counters are theirs.
//!
//! - [`addresses`]: how the addresses of a GIL relate to each other.
//! - [`gil`]: the state of one GIL; [`gils`]: the table of all.
//! - [`interpreters`]: which interpreters exist.
//! - [`threads`]: the table of threads; [`rows`]: which rows are whose; [`thread_end`]: the end of
//!   one.
//! - [`names`]: the names that the program gives threads and GILs.
//! - [`unanswered`]: what a holder does while a drop request is pending.

pub mod addresses;
pub mod gil;
pub mod gils;
pub mod interpreters;
pub mod names;
pub mod rows;
pub mod thread_end;
pub mod threads;
pub mod unanswered;
