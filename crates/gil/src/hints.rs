//! Hints to the kernel: I/O-bound threads run soon when they wake up, and CPU-bound ones let them.
//!
//! A thread that waits for I/O and wakes up on the core of one that computes may wait there for the
//! kernel's tick, some milliseconds, before it can so much as ask for the GIL. With a shorter slice
//! (`sched_setattr`, EEVDF, Linux 6.12 and later; without effect before) it runs at once, unless what the other
//! has left of its slice is shorter still: so CPU-bound threads get a longer one. The share of the processor,
//! the scheduling policy and the nice value stay as they are.
//!
//! Given to the calling thread only, outside the mutexes, and only if it is in `SCHED_OTHER` with the slice
//! that all threads have, or the one that it was given; taken back when it starts a thread, forks, and when the
//! policy ends. A process made by vfork or posix_spawn inherits it. A kernel that refuses, or has no slices, is
//! not asked again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::ledger::book::state;
use super::ledger::region::Slot;
use super::ledger::slab;
use super::parking::keeping_errno;
use super::seats;

/// EEVDF slices: the least that Linux takes, and some of its own, which is 0.7 to 4 ms.
const SHORT_SLICE_NS: u64 = 100_000;
const LONG_SLICE_NS: u64 = 10_000_000;

/// What a thread was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hint {
    None,
    Short,
    Long,
}

impl Hint {
    /// The other way round than `as u8`.
    pub fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Short,
            2 => Self::Long,
            _ => Self::None,
        }
    }

    fn slice_ns(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Short => Some(SHORT_SLICE_NS),
            Self::Long => Some(LONG_SLICE_NS),
        }
    }
}

static ALLOWED: AtomicBool = AtomicBool::new(false);
/// The slice of a thread without a hint, as the first that got one had it; 0 before.
static COMMON_SLICE_NS: AtomicU64 = AtomicU64::new(0);

/// `struct sched_attr` of Linux, in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For SCHED_OTHER: the slice; 0 sets the common one.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

fn read(thread: i32) -> Option<Attributes> {
    let mut found = Attributes::default();
    let attributes = &raw mut found;
    // SAFETY: the kernel writes at most SIZE bytes.
    let error = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_sched_getattr, thread, attributes, SIZE, 0)
    });
    (error == 0).then_some(found)
}

/// Whether the kernel took it. All but the slice is as it was.
fn set_slice(thread: i32, mut attributes: Attributes, slice_ns: u64) -> bool {
    attributes.size = SIZE;
    attributes.runtime_ns = slice_ns;
    let attributes = &raw const attributes;
    // SAFETY: `attributes` is a whole structure of that size.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_sched_setattr, thread, attributes, 0) }) == 0
}

pub fn allow(yes: bool) {
    ALLOWED.store(yes, Relaxed);
}

/// Gives the calling thread the hint that its class demands. Without any mutex.
pub fn follow_class(book: u32, cpu_bound: bool) {
    let wanted = match (ALLOWED.load(Relaxed), cpu_bound) {
        (false, _) => Hint::None,
        (true, false) => Hint::Short,
        (true, true) => Hint::Long,
    };
    if wanted != seats::hint(book) {
        match wanted.slice_ns() {
            Some(slice_ns) => give(book, wanted, slice_ns),
            None => take_back(book, 0),
        }
    }
}

#[cold]
fn give(book: u32, hint: Hint, slice_ns: u64) {
    let Some(found) = read(0) else { return allow(false) };
    if found.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    if found.runtime_ns == 0 {
        return allow(false);
    }
    let common_ns = match COMMON_SLICE_NS.load(Relaxed) {
        0 => found.runtime_ns,
        common_ns => common_ns,
    };
    if found.runtime_ns != seats::hint(book).slice_ns().unwrap_or(common_ns) {
        return;
    }
    COMMON_SLICE_NS.store(common_ns, Relaxed);
    match set_slice(0, found, slice_ns) {
        true => seats::set_hint(book, hint),
        false => allow(false),
    }
}

/// `thread` is the kernel's id of the thread that the book is of; 0 for the calling one.
fn take_back(book: u32, thread: i32) {
    let given_ns = seats::hint(book).slice_ns();
    seats::set_hint(book, Hint::None);
    if let Some(found) = read(thread).filter(|found| Some(found.runtime_ns) == given_ns) {
        set_slice(thread, found, 0);
    }
}

/// Before the calling thread starts another, or forks: what is started begins without.
pub fn take_back_from_this_thread(books: impl Iterator<Item = u32>) {
    books.filter(|book| seats::hint(*book) != Hint::None).for_each(|book| take_back(book, 0));
}

/// When the policy ends.
pub fn take_back_from_all(slot: &Slot) {
    for (index, book) in slab::used(slot) {
        if seats::hint(index) != Hint::None && book.state.load(Relaxed) == state::LIVE {
            take_back(index, book.native_id.load(Relaxed) as i32);
        }
    }
}
