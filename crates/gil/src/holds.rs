//! Who has held a GIL for long while others wait for it: for a watchdog, which must not need the GIL.
//!
//! Reads what the hooks write, from any thread, and waits for none of them: a thread that never drops the
//! GIL is what it looks for. The cost is a few loads for each GIL; threads are looked at only where a
//! hold is long.

use std::sync::atomic::Ordering::*;

use super::clock::now_ns;
use super::gil::{Gil, life};
use super::gils;
use super::install::is_installed;
use super::ledger::book::{ThreadBook, state};
use super::ledger::region::Slot;
use super::ledger::{self, slab};
use super::threads;

/// A hold that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The interpreter whose GIL it is, where that is known.
    pub interpreter: Option<i64>,
    /// The holder; `None` for a thread that there was no book for.
    pub native_id: Option<u32>,
    /// What Python calls the holder, or the kernel.
    pub name: String,
    pub held_ns: u64,
    /// How long the thread that has waited longest has done so, before this hold included.
    pub waited_ns: u64,
}

/// The holds that have lasted longer than `limit_ns` while one and the same thread waited for longer
/// than `limit_ns` too. A thread that computes drops the GIL at the first drop request, so it is not
/// among them, however long nobody else wants the GIL.
pub fn holds_longer_than(limit_ns: u64) -> Vec<Hold> {
    let Some(slot) = ledger::slot().filter(|_| is_installed()) else { return Vec::new() };
    gils::all().iter().filter_map(|gil| long_hold(gil, slot, limit_ns)).collect()
}

fn long_hold(gil: &'static Gil, slot: &'static Slot, limit_ns: u64) -> Option<Hold> {
    let (since_ns, holder) = present_hold(gil)?;
    if now_ns().saturating_sub(since_ns) <= limit_ns {
        return None;
    }
    let waiting_since_ns = slab::used(slot)
        .filter(|(_, book)| is_of(book, gil))
        .map(|(_, book)| book.wait_began_ns.load(Relaxed))
        .filter(|began_ns| *began_ns != 0)
        .min()?;
    let waited_ns = now_ns().saturating_sub(waiting_since_ns);
    if waited_ns <= limit_ns {
        return None;
    }
    let native_id = slot.books.get(holder as usize)?.native_id.load(Relaxed);
    let name = threads::name_of(native_id).unwrap_or_default();
    let interpreter = gil.interpreter_id.load(Relaxed);
    // Whoever dropped the GIL while we looked is not stuck.
    (present_hold(gil) == Some((since_ns, holder))).then(|| Hold {
        interpreter: (interpreter >= 0).then_some(interpreter),
        native_id: (native_id != 0).then_some(native_id),
        name,
        held_ns: now_ns().saturating_sub(since_ns),
        waited_ns,
    })
}

fn is_of(book: &ThreadBook, gil: &'static Gil) -> bool {
    book.state.load(Acquire) == state::LIVE && book.gil.load(Relaxed) == gil.index() as u32
}

/// Since when the GIL is held, and the index of the holder's book.
fn present_hold(gil: &'static Gil) -> Option<(u64, u32)> {
    if gil.life.load(Acquire) != life::OPEN {
        return None;
    }
    let book = gil.book();
    let (held, since_ns, holder) = gil.read(|| {
        let held = book.held_now.load(Relaxed) == 1;
        (held, book.changed_ns.load(Relaxed), book.holder.load(Relaxed))
    });
    held.then_some((since_ns, holder))
}
