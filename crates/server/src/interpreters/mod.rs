//! The interpreters that run the application, and a worker thread's state in each of them.

pub mod interpreter;
pub mod interruption;
pub mod mounts;
pub mod server;
pub mod thread_state;
