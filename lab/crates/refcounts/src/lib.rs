//! Five kinds of reference counts that CPython has used or tried, to measure the cost of each.
//!
//! | kind | used by | may another thread count too? |
//! |---|---|---|
//! | [`Plain`] | CPython up to 3.11 | only one at a time, ensured by the GIL |
//! | [`Immortal`] | CPython from 3.12 on (PEP 683) | as `Plain`; immortal objects are not written |
//! | [`Atomic`] | Gilectomy, first version | yes |
//! | [`Buffered`] | Gilectomy, second version | yes: each logs, and one thread counts |
//! | [`Biased`] | free-threaded CPython (PEP 703) | yes: atomically, in a second word |
//!
//! A count here has the width of CPython's, and is tested and written in the order of `Py_INCREF`
//! and `Py_DECREF`; a number in [`Deaths`] stands for the object's deallocation. The crate does not
//! use Python. `measure` starts threads, which end before it returns.

#![forbid(unsafe_code)]

mod atomic;
mod biased;
mod buffered;
mod deaths;
mod immortal;
mod measure;
mod plain;

#[cfg(test)]
mod tests;

/// The types that counts and threads use; in this crate's own tests, those of the model checker.
mod sync {
    #[cfg(test)]
    pub use shuttle::{
        sync::{Arc, Barrier, Mutex, atomic, mpsc},
        thread,
    };
    #[cfg(not(test))]
    pub use std::{
        sync::{Arc, Barrier, Mutex, atomic, mpsc},
        thread,
    };
}

/// Locks a mutex. No code panics while it holds a lock, so poisoning is ignored.
fn lock<T>(mutex: &sync::Mutex<T>) -> impl std::ops::DerefMut<Target = T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub use atomic::Atomic;
pub use biased::Biased;
pub use buffered::Buffered;
pub use deaths::Deaths;
pub use immortal::Immortal;
pub use measure::{Found, MAX_THREADS, measure};
pub use plain::Plain;

/// The reference count of one object, which begins with one reference.
pub trait Count: Sync {
    /// The data with which a thread counts. It is dropped when the thread ends.
    type Thread<'a>: Send
    where
        Self: 'a;

    /// Creates the count of an object that this thread of the team owns.
    fn new(owner: usize) -> Self;

    /// Creates the data of `threads` threads that count the same objects and, for `Buffered`, the
    /// merger that counts for them all. The merger must run until the threads have ended.
    fn team<'a>(threads: usize) -> (Vec<Self::Thread<'a>>, Option<buffered::Merger<'a>>);

    /// Counts a reference that is made. The thread must have a reference already.
    fn incref<'a>(&'a self, thread: &mut Self::Thread<'a>);

    /// Counts a reference that the thread drops. After the last reference, the object dies: at
    /// once, or later if other threads must find that out.
    fn decref<'a>(&'a self, thread: &mut Self::Thread<'a>);

    /// Returns the number of references. The result is exact once all threads have ended.
    fn references(&self) -> i64;

    fn deaths(&self) -> &Deaths;
}

/// The kinds of counts, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Immortal,
    Atomic,
    Biased,
    Buffered,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::Immortal, Self::Atomic, Self::Biased, Self::Buffered];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Immortal => "immortal",
            Self::Atomic => "atomic",
            Self::Biased => "biased",
            Self::Buffered => "buffered",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Measures this kind; see [`measure`].
    pub fn measure(self, threads: usize, pairs: u64, shared: bool) -> Found {
        match self {
            Self::Plain => measure::<Plain>(threads, pairs, shared),
            Self::Immortal => measure::<Immortal>(threads, pairs, shared),
            Self::Atomic => measure::<Atomic>(threads, pairs, shared),
            Self::Biased => measure::<Biased>(threads, pairs, shared),
            Self::Buffered => measure::<Buffered>(threads, pairs, shared),
        }
    }
}
