//! The memory of a trace: the last events, and the names of their threads and GILs.
//!
//! The memory is one mapping: a [`Head`], then a power of two of [`Event`] entries. The event of
//! claim `n` has entry `n` modulo their number, so the newest events overwrite the oldest. No field
//! is a pointer, so a copy in a file has the same meaning.
//!
//! `keep` and the two `name_` functions run in hooks, in any thread. They access only this memory.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*, fence};

use crate::counters::Name;

const MAGIC: u64 = u64::from_le_bytes(*b"HWTRACE1");
/// Names of ended threads. The newest overwrite the oldest.
const THREADS: usize = 4096;
/// Names of GILs: twice as many as can be open. The newest overwrite the oldest.
const GILS: usize = 128;

/// One event: 16 bytes.
///
/// | bits of `word` | meaning |
/// |---|---|
/// | 0-21 | the kernel's thread ID, below 2^22 on Linux |
/// | 22-25 | what happened; 0 in an entry that was never written |
/// | 26-31 | the lap: `n` divided by the number of entries, so that a reader recognizes an event of the last lap |
/// | 32-63 | the serial number of the GIL's opening |
///
/// Writer: the thread that has claimed `n`, the time first, both with release. Reader: `copy`. If
/// that thread does not run for a whole lap in between, it damages the event of another thread,
/// which the lap reveals in most cases.
#[repr(C)]
pub struct Event {
    time_ns: AtomicU64,
    word: AtomicU64,
}

pub const THREAD_BITS: u32 = 22;
pub const KIND_BITS: u32 = 4;
const LAP_SHIFT: u32 = THREAD_BITS + KIND_BITS;
const LAP_MASK: u64 = 0x3F;

/// The name of a thread that has ended. Writer: the thread that claimed the entry.
#[repr(C)]
struct ThreadName {
    /// 0 while the entry is empty or being written.
    native_id: AtomicU32,
    name: Name,
}

/// The interpreter and the name of the GIL of an opening. Writers: hooks of that GIL, and holders
/// of the registry lock.
#[repr(C)]
struct GilName {
    /// 0 while the entry is empty or being written.
    serial: AtomicU32,
    name: Name,
    /// -1 if it is not known.
    interpreter: AtomicI64,
}

/// The beginning of the mapping. All zero bytes are no ring.
#[repr(C, align(4096))]
pub struct Head {
    magic: AtomicU64,
    /// The number of entries, a power of two.
    entries: AtomicU64,
    /// The next claim. Writers: threads that record an event, by atomic addition.
    next: AtomicU64,
    /// The next claim of an entry in `threads`. Writers: threads that end, by atomic addition.
    next_thread: AtomicU64,
    began_ns: AtomicU64,
    /// When the trace ended; 0 while it is on.
    pub ended_ns: AtomicU64,
    threads: [ThreadName; THREADS],
    gils: [GilName; GILS],
}

/// The contents of a ring at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Times and words, without laps, in the order in which they were recorded.
    pub events: Vec<[u64; 2]>,
    /// The number of events that were recorded and overwritten.
    pub lost: u64,
    /// Ended threads: the kernel's thread ID and the name. Of two with one ID, the later one is
    /// last.
    pub threads: Vec<(u32, String)>,
    /// Openings of GILs: serial number, interpreter ID and name.
    pub gils: Vec<(u32, i64, String)>,
}

/// More entries than any machine has memory for, but few enough that their bytes can be counted.
pub const MAX_ENTRIES: u64 = 1 << 40;

/// Length of a ring with `entries` entries, at most `MAX_ENTRIES`, in bytes.
pub const fn ring_bytes(entries: u64) -> usize {
    size_of::<Head>() + entries as usize * size_of::<Event>()
}

/// A mapping of a head and its entries. Never unmapped while hooks may write to it.
#[derive(Clone, Copy)]
pub struct Ring(*const Head);

impl Ring {
    /// Makes a ring of new memory.
    ///
    /// # Safety
    /// `memory` is a mapping of `ring_bytes(entries)` zero bytes, aligned to a page, that no other
    /// thread uses. `entries` is a power of two.
    pub unsafe fn begin(memory: *mut Head, entries: u64, now_ns: u64) -> Self {
        // SAFETY: the memory is mapped, as the caller promises; all zero bytes are a valid head.
        let head = unsafe { &*memory };
        head.entries.store(entries, Relaxed);
        head.began_ns.store(now_ns, Relaxed);
        head.magic.store(MAGIC, Release);
        Self(memory)
    }

    /// The ring in the `length` bytes at `memory`, if there is one.
    ///
    /// # Safety
    /// `memory` is a mapping of this length, aligned to a page, that outlives the ring.
    pub unsafe fn find(memory: *const Head, length: usize) -> Option<Self> {
        if length < size_of::<Head>() {
            return None;
        }
        // SAFETY: `length` bytes are mapped, as the caller promises, and a head has room in them.
        let head = unsafe { &*memory };
        let entries = head.entries.load(Relaxed);
        let whole = head.magic.load(Acquire) == MAGIC
            && entries.is_power_of_two()
            && entries <= (length - size_of::<Head>()) as u64 / size_of::<Event>() as u64;
        whole.then_some(Self(memory))
    }

