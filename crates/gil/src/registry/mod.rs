//! The GILs, interpreters and threads that exist, and their counters.
//!
//! - [`addresses`]: how the addresses of a GIL relate to each other.
//! - [`gil`]: the state of one GIL; [`gils`]: the table of all.
//! - [`interpreters`]: the interpreters that exist; [`interpreter_list`]: CPython's list of them.
//! - [`threads`]: the table of threads; [`rows`]: the rows of threads; [`thread_end`]: the end of
//!   one.
//! - [`names`]: the names that the program gives threads and GILs.
//! - [`unanswered`]: what a holder does while a drop request is pending.

pub mod addresses;
pub mod gil;
pub mod gils;
pub mod interpreter_list;
pub mod interpreters;
pub mod names;
pub mod rows;
pub mod thread_end;
pub mod threads;
pub mod unanswered;
