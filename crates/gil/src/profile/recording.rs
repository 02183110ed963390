//! The profile that is on, for hooks.
//!
//! Without a profile, an event costs one load and a branch. A fork ends the profile in the child.
//!
//! `on_wait`, `on_take` and `on_drop` run in hooks, with the GIL's mutex held.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use headway_measure::add;

use super::charges::{Charges, Side};
use super::frames::{self, Calls, Foreign, Memory, Own};
use super::layout::Layout;
use super::store::{self, ChargeKind, Key, Store};
use super::wakeup;
use crate::counters::{self, ThreadCounters, free_list};
use crate::finalization;
use crate::gil::Gil;
use crate::gil::locked::Locked;
use crate::registry::threads::this_thread;

/// The store that hooks write to. Writers: `begin`, with release; `end`, in any thread; a forked
/// child. Readers: hooks, with acquire. The memory is never unmapped.
///
/// | `STORE` | `LAST` | meaning | set by |
/// |---|---|---|---|
/// | null | null | there was no profile, or it is the parent's | a forked child |
/// | a store | the same | waiting is charged | `begin` |
/// | null | a store | there was a profile | `end` |
static STORE: AtomicPtr<Store> = AtomicPtr::new(std::ptr::null_mut());
/// The store of the present or last profile. Writers: `begin`, with release; a forked child.
static LAST: AtomicPtr<Store> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the program or a command asked for the profile. If not, it is on for a reporter alone,
/// which reads neither threads nor the stacks of waiting threads. Written by `control` before
/// `begin`, and at the end of a profile that continues for a reporter; relaxed, because a reader
/// that sees the earlier value only charges with more or less detail.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(true);
/// Whether the holder's thread state was found in the GIL, without which no stack of a holder is
/// read. Written by `control` before `begin`; relaxed, since `STORE` orders it.
static KNOWS_HOLDERS: AtomicBool = AtomicBool::new(false);
/// The layout of CPython's memory. Written before `STORE`, and before loops are read.
static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// How many rows a search for a waiting thread looks at.
const ROWS_SEARCHED: u64 = 64;

fn store_at(store: &AtomicPtr<Store>) -> Option<&'static Store> {
    // SAFETY: `begin` stored a store, which is never unmapped.
    unsafe { store.load(Acquire).as_ref() }
}

/// Returns whether waiting is charged.
#[inline(always)]
pub fn is_on() -> bool {
    !STORE.load(Relaxed).is_null()
}

/// See `IS_ASKED_FOR`.
#[inline]
pub(super) fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Relaxed)
}

pub(super) fn set_asked_for(is_asked_for: bool) {
    IS_ASKED_FOR.store(is_asked_for, Relaxed);
}

/// Whether the profile has stacks of holders: not if it began without a GIL.
pub fn knows_holders() -> bool {
    KNOWS_HOLDERS.load(Relaxed)
}

pub(super) fn set_knows_holders(knows_holders: bool) {
    KNOWS_HOLDERS.store(knows_holders, Relaxed);
}

/// The store of the present profile.
pub(super) fn present() -> Option<&'static Store> {
    store_at(&STORE)
}

/// The store of the present or last profile.
pub(super) fn last() -> Option<&'static Store> {
    store_at(&LAST)
}

pub fn layout() -> Option<&'static Layout> {
    LAYOUT.get()
}

/// Keeps the layout, which is the same whenever stacks are read in this process.
pub fn keep_layout(layout: Layout) -> &'static Layout {
    LAYOUT.get_or_init(|| layout)
}

pub(super) fn begin(store: &'static Store) {
    let store = std::ptr::from_ref(store).cast_mut();
    LAST.store(store, Release);
    STORE.store(store, Release);
}

/// Ends the profile. Async-signal-safe. Running events may still be charged.
pub(super) fn end(now_ns: u64) {
    if !STORE.swap(std::ptr::null_mut(), AcqRel).is_null() {
        if let Some(store) = last() {
            store.ended_ns.store(now_ns, Relaxed);
        }
    }
}

/// The meter is removed: the sums end here. No event runs any more.
pub fn close(now_ns: u64) {
    let Some(store) = present() else { return };
    let begun = store.gils.iter().filter(|charges| charges.serial.load(Relaxed) != 0);
    begun.for_each(|charges| charges.close(now_ns));
}

/// Forgets the profile in a forked child, because it is the parent's.
pub(super) fn forget() {
    STORE.store(std::ptr::null_mut(), Relaxed);
    LAST.store(std::ptr::null_mut(), Relaxed);
    set_asked_for(true);
}

/// Keeps the name of a thread that ends.
pub fn name_thread(native_id: u32, name: &[u8]) {
    if let Some(store) = present() {
        store.name_thread(native_id, name);
    }
}

/// The sums of a GIL, which begin with its first event under the profile.
#[inline]
fn charges_of(
    store: &'static Store,
    gil: &'static Gil,
    locked: &Locked,
) -> Option<&'static Charges> {
    let charges = store.gils.get(gil.index)?;
    if charges.serial.load(Relaxed) != gil.serial.load(Relaxed) {
        begin_charges(store, charges, gil, locked);
    }
    Some(charges)
}

