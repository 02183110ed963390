//! The GILs, interpreters and threads that exist, and their counters.
//!
//! - [`gils`]: the table of GILs.
//! - [`interpreters`]: the interpreters that exist; [`interpreter_list`]: CPython's list of them.
//! - [`threads`]: the table of threads; [`rows`]: the rows of threads; [`thread_end`]: the end of
//!   one.
//! - [`names`]: the names that the program gives threads and GILs.

pub mod gils;
pub mod interpreter_list;
pub mod interpreters;
pub mod names;
pub mod rows;
pub mod thread_end;
pub mod threads;
