//! The threads of Headway in a user's program, and the lock that they share with its threads.
//!
//! `internal_thread` starts every thread of Headway, in the server too; no other code of Headway
//! calls `std::thread` outside of tests (`tests/test_threads.py`). `lock` is a mutex for code that
//! is not part of a hook.

pub mod internal_thread;
pub mod lock;