#[cold]
#[inline(never)]
fn begin_charges(store: &Store, charges: &Charges, gil: &'static Gil, locked: &Locked) {
    if charges.serial.load(Relaxed) != 0 {
        store.ended.merge(charges);
    }
    charges.interpreter.store(gil.interpreter_id.load(Relaxed), Relaxed);
    charges.name.copy_from(&gil.name);
    // The state has been the same since the profile began, or the GIL opened.
    let began_ns = store.began_ns.load(Relaxed).max(gil.counters().opened_ns.load(Relaxed));
    charges.begin(gil.serial.load(Relaxed), locked.waiters, locked.held, began_ns);
}

/// The calling thread, with this row, begins to wait; `locked` does not count it yet.
#[cold]
#[inline(never)]
pub fn on_wait(gil: &'static Gil, locked: &Locked, row: u32, began_ns: u64, now_ns: u64) {
    let Some(store) = present() else { return };
    let Some(charges) = charges_of(store, gil, locked) else { return };
    charges.advance(now_ns);
    charges.count_since(began_ns.max(store.began_ns.load(Relaxed)));
    charges.waiters.store(locked.waiters + 1, Relaxed);
    charges.last_waiter.store(row, Relaxed);
    wakeup::wake();
}

/// The wait that ends in a take.
#[derive(Clone, Copy)]
pub struct EndedWait {
    pub began_ns: u64,
    /// True if `on_wait` has counted it.
    pub was_seen: bool,
}

/// The calling thread has taken the GIL; `locked` counts it among those that wait if it waited.
#[cold]
#[inline(never)]
pub fn on_take(
    gil: &'static Gil,
    locked: &Locked,
    taker: &ThreadCounters,
    wait: Option<EndedWait>,
    now_ns: u64,
) {
    let Some(store) = present() else { return };
    let Some(charges) = charges_of(store, gil, locked) else { return };
    charges.advance(now_ns);
    if let Some(wait) = wait {
        let began_ns = wait.began_ns.max(store.began_ns.load(Relaxed));
        if wait.was_seen {
            charges.waiters.store(locked.waiters.saturating_sub(1), Relaxed);
        } else {
            charges.count_since(began_ns);
        }
        add(&charges.waits_ns, now_ns.saturating_sub(began_ns));
    }
    charges.begin_hold();
    if wait.is_some() && is_asked_for() && charges.open_charge_ns(&Side::Waits).is_some() {
        charge_waiter(store, gil, charges, taker);
    }
}

/// The calling thread stops waiting without a take; `locked` still counts it.
#[cold]
#[inline(never)]
pub fn on_end_of_wait(gil: &'static Gil, locked: &Locked, now_ns: u64) {
    let Some(store) = present() else { return };
    let Some(charges) = charges_of(store, gil, locked) else { return };
    charges.advance(now_ns);
    charges.waiters.store(locked.waiters.saturating_sub(1), Relaxed);
}

/// The GIL is dropped, by the calling thread unless its holder's drop was not seen.
#[cold]
#[inline(never)]
pub fn on_drop(gil: &'static Gil, locked: &Locked, now_ns: u64) {
    let Some(store) = present() else { return };
    let Some(charges) = charges_of(store, gil, locked) else { return };
    charges.advance(now_ns);
    if !locked.drop_requested {
        charges.note_voluntary_drop(now_ns);
    }
    let is_own = gil.holder_thread.load(Relaxed) == this_thread();
    if is_own && charges.open_charge_ns(&Side::Held).is_some() {
        let kind = if locked.drop_requested { ChargeKind::Forced } else { ChargeKind::Voluntary };
        let hold_began_ns = gil.counters().changed_ns.load(Relaxed);
        let hold_ns = now_ns.saturating_sub(hold_began_ns);
        let collected = 2 * gil.collected.in_hold_ns(hold_began_ns) > hold_ns;
        charge_holder(store, gil, charges, locked, kind, collected);
    }
    charges.held.store(0, Relaxed);
}

/// Charges what the calling thread waited to its stack.
#[inline(never)]
fn charge_waiter(store: &Store, gil: &Gil, charges: &Charges, taker: &ThreadCounters) {
    let Some(tables) = store.try_lock() else { return };
    let Some(open_ns) = charges.open_charge_ns(&Side::Waits) else { return };
    let key = Key {
        kind: ChargeKind::Waited as u32,
        serial: gil.serial.load(Relaxed),
        node: own_node(&tables, gil).unwrap_or(store::NO_NODE),
        thread: taker.native_id.load(Relaxed),
        waiter: 0,
        context: taker.context.load(Relaxed),
    };
    if key.node == store::NO_NODE || !tables.charge(key, open_ns) {
        add(&charges.lost_waits_ns, open_ns);
    }
    add(&charges.charged_waits_ns, open_ns);
    charges.draw_limit(&Side::Waits);
}