    /// # Safety
    /// `memory` is a ring that `begin` made and that is never unmapped.
    #[inline(always)]
    pub unsafe fn at(memory: *const Head) -> Self {
        Self(memory)
    }

    pub fn head(&self) -> &Head {
        // SAFETY: a ring begins with a head.
        unsafe { &*self.0 }
    }

    /// The head and the events, as bytes.
    pub fn bytes(&self) -> (*const u8, usize) {
        (self.0.cast(), ring_bytes(self.head().entries.load(Relaxed)))
    }

    fn event(&self, claim: u64) -> &Event {
        let index = claim & (self.head().entries.load(Relaxed) - 1);
        // SAFETY: the entries lie behind the head, and the index is below their number.
        unsafe { &*self.0.add(1).cast::<Event>().add(index as usize) }
    }

    fn lap_of(&self, claim: u64) -> u64 {
        (claim >> self.head().entries.load(Relaxed).trailing_zeros()) & LAP_MASK
    }

    /// Overwrites the oldest event; `word` has no lap yet.
    pub fn keep(&self, time_ns: u64, word: u64) {
        let claim = self.head().next.fetch_add(1, Relaxed);
        let event = self.event(claim);
        // Release: a reader that sees the time sees the claim, and one that sees the word sees the
        // time.
        event.time_ns.store(time_ns, Release);
        event.word.store(word | self.lap_of(claim) << LAP_SHIFT, Release);
    }

    pub fn name_thread(&self, native_id: u32, name: &[u8]) {
        let claim = self.head().next_thread.fetch_add(1, Relaxed);
        let row = &self.head().threads[claim as usize % THREADS];
        row.native_id.store(0, Relaxed);
        // A reader that sees part of the new name sees the 0.
        fence(Release);
        row.name.set(name);
        row.native_id.store(native_id, Release);
    }

    pub fn name_gil(&self, serial: u32, interpreter: i64, name: &Name) {
        let row = &self.head().gils[serial as usize % GILS];
        row.serial.store(0, Relaxed);
        // As in `name_thread`.
        fence(Release);
        row.interpreter.store(interpreter, Relaxed);
        row.name.copy_from(name);
        row.serial.store(serial, Release);
    }

    /// Copies the ring while other threads may write. Events that change meanwhile are left out and
    /// counted as lost.
    pub fn copy(&self, now_ns: u64) -> Trace {
        let head = self.head();
        let entries = head.entries.load(Relaxed);
        let claims = head.next.load(Acquire);
        let first = claims.saturating_sub(entries);
        let mut events: Vec<(u64, [u64; 2])> = Vec::with_capacity((claims - first) as usize);
        for claim in first..claims {
            let event = self.event(claim);
            let word = event.word.load(Acquire);
            let time_ns = event.time_ns.load(Relaxed);
            let lap = (word >> LAP_SHIFT) & LAP_MASK;
            let kind = (word >> THREAD_BITS) & ((1 << KIND_BITS) - 1);
            if kind != 0 && lap == self.lap_of(claim) {
                events.push((claim, [time_ns, word & !(LAP_MASK << LAP_SHIFT)]));
            }
        }
        // An old word may have a new time: then its entry has been claimed again.
        fence(Acquire);
        let overwritten = head.next.load(Relaxed).saturating_sub(entries);
        let events: Vec<_> = events
            .into_iter()
            .filter(|(claim, _)| *claim >= overwritten)
            .map(|(_, event)| event)
            .collect();
        Trace {
            began_ns: head.began_ns.load(Relaxed),
            ended_ns: match head.ended_ns.load(Relaxed) {
                0 => now_ns,
                ended_ns => ended_ns,
            },
            lost: claims - events.len() as u64,
            events,
            threads: self.threads(),
            gils: self.gils(),
        }
    }

    fn threads(&self) -> Vec<(u32, String)> {
        let claims = self.head().next_thread.load(Acquire) as usize;
        (claims.saturating_sub(THREADS)..claims)
            .map(|claim| &self.head().threads[claim % THREADS])
            .filter_map(|row| whole(&row.native_id, |native_id| (native_id, row.name.to_text())))
            .collect()
    }

    fn gils(&self) -> Vec<(u32, i64, String)> {
        let rows = self.head().gils.iter().filter_map(|row| {
            whole(&row.serial, |serial| (serial, row.interpreter.load(Relaxed), row.name.to_text()))
        });
        rows.collect()
    }
}

/// Reads an entry; `None` if it is empty or changed meanwhile.
fn whole<T>(number: &AtomicU32, read: impl Fn(u32) -> T) -> Option<T> {
    let before = number.load(Acquire);
    let read = (before != 0).then(|| read(before));
    fence(Acquire);
    read.filter(|_| number.load(Relaxed) == before)
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
