//! A hint to the kernel: I/O-bound threads run soon when they wake up.
//!
//! A thread that waits for I/O and wakes up on the core of one that computes may wait there for the
//! kernel's tick, some milliseconds, before it can so much as ask for the GIL. With a shorter slice
//! (`sched_setattr`, EEVDF, Linux 6.12 and later; without effect before) it runs at once. Its share of the
//! processor, its scheduling policy and its nice value stay as they are.
//!
//! Given to the calling thread only, outside the mutexes, and only if it is in `SCHED_OTHER` with the slice
//! that all threads have; taken back when it turns CPU-bound, starts a thread, forks, and when the policy
//! ends. A process made by vfork or posix_spawn inherits it. A kernel that refuses is not asked again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::counters::book::state;
use crate::counters::free_list;
use crate::counters::mapping::Slot;
use crate::queue::futex::keeping_errno;
use crate::queue::waiters;

/// An EEVDF slice: the least that Linux takes.
const SHORT_SLICE_NS: u64 = 100_000;

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

/// Gives the calling thread the hint or takes it back, as its class demands. Without any mutex.
pub fn follow_class(book: u32, cpu_bound: bool) {
    let wanted = !cpu_bound && ALLOWED.load(Relaxed);
    if wanted != waiters::has_hint(book) {
        if wanted { give(book) } else { take_back(book, 0) }
    }
}

#[cold]
fn give(book: u32) {
    let Some(found) = read(0) else { return allow(false) };
    let common_ns = match COMMON_SLICE_NS.load(Relaxed) {
        0 => found.runtime_ns,
        common_ns => common_ns,
    };
    if found.policy != libc::SCHED_OTHER as u32 || found.runtime_ns != common_ns {
        return;
    }
    COMMON_SLICE_NS.store(common_ns, Relaxed);
    match set_slice(0, found, SHORT_SLICE_NS) {
        true => waiters::set_hint(book, true),
        false => allow(false),
    }
}

/// `thread` is the kernel's id of the thread that the book is of; 0 for the calling one.
fn take_back(book: u32, thread: i32) {
    waiters::set_hint(book, false);
    if let Some(found) = read(thread).filter(|found| found.runtime_ns == SHORT_SLICE_NS) {
        set_slice(thread, found, 0);
    }
}

/// Before the calling thread starts another, or forks: what is started begins without.
pub fn take_back_from_this_thread(books: impl Iterator<Item = u32>) {
    books.filter(|book| waiters::has_hint(*book)).for_each(|book| take_back(book, 0));
}

/// When the policy ends.
pub fn take_back_from_all(slot: &Slot) {
    for (index, book) in free_list::used(slot) {
        if waiters::has_hint(index) && book.state.load(Relaxed) == state::LIVE {
            take_back(index, book.native_id.load(Relaxed) as i32);
        }
    }
}
