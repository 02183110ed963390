//! Who has held a GIL for long while others wait for it: for a watchdog, which must not need the GIL.
//!
//! Reads what the hooks write, from any thread, and waits for none of them: a thread that never drops the
//! GIL is what it looks for. The cost is a few loads for each GIL; threads are looked at only where a
//! hold is long.

use std::sync::atomic::Ordering::*;

use crate::counters;
use crate::counters::book::{NAME_BYTES, ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping::Slot;
use crate::install::is_installed;
use crate::registry::gil::{Gil, LONG_HOLD_NS, life};
use crate::registry::gils;
use crate::registry::threads;
use headway_measure::clock::now_ns;

/// A hold that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which GIL it is, of those that this process has had; with `began_ns` it tells holds apart.
    pub gil: usize,
    /// What the program calls the GIL.
    pub gil_name: String,
    /// The interpreter whose GIL it is, where that is known.
    pub interpreter: Option<i64>,
    /// The holder; `None` for a thread that there was no book for.
    pub native_id: Option<u32>,
    /// What Python calls the holder, or the kernel.
    pub name: String,
    /// By the clock that the meter has, CLOCK_MONOTONIC.
    pub began_ns: u64,
    pub held_ns: u64,
    /// How long the thread that has waited longest has done so, before this hold included.
    pub waited_ns: u64,
}

impl Hold {
    /// Whether the two were seen of one hold.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.gil, self.began_ns) == (other.gil, other.began_ns)
    }
}

/// The holds that have lasted longer than `held_ns` while one and the same thread waited for longer
/// than `waited_ns`. A thread that computes drops the GIL at the first drop request, so where
/// `waited_ns` is beyond the switch interval it is not among them, however long nobody else wanted the
/// GIL.
pub fn holds_longer_than(held_ns: u64, waited_ns: u64) -> Vec<Hold> {
    let Some(slot) = counters::slot().filter(|_| is_installed()) else { return Vec::new() };
    gils::all().iter().filter_map(|gil| long_hold(gil, slot, held_ns, waited_ns)).collect()
}

/// Whether the hold goes on.
pub fn is_held(hold: &Hold) -> bool {
    let Some(gil) = gils::all().get(hold.gil) else { return false };
    present_hold(gil).is_some_and(|(began_ns, _)| began_ns == hold.began_ns)
}

/// When a hold of 10 ms or more that is over ended: exactly, if no other that was as long has
/// followed it. If one has, by when it must have.
pub fn end_of_hold_ns(hold: &Hold) -> Option<u64> {
    const { assert!(LONG_HOLD_NS <= 10_000_000) };
    let gil = gils::all().get(hold.gil)?;
    let [began, ended] = &gil.last_long_hold_ns;
    let (began_ns, ended_ns) = gil.read(|| (began.load(Relaxed), ended.load(Relaxed)));
    match began_ns {
        _ if began_ns == hold.began_ns => Some(ended_ns),
        _ if began_ns > hold.began_ns => Some(began_ns),
        _ => None,
    }
}

/// The CPU time that the holder used in a hold of 10 ms or more that is over, while a drop request was pending for
/// longer than Python code takes to answer; `None` if it is not known, or another long hold has followed.
pub fn cpu_of_unanswered_ns(hold: &Hold) -> Option<u64> {
    let gil = gils::all().get(hold.gil)?;
    let (began_ns, cpu_ns) = gil
        .read(|| (gil.last_long_hold_ns[0].load(Relaxed), gil.last_long_hold_cpu_ns.load(Relaxed)));
    (began_ns == hold.began_ns && cpu_ns != 0).then_some(cpu_ns)
}

/// What one thread has done with GILs so far, all together, up to this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    pub held_ns: u64,
    pub waited_ns: u64,
    pub contended_takes: u64,
}

/// The times of any thread, the hold or wait that it is in included; `None` if the meter has no book of
/// it. What ends meanwhile may be counted twice or not yet.
pub fn times_of_thread(native_id: u32) -> Option<ThreadTimes> {
    let slot = counters::slot().filter(|_| is_installed())?;
    let now_ns = now_ns();
    let mut times = None;
    for (index, book) in free_list::used(slot) {
        if book.state.load(Acquire) != state::LIVE || book.native_id.load(Relaxed) != native_id {
            continue;
        }
        let times = times.get_or_insert_with(ThreadTimes::default);
        times.held_ns += book.hold.sum_ns.load(Relaxed);
        times.waited_ns += book.wait.sum_ns.load(Relaxed);
        times.contended_takes += book.contended_takes.load(Relaxed);
        let present = gils::all().get(book.gil.load(Relaxed) as usize).and_then(present_hold);
        if let Some((since_ns, _)) = present.filter(|(_, holder)| *holder == index) {
            times.held_ns += now_ns.saturating_sub(since_ns);
        }
        match book.wait_began_ns.load(Relaxed) {
            0 => {}
            began_ns => times.waited_ns += now_ns.saturating_sub(began_ns),
        }
    }
    times
}

fn long_hold(
    gil: &'static Gil,
    slot: &'static Slot,
    held_limit_ns: u64,
    waited_limit_ns: u64,
) -> Option<Hold> {
    let (since_ns, holder) = present_hold(gil)?;
    if now_ns().saturating_sub(since_ns) <= held_limit_ns {
        return None;
    }
    let waiting_since_ns = free_list::used(slot)
        .filter(|(_, book)| is_of(book, gil))
        .map(|(_, book)| book.wait_began_ns.load(Relaxed))
        .filter(|began_ns| *began_ns != 0)
        .min()?;
    let waited_ns = now_ns().saturating_sub(waiting_since_ns);
    if waited_ns <= waited_limit_ns {
        return None;
    }
    let native_id = slot.books.get(holder as usize)?.native_id.load(Relaxed);
    let name = threads::name_of(native_id).unwrap_or_default();
    let gil_name = String::from_utf8_lossy(gil.name.get(&mut [0; NAME_BYTES])).into_owned();
    let interpreter = gil.interpreter_id.load(Relaxed);
    // Whoever dropped the GIL while we looked is not stuck.
    (present_hold(gil) == Some((since_ns, holder))).then(|| Hold {
        gil: gil.index(),
        gil_name,
        interpreter: (interpreter >= 0).then_some(interpreter),
        native_id: (native_id != 0).then_some(native_id),
        name,
        began_ns: since_ns,
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
