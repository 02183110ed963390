//! Which GILs this process has, and the addresses that tell them apart.
//!
//! A GIL is known by two addresses inside one structure of CPython (`struct _gil_runtime_state`):
//! `cond` and `switch_cond`. How they lie to each other is learned from the main GIL (see
//! `learning`); own-GIL sub-interpreters use the same structure. The addresses are only compared, never
//! followed: CPython frees an own GIL with its interpreter and tells nobody.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use crate::counters::book::state;
use crate::counters::free_list;
use crate::counters::mapping::{GILS, Slot};
use crate::learning::Addresses;
use crate::registry::gil::{Gil, Role, life};
use headway_measure::clock;

/// Sum row of GILs that ended: the last book of a slot; never a live GIL's.
pub const ENDED_SUM: usize = GILS - 1;

/// The index under which threads have books where they use no GIL: see `parks`. Its entry is no GIL's.
pub const NO_GIL: usize = GILS - 2;

/// The GILs of this process; entry i keeps its books in book i of the slot. Entry 0 is the main
/// interpreter's. Entries are made under `CHANGING`.
static GILS_OF_PROCESS: [Gil; GILS] = [const { Gil::new() }; GILS];
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);
/// Entries from 0 to here have been in use; what a search has to look at.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(1);
/// Held by the one thread that adds an entry: 0 nobody, 1 somebody. Taken only where no GIL mutex
/// is held by the taker, and never under the registry lock, which its holder may take: `fold_gil`.
static CHANGING: AtomicU32 = AtomicU32::new(0);

pub fn main() -> &'static Gil {
    &GILS_OF_PROCESS[0]
}

/// Only its serial is used: it stays `UNUSED`, and has no book.
pub fn no_gil() -> &'static Gil {
    &GILS_OF_PROCESS[NO_GIL]
}

/// Whether a thread's book of the opening `serial`, which is not 0, is still that.
pub fn is_current(serial: u32) -> bool {
    all().iter().chain([no_gil()]).any(|gil| gil.serial.load(Relaxed) == serial)
}

pub fn index_of(gil: &'static Gil) -> usize {
    (std::ptr::from_ref(gil) as usize - GILS_OF_PROCESS.as_ptr() as usize) / size_of::<Gil>()
}

pub fn next_serial() -> u32 {
    NEXT_SERIAL.fetch_add(1, Relaxed)
}

/// The entries that have ever been in use.
pub fn all() -> &'static [Gil] {
    &GILS_OF_PROCESS[..HIGH_WATER.load(Acquire)]
}

/// Makes the main GIL known by its addresses; what holds of it is not known yet.
pub fn know_main(addresses: Addresses) -> &'static Gil {
    let gil = main();
    gil.interpreter_id.store(0, Relaxed);
    gil.life.store(life::KNOWN, Relaxed);
    gil.switch_cond.store(addresses.switch_cond, Relaxed);
    gil.cond.store(addresses.cond, Release);
    gil
}

/// The GIL whose `cond` or `switch_cond` is at `address`.
#[inline(always)]
pub fn find(address: usize) -> Option<(&'static Gil, Role)> {
    main().role_of(address).map(|role| (main(), role)).or_else(|| find_own_gil(address))
}

#[cold]
fn find_own_gil(address: usize) -> Option<(&'static Gil, Role)> {
    all()[1..].iter().find_map(|gil| gil.role_of(address).map(|role| (gil, role)))
}

/// How the addresses lie to each other, as learned from the main GIL.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub switch_cond_after_cond: usize,
    /// From the `PyInterpreterState` to its own GIL's `cond`; 0 where GILs do not lie in it.
    pub cond_after_interpreter: usize,
}

impl Layout {
    /// The addresses of the GIL whose `cond` is at `cond`.
    pub fn of(self, cond: usize) -> Addresses {
        Addresses { cond, switch_cond: cond + self.switch_cond_after_cond }
    }
}

