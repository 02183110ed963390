//! What the live queue keeps for each thread on each GIL, at the index of its book.

use std::cell::UnsafeCell;
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use headway_sched::{Thread, ThreadId, Threads};

use crate::counters::free_list;
use crate::counters::mapping::{BOOKS, Slot};
use crate::queue::Waiters;
use crate::queue::futex;
use crate::queue::futex::Futex;
use crate::registry::threads;

/// A thread's place in the queue of a GIL.
#[repr(align(64))]
struct Seat {
    /// What the policies know of the thread. Guarded by the GIL's mutex; see `Seats`.
    thread: UnsafeCell<Thread>,
    /// What the thread waits on.
    word: Futex,
    /// The core that the thread was last seen on. Written by the thread.
    core: AtomicU32,
    /// Whether the thread has the hint of `hints`. Written by the thread, and by whoever ends the policy.
    hint: AtomicBool,
}

// SAFETY: `thread` is reached only as `Seats` and `forced_wait_ended` allow.
unsafe impl Sync for Seat {}

static SEATS: [Seat; BOOKS] = [const {
    Seat {
        thread: UnsafeCell::new(Thread::new()),
        word: Futex::new(),
        core: AtomicU32::new(u32::MAX),
        hint: AtomicBool::new(false),
    }
}; BOOKS];

/// The seats of the threads of one GIL.
pub struct Seats(());

impl Seats {
    /// # Safety
    /// The caller holds the mutex of a GIL until it drops this, has no other, and uses no ids but
    /// those of this GIL's books.
    pub unsafe fn of_locked_gil() -> Self {
        Self(())
    }
}

impl Index<ThreadId> for Seats {
    type Output = Thread;

    fn index(&self, id: ThreadId) -> &Thread {
        // SAFETY: the promise made to `of_locked_gil`.
        unsafe { &*SEATS[id as usize].thread.get() }
    }
}

impl IndexMut<ThreadId> for Seats {
    fn index_mut(&mut self, id: ThreadId) -> &mut Thread {
        // SAFETY: as above.
        unsafe { &mut *SEATS[id as usize].thread.get() }
    }
}

impl Threads for Seats {}

impl Waiters for Seats {
    type Word = Futex;

    fn word(&self, thread: ThreadId) -> &Futex {
        &SEATS[thread as usize].word
    }

    fn own_slice_ns(&self, _this_thread: ThreadId) -> u64 {
        threads::switch_interval_of_this_thread_ns()
    }

    fn note_core(&mut self, this_thread: ThreadId) {
        note_core(this_thread);
    }

    fn share_a_core(&self, one: ThreadId, other: ThreadId) -> bool {
        share_a_core(one, other)
    }
}

/// The word of the calling thread. Without the mutex.
pub fn word(this_thread: ThreadId) -> &'static Futex {
    &SEATS[this_thread as usize].word
}

pub fn has_hint(book: ThreadId) -> bool {
    SEATS[book as usize].hint.load(Relaxed)
}

pub fn set_hint(book: ThreadId, given: bool) {
    SEATS[book as usize].hint.store(given, Relaxed);
}

pub fn note_core(this_thread: ThreadId) {
    // SAFETY: no preconditions. The C library reads it from memory that the kernel keeps (rseq).
    let core = unsafe { libc::sched_getcpu() };
    SEATS[this_thread as usize].core.store(core as u32, Relaxed);
}

/// Whether two threads were last seen on the same core: then at most one of them runs.
pub fn share_a_core(one: ThreadId, other: ThreadId) -> bool {
    let core = |id: ThreadId| SEATS[id as usize].core.load(Relaxed);
    core(one) == core(other)
}

/// The book was given to another thread: nothing is known of it. With the GIL's mutex held.
pub fn clear(book: ThreadId) {
    // SAFETY: nobody else knows the book yet.
    unsafe { *SEATS[book as usize].thread.get() = Thread::new() };
    set_hint(book, false);
}

/// The calling thread has waited for the switch that it was forced to. Without the mutex: nobody
/// looks at a thread that neither waits nor holds.
pub fn forced_wait_ended(this_thread: ThreadId, now_ns: u64) {
    // SAFETY: see above.
    unsafe { (*SEATS[this_thread as usize].thread.get()).forced_wait_ended(now_ns) };
}

/// The calling thread, which neither waits nor holds, is to be taken for a new one. Without the mutex,
/// as `forced_wait_ended`. The hint stays as it is.
pub fn begin_anew(this_thread: ThreadId) {
    // SAFETY: see there.
    unsafe { (*SEATS[this_thread as usize].thread.get()).begin_anew() };
}

/// Calls everybody who may wait in any queue. After the books were closed, so that nobody begins to.
pub fn call_all(slot: &Slot) {
    for (book, _) in free_list::used(slot) {
        futex::call(&SEATS[book as usize].word);
    }
}
