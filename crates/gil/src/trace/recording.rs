//! The trace that is on, for hooks.
//!
//! Without a trace, an event costs one load and a branch. A fork ends the trace in the child,
//! because nothing would read the child's events.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use headway_measure::clock::now_ns;

use super::ring::{Head, KIND_BITS, Ring, THREAD_BITS};
use crate::counters::{Name, ThreadCounters};

/// The kind of an event. `headway.trace.events` in Python has the same numbers.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum EventKind {
    /// The thread held the GIL when the trace began.
    Held = 1,
    Wait = 2,
    Take = 3,
    /// A take after a wait.
    ContendedTake = 4,
    Drop = 5,
    ForcedDrop = 6,
    DropRequest = 7,
    /// The thread stopped waiting without a take.
    GaveUp = 8,
    /// Both are recorded when the wait is over, the first one with an earlier time.
    ForcedWait = 9,
    ForcedWaitEnded = 10,
    /// The GIL has ended. The event belongs to no thread.
    Closed = 11,
    /// A pass of the garbage collector. Both are recorded when it is over, the first one with an
    /// earlier time.
    Collection = 12,
    CollectionEnded = 13,
}

const _: () = assert!((EventKind::CollectionEnded as u64) < 1 << KIND_BITS);

/// The ring that hooks write to. Writers: `begin`, with release; `end`, in any thread; a forked
/// child. Readers: hooks, with acquire. The memory is never unmapped.
///
/// | `RING` | `LAST` | meaning | set by |
/// |---|---|---|---|
/// | null | null | there was no trace, or it is the parent's | a forked child |
/// | a ring | the same | events are recorded | `begin` |
/// | null | a ring | there was a trace, or one is about to begin | `end`; `begin`, on its way |
static RING: AtomicPtr<Head> = AtomicPtr::new(std::ptr::null_mut());
/// The ring of the present or last trace. Writers: `begin`, with release, before it stores `RING`;
/// a forked child. Readers: threads that begin or read a trace, with acquire.
static LAST: AtomicPtr<Head> = AtomicPtr::new(std::ptr::null_mut());

fn ring_at(ring: &AtomicPtr<Head>) -> Option<Ring> {
    let memory = ring.load(Acquire);
    // SAFETY: `begin` stored a ring, which is never unmapped.
    (!memory.is_null()).then(|| unsafe { Ring::at(memory) })
}

/// Returns whether events are recorded.
#[inline(always)]
pub fn is_on() -> bool {
    !RING.load(Relaxed).is_null()
}

/// Begins to record.
///
/// # Safety
/// `memory` is a ring that is never unmapped.
pub(super) unsafe fn begin(memory: *mut Head) {
    LAST.store(memory, Release);
    RING.store(memory, Release);
}

/// Ends the trace. Async-signal-safe. Running events may still be recorded.
pub(super) fn end() {
    if !RING.swap(std::ptr::null_mut(), AcqRel).is_null() {
        if let Some(ring) = last() {
            ring.head().ended_ns.store(now_ns(), Relaxed);
        }
    }
}

/// The ring of the present or last trace.
pub(super) fn last() -> Option<Ring> {
    ring_at(&LAST)
}

/// Forgets the trace in a forked child, because it is the parent's.
pub fn forget() {
    RING.store(std::ptr::null_mut(), Relaxed);
    LAST.store(std::ptr::null_mut(), Relaxed);
}

/// Records an event of the thread that `counters` belong to, on the opening `serial` of a GIL.
/// Without a trace, nothing is loaded but `RING`.
#[inline(always)]
pub fn record(kind: EventKind, serial: &AtomicU32, counters: &ThreadCounters, at_ns: u64) {
    if is_on() {
        keep(kind, serial.load(Relaxed), counters.native_id.load(Relaxed), at_ns);
    }
}

/// The opening `serial` of a GIL has ended.
pub fn record_closed(serial: u32, at_ns: u64) {
    if is_on() {
        keep(EventKind::Closed, serial, 0, at_ns);
    }
}

#[cold]
#[inline(never)]
fn keep(kind: EventKind, serial: u32, native_id: u32, at_ns: u64) {
    if let Some(ring) = ring_at(&RING) {
        let thread = u64::from(native_id) & ((1 << THREAD_BITS) - 1);
        ring.keep(at_ns, u64::from(serial) << 32 | (kind as u64) << THREAD_BITS | thread);
    }
}

/// A thread ends; its name is kept.
pub fn name_thread(native_id: u32, name: &[u8]) {
    if let Some(ring) = ring_at(&RING) {
        ring.name_thread(native_id, name);
    }
}

/// A GIL has opened, or got its name. For hooks.
pub fn name_gil(serial: u32, interpreter_id: i64, name: &Name) {
    if let Some(ring) = ring_at(&RING) {
        ring.name_gil(serial, interpreter_id, name);
    }
}
