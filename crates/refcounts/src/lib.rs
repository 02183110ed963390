//! Reference counts of five kinds, as CPython has or has tried them, to measure what each costs.
//!
//! | kind | whose | another thread may count too |
//! |---|---|---|
//! | [`Plain`] | CPython's up to 3.11 | only one at a time: the GIL's work |
//! | [`Immortal`] | CPython's from 3.12 on (PEP 683) | as `Plain`, but an immortal object's is never written |
//! | [`Atomic`] | Gilectomy's first | yes |
//! | [`Buffered`] | Gilectomy's second | yes: each logs, and one thread counts |
//! | [`Biased`] | free-threaded CPython's (PEP 703) | yes: the owner counts for itself, the others atomically |
//!
//! A count here is as wide, and is tested and written in the order, as in `Py_INCREF` and
//! `Py_DECREF`; what stands for the object's deallocation is a number that its [`Deaths`] keep. It
//! knows nothing of Python. `measure` starts threads of its own, and they end before it does.

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

/// What counts and threads are made of: the model checker's in this crate's own tests.
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

/// Nothing panics with a lock held.
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
    /// What a thread needs to count with. Its end is the thread's.
    type Thread<'a>: Send
    where
        Self: 'a;

    /// Of an object that belongs to this thread of its team.
    fn new(owner: usize) -> Self;

    /// So many threads that count the same objects, and the one beside them that counts for them
    /// all, where there is one. It is to run until they have ended.
    fn team<'a>(threads: usize) -> (Vec<Self::Thread<'a>>, Option<buffered::Merger<'a>>);

    /// The thread has a reference, and now has one more.
    fn incref<'a>(&'a self, thread: &mut Self::Thread<'a>);

    /// The thread has a reference less. If it was the last of all, the object dies: now, or later
    /// where others are to find that out.
    fn decref<'a>(&'a self, thread: &mut Self::Thread<'a>);

    /// Exact once all threads have ended.
    fn references(&self) -> i64;

    fn deaths(&self) -> &Deaths;
}

/// The kinds by name.
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

    /// See [`measure`].
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
