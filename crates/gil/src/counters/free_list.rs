//! Which of the process's thread books are free.
//!
//! A hook takes a book with `pop`, which neither allocates nor blocks. `prepare`, called outside
//! the hooks (at install, before a thread is started, when one ends, at a snapshot), keeps books
//! with real memory behind them ahead of need.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::counters::book::ThreadBook;
use crate::counters::mapping;
use crate::counters::mapping::{BOOKS, Slot};

const NONE: u32 = u32::MAX;
/// Books kept ready beyond those in use: threads that C code starts come without a warning.
const AHEAD: u32 = 256;

/// The free list: a stack of indices, linked through `NEXT`.
///
/// | bits | meaning |
/// |---|---|
/// | 0-31 | index of the top book; `NONE` for an empty stack |
/// | 32-63 | number of pops and pushes so far, so that a swap fails if the stack changed and changed back between |
///
/// Writers: any thread, by compare-and-swap; a push publishes `NEXT` with release.
static HEAD: AtomicU64 = AtomicU64::new(NONE as u64);
static NEXT: [AtomicU32; BOOKS] = [const { AtomicU32::new(NONE) }; BOOKS];
/// Books on the stack; may lag behind by those being pushed.
static FREE_COUNT: AtomicU32 = AtomicU32::new(0);
/// Books that were ever prepared: those from 0 to here have memory. Writer: `prepare`.
static PREPARED: AtomicU32 = AtomicU32::new(0);
/// Held by the one thread that prepares: 0 nobody, 1 somebody.
static PREPARING: AtomicU32 = AtomicU32::new(0);

fn retagged(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(top)
}

/// Whether there is no free book; may be out of date at once.
pub fn is_empty() -> bool {
    FREE_COUNT.load(Relaxed) == 0
}

/// A free book for the caller alone, or `None`. For hooks.
pub fn pop() -> Option<u32> {
    let mut head = HEAD.load(Acquire);
    loop {
        let top = head as u32;
        if top == NONE {
            return None;
        }
        let below = NEXT[top as usize].load(Relaxed);
        match HEAD.compare_exchange_weak(head, retagged(head, below), AcqRel, Acquire) {
            Ok(_) => {
                FREE_COUNT.fetch_sub(1, Relaxed);
                return Some(top);
            }
            Err(now) => head = now,
        }
    }
}

/// Gives a cleared book back.
pub fn push(book: u32) {
    FREE_COUNT.fetch_add(1, Relaxed);
    let mut head = HEAD.load(Relaxed);
    loop {
        NEXT[book as usize].store(head as u32, Relaxed);
        match HEAD.compare_exchange_weak(head, retagged(head, book), AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Brings the free books up to `AHEAD`, with memory behind each. Not for hooks that hold a GIL's
/// mutex.
pub fn prepare(slot: &Slot) {
    if FREE_COUNT.load(Relaxed) >= AHEAD || PREPARING.swap(1, Acquire) == 1 {
        return;
    }
    let first = PREPARED.load(Relaxed);
    let end = (first + AHEAD).min(BOOKS as u32);
    if first < end {
        let books = &slot.books[first as usize..end as usize];
        if mapping::reserve(books.as_ptr().cast(), std::mem::size_of_val(books)) {
            slot.high_water.store(end, Relaxed);
            PREPARED.store(end, Relaxed);
            (first..end).rev().for_each(push);
        }
    }
    PREPARING.store(0, Release);
}

/// Forgets everything: all books of `slot` are free again and none is prepared. Only while no other
/// thread pops or pushes.
pub fn reset(slot: &Slot) {
    for book in used(slot).map(|(_, book)| book) {
        book.state.store(crate::counters::book::state::FREE, Relaxed);
        book.clear();
    }
    slot.high_water.store(0, Relaxed);
    HEAD.store(retagged(HEAD.load(Relaxed), NONE), Release);
    FREE_COUNT.store(0, Relaxed);
    PREPARED.store(0, Relaxed);
    PREPARING.store(0, Relaxed);
}

/// The books that have ever been prepared, with their indices.
pub fn used(slot: &Slot) -> impl Iterator<Item = (u32, &ThreadBook)> {
    let end = slot.high_water.load(Acquire).min(BOOKS as u32);
    slot.books[..end as usize].iter().enumerate().map(|(index, book)| (index as u32, book))
}
