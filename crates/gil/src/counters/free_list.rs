//! The free rows of the process.
//!
//! A hook takes a row with `pop`, which neither allocates nor blocks. `prepare` runs where no GIL
//! mutex is held: at install, before a thread is started, when one ends, and in a snapshot. It
//! keeps rows that have real memory behind them in stock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use super::mapping;
use super::process::{ProcessCounters, ROWS};
use super::state;
use super::thread::ThreadCounters;

const NONE: u32 = u32::MAX;
/// Rows in stock beyond those in use. Threads that C code starts come without a warning.
const STOCK: u32 = 256;

/// The free list: a stack of rows, linked through `NEXT`.
///
/// | bits | meaning |
/// |---|---|
/// | 0-31 | the top row; `NONE` for an empty stack |
/// | 32-63 | the number of changes so far, so that a swap fails if the stack changed back in between |
///
/// Writers: any thread, by compare-and-swap. A push publishes `NEXT` with release; a pop acquires
/// it.
static HEAD: AtomicU64 = AtomicU64::new(NONE as u64);
/// The row below each row on the stack. Writer: the thread that pushes the row. Relaxed: see
/// `HEAD`.
static NEXT: [AtomicU32; ROWS] = [const { AtomicU32::new(NONE) }; ROWS];
/// The number of rows on the stack; may lag behind. Writers: any thread, by atomic addition.
static FREE_COUNT: AtomicU32 = AtomicU32::new(0);
/// Rows below this one have memory. Writer: the holder of `PREPARING`.
static PREPARED: AtomicU32 = AtomicU32::new(0);
/// 1 while a thread prepares rows. Set by swap, with acquire; cleared by that thread, with release.
static PREPARING: AtomicU32 = AtomicU32::new(0);

fn retagged(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(top)
}

/// For hooks: an impossible row wraps instead of panicking.
fn next_of(row: u32) -> &'static AtomicU32 {
    &NEXT[row as usize % ROWS]
}

/// Returns whether no row is free. The answer may be out of date at once.
pub fn is_empty() -> bool {
    FREE_COUNT.load(Relaxed) == 0
}

/// Takes a free row of `process` for the caller alone. For hooks.
pub fn pop(process: &ProcessCounters) -> Option<u32> {
    let mut head = HEAD.load(Acquire);
    loop {
        let top = head as u32;
        if top == NONE {
            return None;
        }
        let below = next_of(top).load(Relaxed);
        match HEAD.compare_exchange_weak(head, retagged(head, below), AcqRel, Acquire) {
            Ok(_) => {
                FREE_COUNT.fetch_sub(1, Relaxed);
                process.high_water.fetch_max(top.wrapping_add(1), Release);
                return Some(top);
            }
            Err(now) => head = now,
        }
    }
}

/// Returns a row whose counters are clear.
pub fn push(row: u32) {
    FREE_COUNT.fetch_add(1, Relaxed);
    let mut head = HEAD.load(Relaxed);
    loop {
        next_of(row).store(head as u32, Relaxed);
        match HEAD.compare_exchange_weak(head, retagged(head, row), AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Fills the stock with rows that have memory. Not for hooks that hold a GIL's mutex.
pub fn prepare(process: &ProcessCounters) {
    if FREE_COUNT.load(Relaxed) >= STOCK || PREPARING.swap(1, Acquire) == 1 {
        return;
    }
    let first = PREPARED.load(Relaxed);
    let end = (first + STOCK).min(ROWS as u32);
    if let Some(rows) = process.threads.get(first as usize..end as usize) {
        if !rows.is_empty() && mapping::reserve(rows.as_ptr().cast(), size_of_val(rows)) {
            PREPARED.store(end, Relaxed);
            (first..end).rev().for_each(push);
        }
    }
    PREPARING.store(0, Release);
}

/// Frees all rows of `process` and forgets which have memory. Only while no other thread pops or
/// pushes.
pub fn reset(process: &ProcessCounters) {
    for (_, counters) in used(process) {
        counters.state.store(state::FREE, Relaxed);
        counters.clear();
    }
    process.high_water.store(0, Relaxed);
    HEAD.store(retagged(HEAD.load(Relaxed), NONE), Release);
    FREE_COUNT.store(0, Relaxed);
    PREPARED.store(0, Relaxed);
    PREPARING.store(0, Relaxed);
}

/// The rows that have been in use, with their counters.
pub fn used(process: &ProcessCounters) -> impl Iterator<Item = (u32, &ThreadCounters)> {
    (0..used_count(process)).zip(&process.threads)
}

/// Rows below this one have been in use.
pub fn used_count(process: &ProcessCounters) -> u32 {
    process.high_water.load(Acquire).min(ROWS as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_stock_have_not_been_in_use() {
        // SAFETY: all zero bytes are a process that has measured nothing.
        let process = unsafe { Box::<ProcessCounters>::new_zeroed().assume_init() };
        prepare(&process);
        assert_eq!(FREE_COUNT.load(Relaxed), STOCK);
        assert_eq!(used_count(&process), 0);
        assert_eq!((pop(&process), pop(&process)), (Some(0), Some(1)));
        assert_eq!(used_count(&process), 2);
        push(0);
        assert_eq!(pop(&process), Some(0));
        assert_eq!(used_count(&process), 2);
        reset(&process);
    }
}
