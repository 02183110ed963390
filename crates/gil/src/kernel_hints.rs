//! Hints to the kernel: I/O-bound threads run soon after they wake up.
//!
//! A thread that wakes up on the core of a computing one may wait there for the kernel's tick, some
//! milliseconds, before it can even ask for the GIL. With a shorter slice (`sched_setattr`, EEVDF,
//! Linux 6.12 and later; no effect before) it runs at once. Its share of the processor, its
//! scheduling policy and its nice value do not change.
//!
//! A hint is given to the calling thread only, without a mutex held, and only if the thread is in
//! `SCHED_OTHER` with the slice of all other threads. It is taken back when the thread becomes
//! CPU-bound, starts a thread or forks, and when the policy ends. A process made by vfork or
//! posix_spawn inherits it. After a refusal the kernel is not asked again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::counters::{ProcessCounters, free_list, state};
use crate::errno::error_of;
use crate::queue::waiters;

/// An EEVDF slice: the shortest that Linux accepts.
const SHORT_SLICE_NS: u64 = 100_000;

/// True while hints are given. Writers: the holder of the main GIL, and a thread whose hint the
/// kernel refused. Readers: all threads, relaxed.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// The slice of a thread without a hint, which is that of the first thread before its hint; 0
/// before. Writers: threads that get a hint; all store the same value. Relaxed.
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
    /// For SCHED_OTHER, the slice; 0 sets the common one.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// The attributes of a thread, by its kernel thread ID; 0 is the calling thread.
fn read(thread: i32) -> Option<Attributes> {
    let mut found = Attributes::default();
    let attributes = &raw mut found;
    // SAFETY: the kernel writes at most SIZE bytes.
    let error =
        error_of(|| unsafe { libc::syscall(libc::SYS_sched_getattr, thread, attributes, SIZE, 0) });
    (error == 0).then_some(found)
}

/// Changes the slice and no other attribute. Returns whether the kernel accepted it.
fn set_slice(thread: i32, mut attributes: Attributes, slice_ns: u64) -> bool {
    attributes.size = SIZE;
    attributes.runtime_ns = slice_ns;
    let attributes = &raw const attributes;
    // SAFETY: `attributes` is a whole structure of that size.
    error_of(|| unsafe { libc::syscall(libc::SYS_sched_setattr, thread, attributes, 0) }) == 0
}

pub fn allow(yes: bool) {
    ALLOWED.store(yes, Relaxed);
}

/// Gives the calling thread the hint or takes it back, according to its class. The caller holds no
/// mutex. For hooks.
pub fn follow_class(row: u32, cpu_bound: bool) {
    let wanted = !cpu_bound && ALLOWED.load(Relaxed);
    if wanted != waiters::has_hint(row) {
        if wanted { give(row) } else { take_back(row, 0) }
    }
}

#[cold]
fn give(row: u32) {
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
        true => waiters::set_hint(row, true),
        false => allow(false),
    }
}

/// `thread` is the kernel thread ID of the row's thread; 0 is the calling thread.
fn take_back(row: u32, thread: i32) {
    waiters::set_hint(row, false);
    if let Some(found) = read(thread).filter(|found| found.runtime_ns == SHORT_SLICE_NS) {
        set_slice(thread, found, 0);
    }
}

/// Before the calling thread starts another one, or forks: the new thread begins without a hint.
pub fn take_back_from_this_thread(rows: impl Iterator<Item = u32>) {
    rows.filter(|row| waiters::has_hint(*row)).for_each(|row| take_back(row, 0));
}

/// When the policy ends: takes back all hints.
pub fn take_back_from_all(process: &ProcessCounters) {
    for (row, counters) in free_list::used(process) {
        if waiters::has_hint(row) && counters.state.load(Relaxed) == state::LIVE {
            take_back(row, counters.native_id.load(Relaxed) as i32);
        }
    }
}
