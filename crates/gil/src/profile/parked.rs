//! Charges the waits of a free-threaded build to the stacks of the threads that waited.
//!
//! CPython keeps no record of the thread that holds a lock, so these waits have no side of holders.
//! Each kind of wait has sums of its own, beside those of GILs: an extension module that needs a
//! GIL makes a free-threaded process use one.
//!
//! `on_end_of_wait` runs in hooks, in the waiting thread, without any lock of CPython's.

use std::sync::atomic::Ordering::*;

use super::charges::{Charges, Side};
use super::frames::{self, Calls, Foreign};
use super::recording::{is_asked_for, layout, present};
use super::store::{self, ChargeKind, Key, PARKED_NAMES, Store, parked_serial};
use crate::counters::ThreadCounters;

/// Begins the sums, before events use the store.
pub(super) fn begin(store: &Store, now_ns: u64) {
    for (kind, (charges, name)) in store.parked.iter().zip(PARKED_NAMES).enumerate() {
        charges.interpreter.store(-1, Relaxed);
        charges.name.set(name);
        charges.begin(parked_serial(kind), 0, false, now_ns);
    }
}

/// The calling thread waited from `began_ns` to `now_ns`, for a reason with this index in
/// `PARKED_NAMES`. `state` finds its thread state.
#[cold]
#[inline(never)]
pub fn on_end_of_wait(
    kind: usize,
    began_ns: u64,
    now_ns: u64,
    waiter: &ThreadCounters,
    state: impl FnOnce() -> usize,
) {
    let Some(store) = present().filter(|_| is_asked_for()) else { return };
    let Some(charges) = store.parked.get(kind) else { return };
    let waited_ns = now_ns.saturating_sub(began_ns.max(store.began_ns.load(Relaxed)));
    // Other threads add at the same time, unlike with a GIL.
    charges.changed_ns.fetch_max(now_ns, Relaxed);
    charges.held_ns.fetch_add(waited_ns, Relaxed);
    charges.waits_ns.fetch_add(waited_ns, Relaxed);
    if charges.open_charge_ns(&Side::Waits).is_some() {
        charge(store, kind, charges, waiter, state());
    }
}

#[inline(never)]
fn charge(store: &Store, kind: usize, charges: &Charges, waiter: &ThreadCounters, state: usize) {
    let Some(layout) = layout() else { return };
    let Some(tables) = store.try_lock() else { return };
    let Some(open_ns) = charges.open_charge_ns(&Side::Waits) else { return };
    // The frames stand still while their thread is here. They are read from outside nevertheless,
    // because at CPython's end another thread may free them.
    let (mut memory, mut calls) = (Foreign::new(), Calls::new());
    let is_read = state != 0 && frames::read_foreign_once(&mut memory, layout, state, &mut calls);
    let node = if state == 0 {
        Some(store::EMPTY_STACK)
    } else if is_read {
        // SAFETY: `Foreign` asks the kernel to read.
        unsafe { tables.node_of(&mut memory, layout, &calls) }
    } else {
        None
    };
    let charged = node.is_some_and(|node| {
        let key = Key {
            kind: ChargeKind::Waited as u32,
            serial: parked_serial(kind),
            node,
            thread: waiter.native_id.load(Relaxed),
            waiter: 0,
            context: waiter.context.load(Relaxed),
        };
        tables.charge(key, open_ns)
    });
    if !charged {
        charges.lost_waits_ns.fetch_add(open_ns, Relaxed);
    }
    charges.charged_waits_ns.fetch_add(open_ns, Relaxed);
    charges.draw_limit(&Side::Waits);
}
