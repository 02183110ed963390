//! The memory that a trace is kept in: the last events, and names of who made them.
//!
//! One mapping: a [`Head`], then as many [`Event`]s as there is room for, which is a power of two. The
//! event of claim `n` lies at `n` modulo that number, so the newest take the place of the oldest. No
//! field is a pointer: a copy of the mapping in a file reads as well.
//!
//! Knows nothing of GILs; what an event's numbers mean is `trace`'s business. `keep` and the two `name_`
//! functions run in hooks, in any thread; they touch memory that was there from the beginning, and
//! nothing else.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*, fence};

use crate::counters::book::{NAME_BYTES, Name};

const MAGIC: u64 = u64::from_le_bytes(*b"HWTRACE1");
/// Names of ended threads; the newest take the place of the oldest.
const THREADS: usize = 4096;
/// Names of GILs, likewise: twice as many as may be open at a time.
const GILS: usize = 128;

/// One event: 16 bytes.
///
/// | bits of `word` | meaning |
/// |---|---|
/// | 0-21 | the kernel's id of the thread: Linux gives out no more than 2^22 |
/// | 22-25 | what happened; 0 in a place that was never written |
/// | 26-31 | the lap, `n` divided by the number of places, so that a reader knows an event of the last lap |
/// | 32-63 | the serial number of the GIL's opening |
///
/// Written by the thread that has claimed `n`, the time first; read by `copy`. If that thread is kept from running
/// for a lap in between, it spoils the event that is there by then: most of the time the lap tells.
#[repr(C)]
pub struct Event {
    time_ns: AtomicU64,
    word: AtomicU64,
}

pub const THREAD_BITS: u32 = 22;
pub const KIND_BITS: u32 = 4;
const LAP_SHIFT: u32 = THREAD_BITS + KIND_BITS;
const LAP_MASK: u64 = 0x3F;

/// What a thread was called that has ended.
#[repr(C)]
struct ThreadName {
    /// 0 while the row is empty, or being written.
    native_id: AtomicU32,
    name: Name,
}

/// Whose GIL an opening was of.
#[repr(C)]
struct GilName {
    /// 0 while the row is empty, or being written.
    serial: AtomicU32,
    name: Name,
    /// -1 where it could not be told.
    interpreter: AtomicI64,
}

/// What lies before the events. All zero bytes are no ring.
#[repr(C, align(4096))]
pub struct Head {
    magic: AtomicU64,
    /// How many events there is room for, a power of two.
    places: AtomicU64,
    /// The next claim. Writers: whoever keeps an event, by an atomic addition.
    next: AtomicU64,
    /// Claims of rows in `threads`, likewise.
    next_thread: AtomicU64,
    began_ns: AtomicU64,
    /// When the trace ended; 0 while it goes on.
    pub ended_ns: AtomicU64,
    threads: [ThreadName; THREADS],
    gils: [GilName; GILS],
}

/// What a ring held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    pub began_ns: u64,
    pub ended_ns: u64,
    /// In the order in which they were kept: times and words, without their laps.
    pub events: Vec<[u64; 2]>,
    /// Events that were kept once, and are not any more.
    pub lost: u64,
    /// Of ended threads: the kernel's id and the name; of two with one id the later comes last.
    pub threads: Vec<(u32, String)>,
    /// Of openings: serial number, interpreter and name.
    pub gils: Vec<(u32, i64, String)>,
}

/// More than any machine has memory for, and few enough that their bytes can be counted.
pub const MOST_PLACES: u64 = 1 << 40;

/// Length of a ring with `places` places, in bytes; no more than `MOST_PLACES`.
pub const fn ring_bytes(places: u64) -> usize {
    size_of::<Head>() + places as usize * size_of::<Event>()
}

/// A mapping that begins with a head and has as many events behind it as that says. Never unmapped
/// while hooks may write to it.
#[derive(Clone, Copy)]
pub struct Ring(*const Head);

impl Ring {
    /// Makes a ring of fresh memory.
    ///
    /// # Safety
    /// `memory` is a mapping of `ring_bytes(places)` zero bytes at a page's begin, `places` is a power of
    /// two, and nobody else uses it yet.
    pub unsafe fn begin(memory: *mut Head, places: u64, now_ns: u64) -> Self {
        // SAFETY: the caller's promise; all zero bytes are a valid head.
        let head = unsafe { &*memory };
        head.places.store(places, Relaxed);
        head.began_ns.store(now_ns, Relaxed);
        head.magic.store(MAGIC, Release);
        Self(memory)
    }