/// Adds the GIL whose `cond` is at `cond`, as `KNOWN`, unless it is there.
pub fn add(cond: usize, layout: Layout, interpreter_id: i64) -> Option<&'static Gil> {
    let _changing = Changing::begin();
    if let Some((gil, _)) = find(cond) {
        return Some(gil);
    }
    let with = |wanted: u32| {
        let entries = (1..NO_GIL).filter(move |&i| GILS_OF_PROCESS[i].life.load(Relaxed) == wanted);
        entries.min_by_key(|&i| GILS_OF_PROCESS[i].serial.load(Relaxed))
    };
    // Full of open GILs: the oldest has most likely gone with its interpreter, which only a snapshot
    // finds out. If it has not, the next snapshot makes it known again.
    let index = with(life::UNUSED).or_else(|| with(life::CLOSED)).or_else(|| with(life::OPEN))?;
    let gil = &GILS_OF_PROCESS[index];
    if gil.life.load(Relaxed) == life::OPEN {
        close_gone(gil, crate::counters::slot()?);
    }
    if gil.life.load(Relaxed) == life::CLOSED {
        crate::aggregation::fold_gil(index);
    }
    gil.serial.store(0, Relaxed);
    let interpreter = match layout.cond_after_interpreter {
        0 => 0,
        distance => cond - distance,
    };
    gil.interpreter.store(interpreter, Relaxed);
    gil.interpreter_id.store(interpreter_id, Relaxed);
    gil.name.set(b"");
    gil.life.store(life::KNOWN, Relaxed);
    gil.switch_cond.store(cond + layout.switch_cond_after_cond, Relaxed);
    gil.cond.store(cond, Release);
    // No GIL mutex is held here, and the thread that makes the interpreter needs books for it.
    crate::counters::slot().inspect(|slot| free_list::prepare(slot));
    HIGH_WATER.fetch_max(index + 1, Release);
    Some(gil)
}

/// Closes the books of all GILs, now. Other threads may be in the middle of events.
pub fn close_all(slot: &'static Slot) {
    let open: Vec<_> = all()
        .iter()
        .filter(|gil| match gil.life.load(Relaxed) {
            life::OPEN => true,
            _ => {
                gil.life.store(life::UNUSED, Relaxed);
                false
            }
        })
        .collect();
    open.iter().for_each(|gil| gil.life.store(life::CLOSED, SeqCst));
    // Events check `life` without a fence. This is their half of it.
    if !memory_barrier_in_all_threads() {
        // Stores become visible by themselves within far less than this.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for gil in open {
        gil.settle();
        close_book(gil, slot, clock::now_ns());
    }
}

/// Closes the books of a GIL that has gone with its interpreter, as of its last event; its addresses
/// may be something else's by now. No thread runs an event of it any more.
pub fn close_gone(gil: &'static Gil, slot: &'static Slot) {
    gil.cond.store(0, Relaxed);
    gil.switch_cond.store(0, Relaxed);
    if gil.life.swap(life::CLOSED, SeqCst) == life::OPEN {
        close_book(gil, slot, gil.book().changed_ns.load(Relaxed));
        crate::registry::threads::end_books_of(gil.index(), slot);
    } else {
        gil.life.store(life::UNUSED, Relaxed);
    }
}

fn close_book(gil: &'static Gil, slot: &'static Slot, now_ns: u64) {
    let book = gil.book();
    if book.held_now.load(Relaxed) == 1 {
        let holder = &slot.books[book.holder.load(Relaxed) as usize];
        let held_ns = now_ns.saturating_sub(book.changed_ns.load(Relaxed));
        holder.held_at_close_ns.fetch_add(held_ns, Relaxed);
    }
    crate::events::close_moment(book, now_ns);
    crate::trace::record_closed(gil, now_ns);
    book.closed_ns.store(now_ns.max(1), Relaxed);
    book.state.store(state::ENDED, Release);
}

/// Compares with the interpreters that exist (their addresses and ids): closes the own GILs of those
/// that ended, and makes known those that were there before the meter. The caller holds the main GIL.
pub fn match_interpreters(existing: &[(usize, i64)], slot: &'static Slot) {
    let layout = crate::learning::layout();
    if layout.cond_after_interpreter == 0 {
        return;
    }
    for gil in all()[1..].iter().filter(|gil| gil.cond.load(Relaxed) != 0) {
        let here = (gil.interpreter.load(Relaxed), gil.interpreter_id.load(Relaxed));
        if !existing.contains(&here) {
            close_gone(gil, slot);
        }
    }
    for (interpreter, id) in existing.iter().filter(|(_, id)| *id != 0) {
        add(interpreter + layout.cond_after_interpreter, layout, *id);
    }
    crate::registry::names::give_kept();
}

const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// Prepares the barrier below. The kernel does this at once while the process has one thread, and may take
/// milliseconds later.
pub fn register_memory_barrier() {
    membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
}

/// Has every thread of the process pass a full memory barrier; false if the kernel does not know how.
pub fn memory_barrier_in_all_threads() -> bool {
    membarrier(MEMBARRIER_PRIVATE_EXPEDITED)
}

fn membarrier(command: i32) -> bool {
    // SAFETY: the system call has no memory effects but the barrier.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
}

/// In a forked child: every GIL but the main one is gone.
pub fn keep_main_only() {
    CHANGING.store(0, Relaxed);
    for gil in &all()[1..] {
        gil.cond.store(0, Relaxed);
        gil.switch_cond.store(0, Relaxed);
        gil.life.store(life::UNUSED, Relaxed);
    }
    HIGH_WATER.store(1, Release);
}

struct Changing;

impl Changing {
    fn begin() -> Self {
        while CHANGING.swap(1, Acquire) == 1 {
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        }
        Self
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.store(0, Release);
    }
}
