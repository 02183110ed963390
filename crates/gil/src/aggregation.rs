//! Ended threads and GILs, kept within bounds: rows that waited and held least are added up by name.
//!
//! Everything here runs under the registry lock of `threads` and without a GIL's mutex: where a
//! thread ends, in a snapshot, and in the hook of `pthread_cond_init`, where an interpreter needs
//! the entry of one that ended.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::*;

use crate::counters;
use crate::counters::book::{NAME_BYTES, ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping::{BOOKS, Slot};
use crate::registry::gils;
use crate::registry::threads::{ENDED, Registry};

/// Rows of ended threads that stay apart: those that waited and held most.
const ENDED_KEPT: usize = 256;
/// How many ended rows there may be before some are folded.
const ENDED_LIMIT: usize = 512;
/// Names that ended rows are folded under, per GIL, before they share `(ended)`.
const FOLDED_NAMES: usize = 32;

/// Weights and indices of ended rows.
struct EndedRows(UnsafeCell<[(u64, u32); BOOKS]>);
// SAFETY: used in `fold` only, under the registry lock.
unsafe impl Sync for EndedRows {}

/// Folds ended rows if there are many. Not in hooks.
pub fn fold_if_many(slot: &'static Slot) {
    if ENDED.load(Relaxed) > ENDED_LIMIT {
        fold(slot, &Registry::lock());
    }
}

/// Folds ended rows until at most [`ENDED_KEPT`] are left: those that waited and held most.
pub fn fold(slot: &'static Slot, _registry: &Registry) {
    // Not on the stack: a thread that ends may have as little as 32 KiB of it.
    static ENDED_ROWS: EndedRows = EndedRows(UnsafeCell::new([(0, 0); BOOKS]));
    // SAFETY: the registry lock, which the caller holds, makes this the only reference.
    let ended = unsafe { &mut *ENDED_ROWS.0.get() };
    let mut count = 0;
    for (index, book) in free_list::used(slot) {
        if book.state.load(Acquire) == state::ENDED {
            ended[count] = (book.weight_ns(), index);
            count += 1;
        }
    }
    let Some(excess) = count.checked_sub(ENDED_KEPT).filter(|excess| *excess > 0) else { return };
    let ended = &mut ended[..count];
    ended.select_nth_unstable(excess - 1);
    ended[..excess].iter().for_each(|(_, index)| fold_book(slot, *index));
}

/// Merges one ended row into its folded row and frees its book; the first of a name becomes the
/// folded row itself.
fn fold_book(slot: &'static Slot, index: u32) {
    let book = &slot.books[index as usize];
    let mut buffer = [0; NAME_BYTES];
    let mut stem = [0; NAME_BYTES];
    let stem = stem_of(book.name.get(&mut buffer), &mut stem);
    let threads = book.folded.load(Relaxed).max(1);
    ENDED.fetch_sub(1, Relaxed);
    match folded_row(slot, book.gil.load(Relaxed), stem) {
        Ok(row) => {
            row.merge(book);
            row.folded.fetch_add(threads, Relaxed);
            book.state.store(state::FREE, Relaxed);
            book.clear();
            free_list::push(index);
        }
        Err(name) => {
            book.native_id.store(0, Relaxed);
            book.name.set(name);
            book.folded.store(threads, Relaxed);
            book.state.store(state::FOLDED, Release);
        }
    }
}

/// The folded row for a stem, or the row of all others once there are many; else the name that a new
/// row gets.
fn folded_row<'a>(
    slot: &'static Slot,
    gil: u32,
    stem: &'a [u8],
) -> Result<&'static ThreadBook, &'a [u8]> {
    let folded = |book: &ThreadBook| {
        book.state.load(Relaxed) == state::FOLDED && book.gil.load(Relaxed) == gil
    };
    let row_named = |name: &[u8]| {
        let mut buffer = [0; NAME_BYTES];
        free_list::used(slot).map(|(_, b)| b).find(|b| folded(b) && b.name.get(&mut buffer) == name)
    };
    if let Some(row) = row_named(stem) {
        return Ok(row);
    }
    let full = free_list::used(slot).filter(|(_, book)| folded(book)).count() >= FOLDED_NAMES;
    let name = if full { b"(ended)" } else { stem };
    row_named(name).ok_or(name)
}

/// A thread name without its number: trailing digits, and the number in `threading`'s
/// `Thread-12 (target)`.
fn stem_of<'a>(name: &[u8], stem: &'a mut [u8; NAME_BYTES]) -> &'a [u8] {
    let (head, tail) = match name.iter().position(|byte| *byte == b' ') {
        Some(space) if name.starts_with(b"Thread-") => name.split_at(space),
        _ => (name, &[][..]),
    };
    let digits = head.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let head = &head[..head.len() - digits];
    stem[..head.len()].copy_from_slice(head);
    stem[head.len()..head.len() + tail.len()].copy_from_slice(tail);
    &stem[..head.len() + tail.len()]
}

/// Adds the books of a closed GIL, and its threads' rows, to the sum of GILs that ended, so that
/// its entry can be used again.
pub fn fold_gil(index: usize) {
    let _registry = Registry::lock();
    let Some(slot) = counters::slot() else { return };
    let (closed, sum) = (&slot.gils[index], &slot.gils[gils::ENDED_SUM]);
    let wall_ns = closed.closed_ns.load(Relaxed).saturating_sub(closed.opened_ns.load(Relaxed));
    closed.wall_ns.store(wall_ns, Relaxed);
    sum.merge(closed);
    sum.held_at_open.fetch_add(closed.held_at_open.load(Relaxed), Relaxed);
    sum.held_now.fetch_add(closed.held_now.load(Relaxed), Relaxed);
    sum.folded.fetch_add(1, Relaxed);
    sum.interpreter.store(-1, Relaxed);
    sum.state.store(state::FOLDED, Release);
    for (book_index, book) in free_list::used(slot) {
        if book.gil.load(Relaxed) == index as u32 && book.state.load(Relaxed) != state::FREE {
            if book.takes.load(Relaxed) == 0 && book.state.load(Relaxed) == state::FOLDED {
                book.state.store(state::FREE, Relaxed);
                book.clear();
                free_list::push(book_index);
                continue;
            }
            book.gil.store(gils::ENDED_SUM as u32, Relaxed);
            if book.state.swap(state::ENDED, Relaxed) != state::ENDED {
                ENDED.fetch_add(1, Relaxed);
            }
            fold_book(slot, book_index);
        }
    }
    closed.state.store(state::FREE, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_is_the_name_without_its_number() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"worker-17", b"worker-"),
            (b"Thread-12 (serve)", b"Thread- (serve)"),
            (b"ThreadPoolExecutor-0_3", b"ThreadPoolExecutor-0_"),
            (b"MainThread", b"MainThread"),
            (b"2024", b""),
            (b"", b""),
        ];
        for (name, stem) in cases {
            assert_eq!(stem_of(name, &mut [0; NAME_BYTES]), stem);
        }
    }
}