    /// The ring that lies in `length` bytes at `memory`, if one does.
    ///
    /// # Safety
    /// `memory` is a mapping of so many bytes at a page's begin, and outlives the ring.
    pub unsafe fn find(memory: *const Head, length: usize) -> Option<Self> {
        if length < size_of::<Head>() {
            return None;
        }
        // SAFETY: the caller's promise.
        let head = unsafe { &*memory };
        let places = head.places.load(Relaxed);
        let whole = head.magic.load(Acquire) == MAGIC
            && places.is_power_of_two()
            && places <= (length - size_of::<Head>()) as u64 / size_of::<Event>() as u64;
        whole.then_some(Self(memory))
    }

    /// # Safety
    /// `memory` is that of a ring that was begun.
    #[inline(always)]
    pub unsafe fn at(memory: *const Head) -> Self {
        Self(memory)
    }

    pub fn head(&self) -> &Head {
        // SAFETY: what a ring is.
        unsafe { &*self.0 }
    }

    /// The head and the events, as bytes.
    pub fn bytes(&self) -> (*const u8, usize) {
        (self.0.cast(), ring_bytes(self.head().places.load(Relaxed)))
    }

    fn event(&self, claim: u64) -> &Event {
        let place = claim & (self.head().places.load(Relaxed) - 1);
        // SAFETY: what a ring is; the place is below their number.
        unsafe { &*self.0.add(1).cast::<Event>().add(place as usize) }
    }

    fn lap_of(&self, claim: u64) -> u64 {
        (claim >> self.head().places.load(Relaxed).trailing_zeros()) & LAP_MASK
    }

    /// Keeps an event in the place of the oldest; `word` has no lap yet.
    pub fn keep(&self, time_ns: u64, word: u64) {
        let claim = self.head().next.fetch_add(1, Relaxed);
        let event = self.event(claim);
        // Release: who sees the time sees the claim. And who sees the word sees the time.
        event.time_ns.store(time_ns, Release);
        event.word.store(word | self.lap_of(claim) << LAP_SHIFT, Release);
    }

    pub fn name_thread(&self, native_id: u32, name: &[u8]) {
        let claim = self.head().next_thread.fetch_add(1, Relaxed);
        let row = &self.head().threads[claim as usize % THREADS];
        row.native_id.store(0, Relaxed);
        // Who sees part of the new name sees that.
        fence(Release);
        row.name.set(name);
        row.native_id.store(native_id, Release);
    }

    pub fn name_gil(&self, serial: u32, interpreter: i64, name: &Name) {
        let row = &self.head().gils[serial as usize % GILS];
        row.serial.store(0, Relaxed);
        // As above.
        fence(Release);
        row.interpreter.store(interpreter, Relaxed);
        row.name.copy_from(name);
        row.serial.store(serial, Release);
    }

    /// A copy, while others may go on writing: what changes meanwhile is left out, and counted as lost.
    pub fn copy(&self, now_ns: u64) -> Copy {
        let head = self.head();
        let places = head.places.load(Relaxed);
        let claims = head.next.load(Acquire);
        let first = claims.saturating_sub(places);
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
        // A new time may stand beside an old word: then its place has been claimed again.
        fence(Acquire);
        let overwritten = head.next.load(Relaxed).saturating_sub(places);
        let events: Vec<_> = events
            .into_iter()
            .filter(|(claim, _)| *claim >= overwritten)
            .map(|(_, event)| event)
            .collect();
        Copy {
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
            .filter_map(|row| whole(&row.native_id, |native_id| (native_id, text_of(&row.name))))
            .collect()
    }

    fn gils(&self) -> Vec<(u32, i64, String)> {
        let rows = self.head().gils.iter().filter_map(|row| {
            whole(&row.serial, |serial| (serial, row.interpreter.load(Relaxed), text_of(&row.name)))
        });
        rows.collect()
    }
}

/// What a row has, unless it is empty or was given to another meanwhile.
fn whole<T>(number: &AtomicU32, read: impl Fn(u32) -> T) -> Option<T> {
    let before = number.load(Acquire);
    let read = (before != 0).then(|| read(before));
    fence(Acquire);
    read.filter(|_| number.load(Relaxed) == before)
}

fn text_of(name: &Name) -> String {
    String::from_utf8_lossy(name.get(&mut [0; NAME_BYTES])).into_owned()
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
