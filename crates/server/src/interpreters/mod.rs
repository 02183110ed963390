//! The interpreters that run the application, and a worker thread's state in each of them.
//!
//! - [`mounts`]: application groups; which interpreter runs which request.
//! - [`interpreter`]: one interpreter, from its first request to its end.
//! - [`departing_threads`]: threads that still delete their thread state.
//! - [`thread_state`]: what a worker thread keeps of one interpreter.

mod departing_threads;
pub mod interpreter;
pub mod mounts;
pub mod thread_state;
