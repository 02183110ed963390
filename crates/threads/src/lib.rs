//! The threads of Headway in a user's program, and the locks and futexes that are not a hook's.
//!
//! `internal_thread` starts every thread of Headway, in the server too; no other code of Headway
//! calls `std::thread`, as `tests/test_threads.py` checks. `lock` is their mutex, `waker` and
//! `wakes` end a wait. `c_library` has what differs between glibc and musl. `process_end` ends the
//! process if no other thread is left.
//!
//! `fork`: a thread that forks first waits until the reporter and the sampler halt or end, *with
//! the GIL*: without it each fork would wait for the GIL several times, and signal handlers would
//! run in between. Therefore neither of the two ever waits for the GIL, nor for a lock whose holder
//! may wait for the GIL. The locks that they take:
//!
//! | lock | its holders |
//! |---|---|
//! | `Lock` of the reporter, its sources, the server's counters | run no Python, free it before they attach |
//! | the registry lock of `headway_gil` | never wait for the GIL, a GIL's mutex or Python |
//! | the tables of the profile | hooks, which only try it, and threads that run no Python |
//! | the request for a Python stack (`stacks`) | wait for a handler, not beyond a fork |

pub mod c_library;
pub mod fork;
pub mod internal_thread;
pub mod lock;
pub mod process_end;
pub mod waker;
mod wakes;