/// Charges what threads waited for the calling thread to its stack, or to a garbage collector that
/// this stack called if the hold was mostly `collected`, and half of it to the stack that was read
/// last during the hold, if there is one.
#[inline(never)]
fn charge_holder(
    store: &Store,
    gil: &Gil,
    charges: &Charges,
    locked: &Locked,
    kind: ChargeKind,
    collected: bool,
) {
    let Some(tables) = store.try_lock() else { return };
    let Some(open_ns) = charges.open_charge_ns(&Side::Held) else { return };
    // SAFETY: the GIL is held, so a take stored the holder's counters, which are never unmapped.
    let holder = unsafe { &*locked.holder };
    let (thread, context) = (holder_of_row(holder), holder.context.load(Relaxed));
    let serial = gil.serial.load(Relaxed);
    let mut left_ns = open_ns;
    if charges.has_reading() {
        let key = Key {
            kind: ChargeKind::Running as u32,
            serial,
            node: charges.reading_node.load(Relaxed),
            thread,
            waiter: charges.reading_waiter.load(Relaxed),
            context,
        };
        if tables.charge(key, open_ns / 2) {
            left_ns -= open_ns / 2;
        }
    }
    let own = own_node(&tables, gil);
    let node = if collected { own.and_then(|node| tables.collector_in(node)) } else { own };
    let key = Key {
        kind: kind as u32,
        serial,
        node: node.unwrap_or(store::NO_NODE),
        thread,
        waiter: waiting_thread(gil, charges),
        context,
    };
    if key.node == store::NO_NODE || !tables.charge(key, left_ns) {
        add(&charges.lost_held_ns, left_ns);
    }
    add(&charges.charged_held_ns, open_ns);
    charges.draw_limit(&Side::Held);
}

/// The node of the calling thread's stack. The calling thread holds the GIL's mutex and has just
/// taken the GIL, or is about to drop it. Its frames stand still: it is in a hook.
fn own_node(tables: &store::StoreGuard, gil: &Gil) -> Option<u32> {
    let layout = layout().filter(|_| knows_holders())?;
    if !finalization::phase().keeps_own_thread_state() {
        return own_node_while_finalizing(tables, gil, layout);
    }
    let mut calls = Calls::new();
    // SAFETY: `last_holder` is the calling thread's own thread state, which CPython frees only
    // after the drop, since it does not finalize; `control` has verified its place. The frames keep
    // their code objects alive.
    unsafe {
        let state: usize = Own.get(gil.addresses().last_holder())?;
        if Own.get::<usize>(state.checked_add(layout.state_thread)?)? != this_thread() {
            return None;
        }
        match frames::read(&mut Own, layout, state, &mut calls) {
            true => tables.node_of(&mut Own, layout, &calls),
            false => None,
        }
    }
}

/// As `own_node`, through the kernel: a daemon thread takes the GIL with a thread state that the
/// finalizing thread has freed, and ends only after this hook.
#[cold]
#[inline(never)]
fn own_node_while_finalizing(
    tables: &store::StoreGuard,
    gil: &Gil,
    layout: &Layout,
) -> Option<u32> {
    let (mut memory, mut calls) = (Foreign::new(), Calls::new());
    // SAFETY: `Foreign` asks the kernel to read.
    unsafe {
        let state: usize = memory.get(gil.addresses().last_holder())?;
        if memory.get::<usize>(state.checked_add(layout.state_thread)?)? != this_thread() {
            return None;
        }
        match frames::read_foreign_once(&mut memory, layout, state, &mut calls) {
            true => tables.node_of(&mut memory, layout, &calls),
            false => None,
        }
    }
}

/// The thread in the key of a row: only a profile that was asked for tells threads apart.
pub(super) fn holder_of_row(holder: &ThreadCounters) -> u32 {
    if is_asked_for() { holder.native_id.load(Relaxed) } else { 0 }
}

/// The kernel's ID of a thread that waits; 0 if none is found soon, or none is needed.
pub(super) fn waiting_thread(gil: &Gil, charges: &Charges) -> u32 {
    if !is_asked_for() {
        return 0;
    }
    let Some(process) = counters::of_this_process() else { return 0 };
    let waits = |row: u32| {
        process.threads.get(row as usize).filter(|counters| {
            counters.gil.load(Relaxed) == gil.index as u32
                && counters.wait_began_ns.load(Relaxed) != 0
        })
    };
    let last = charges.last_waiter.load(Relaxed);
    let found = match charges.waiters.load(Relaxed) {
        0 | 1 => None,
        _ => {
            let rows = free_list::used_count(process).max(1);
            let first = charges.any_number();
            (0..ROWS_SEARCHED.min(u64::from(rows)))
                .find_map(|step| waits((first.wrapping_add(step) % u64::from(rows)) as u32))
        }
    };
    found.or_else(|| waits(last)).map_or(0, |counters| counters.native_id.load(Relaxed))
}
