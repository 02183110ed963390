//! The waiter records: what the queue keeps for each row.

use std::cell::UnsafeCell;
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use headway_sched::{Thread, ThreadId, Threads};

use super::Waiters;
use super::cpu_time::CpuTime;
use super::futex::ProcessFutex;
use super::wakeup;
use crate::counters::{ProcessCounters, ROWS, free_list};

/// The record of one row. The futex does not share a cache line with `thread`: a waiter reads its
/// futex in a loop, which would delay writers of `thread`.
#[repr(C, align(64))]
struct WaiterRecord {
    /// The thread as the policies know it. Guarded by the GIL's mutex; see [`LockedWaiters`] and
    /// [`forced_wait_ended`].
    thread: UnsafeCell<Thread>,
    /// The futex that the thread waits on; see `wakeup`.
    futex: ProcessFutex,
    /// The core that the thread was last seen on. Writer: the thread. Readers: threads of the same
    /// GIL. Relaxed: any value is valid.
    core: AtomicU32,
    /// True if the kernel has the hint of `kernel_hints` for the thread. Writers: the thread, and
    /// the thread that ends the policy. Relaxed: a hint too many or too few is harmless.
    has_hint: AtomicBool,
    /// See [`CpuTime`]. Writer and reader: the thread, in events of its takes and drops.
    cpu_time: UnsafeCell<CpuTime>,
}

const _: () = assert!(std::mem::offset_of!(WaiterRecord, futex) == 128);

// SAFETY: `thread` and `cpu_time` are accessed only as `LockedWaiters` and `forced_wait_ended`
// allow.
unsafe impl Sync for WaiterRecord {}

static RECORDS: [WaiterRecord; ROWS] = [const {
    WaiterRecord {
        thread: UnsafeCell::new(Thread::new()),
        core: AtomicU32::new(u32::MAX),
        has_hint: AtomicBool::new(false),
        futex: ProcessFutex::new(wakeup::AWAKE),
        cpu_time: UnsafeCell::new(CpuTime::new()),
    }
}; ROWS];

/// For hooks: an impossible row wraps instead of panicking.
#[inline(always)]
fn record(row: ThreadId) -> &'static WaiterRecord {
    &RECORDS[row as usize % ROWS]
}

/// The records of the threads of one GIL, whose mutex is held.
pub struct LockedWaiters(());

impl LockedWaiters {
    /// # Safety
    /// The caller holds the mutex of a GIL until it drops the result, has no other result, and uses
    /// the rows of this GIL only.
    pub unsafe fn of_locked_gil() -> Self {
        Self(())
    }
}

impl Index<ThreadId> for LockedWaiters {
    type Output = Thread;

    fn index(&self, row: ThreadId) -> &Thread {
        // SAFETY: the GIL's mutex is held, as `of_locked_gil` requires.
        unsafe { &*record(row).thread.get() }
    }
}

impl IndexMut<ThreadId> for LockedWaiters {
    fn index_mut(&mut self, row: ThreadId) -> &mut Thread {
        // SAFETY: the GIL's mutex is held, and `self` is the only value, as `of_locked_gil`
        // requires.
        unsafe { &mut *record(row).thread.get() }
    }
}

impl Threads for LockedWaiters {}

impl Waiters for LockedWaiters {
    type Futex = ProcessFutex;

    fn futex(&self, row: ThreadId) -> &ProcessFutex {
        &record(row).futex
    }

    fn note_core(&mut self, this_thread: ThreadId) {
        note_core(this_thread);
    }

    fn share_a_core(&self, one: ThreadId, other: ThreadId) -> bool {
        share_a_core(one, other)
    }

    #[inline(always)]
    fn note_cpu_time(&mut self, this_thread: ThreadId, now_ns: u64) {
        // SAFETY: as in `index_mut`.
        unsafe { (*record(this_thread).cpu_time.get()).begin_hold(now_ns) };
    }

    #[inline(always)]
    fn ran_ns(&mut self, this_thread: ThreadId, hold_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: as in `index_mut`.
        unsafe { (*record(this_thread).cpu_time.get()).end_hold(hold_ns, now_ns) }
    }
}

/// The futex of the calling thread. Without the mutex.
pub fn futex(this_thread: ThreadId) -> &'static ProcessFutex {
    &record(this_thread).futex
}

pub fn has_hint(row: ThreadId) -> bool {
    record(row).has_hint.load(Relaxed)
}

pub fn set_hint(row: ThreadId, given: bool) {
    record(row).has_hint.store(given, Relaxed);
}

pub fn note_core(this_thread: ThreadId) {
    // The C library reads the core from memory that the kernel maintains (rseq).
    // SAFETY: sched_getcpu has no preconditions.
    let core = unsafe { libc::sched_getcpu() };
    record(this_thread).core.store(core as u32, Relaxed);
}

/// Returns whether two threads were last seen on the same core, so that at most one of them runs.
pub fn share_a_core(one: ThreadId, other: ThreadId) -> bool {
    let core = |row: ThreadId| record(row).core.load(Relaxed);
    core(one) == core(other)
}

/// The row belongs to another thread now. With the GIL's mutex held.
pub fn clear(row: ThreadId) {
    // SAFETY: no queue has the row yet, and its thread is the caller.
    unsafe { *record(row).thread.get() = Thread::new() };
    // SAFETY: no queue has the row yet, and its thread is the caller.
    unsafe { *record(row).cpu_time.get() = CpuTime::new() };
    set_hint(row, false);
}

/// The calling thread has waited for the switch that it was forced to. Without the mutex.
pub fn forced_wait_ended(this_thread: ThreadId, now_ns: u64) {
    // SAFETY: holders of the mutex access only threads that wait or hold; the caller does neither.
    unsafe { (*record(this_thread).thread.get()).forced_wait_ended(now_ns) };
}

/// Makes the calling thread a new one for the policies. It neither waits nor holds, which
/// `rows::rows_without_gil_of_this_thread` sees to. Without the mutex. The hint stays.
pub fn begin_anew(this_thread: ThreadId) {
    // SAFETY: as in `forced_wait_ended`.
    unsafe { (*record(this_thread).thread.get()).begin_anew() };
}

/// Wakes every thread that may wait in a queue. After the counters closed, so that no thread begins
/// to wait.
pub fn wake_all(process: &ProcessCounters) {
    for (row, _) in free_list::used(process) {
        wakeup::wake(futex(row));
    }
}
