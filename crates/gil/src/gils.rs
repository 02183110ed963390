//! Which GILs this process has: the addresses that tell them apart, and what the engine knows of
//! each while it lives.
//!
//! A GIL is known by three addresses inside one structure of CPython (`struct _gil_runtime_state`):
//! `cond`, `mutex` and `switch_cond`. How they lie to each other is learned from the main GIL (see
//! `install`); own-GIL sub-interpreters use the same structure.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use super::ledger::book::{GilBook, state};
use super::learning::Addresses;
use super::ledger::slab;
use super::ledger::region::{GILS, Slot};

/// Sum row of GILs that ended: the last book of a slot; never a live GIL's.
pub const ENDED_SUM: usize = GILS - 1;

/// What the engine knows of a GIL's present state. Guarded by that GIL's own mutex: CPython holds
/// it around every call that the hooks see, and a snapshot locks it.
pub struct Locked {
    pub held: bool,
    /// `pthread_self()` of the holder.
    pub holder_thread: usize,
    /// Index of the holder's book.
    pub holder: u32,
    /// Index of the book of the thread that took last.
    pub last_holder: u32,
    /// As CPython's `switch_number`: takes by another thread than before.
    pub switch_number: u64,
    /// Threads inside a timed wait that the hook saw begin.
    pub in_timed_wait: u32,
    /// A drop request against the present hold is pending.
    pub drop_requested: bool,
}

impl Locked {
    const fn new() -> Self {
        Self {
            held: false,
            holder_thread: 0,
            holder: 0,
            last_holder: u32::MAX,
            switch_number: 0,
            in_timed_wait: 0,
            drop_requested: false,
        }
    }
}

/// How far a GIL has come.
///
/// | value | meaning | events count |
/// |---|---|---|
/// | `UNUSED` | the entry names no GIL | no |
/// | `KNOWN` | its addresses are known; whether it is held is not | the first that tells opens it |
/// | `OPEN` | its book is open | yes |
/// | `CLOSED` | destroyed, or the meter was taken out | no |
pub mod life {
    pub const UNUSED: u32 = 0;
    pub const KNOWN: u32 = 1;
    pub const OPEN: u32 = 2;
    pub const CLOSED: u32 = 3;
}

/// One GIL of this process.
pub struct Gil {
    /// See [`life`]. Written with the GIL's mutex held, or while nobody else can know the GIL.
    pub life: AtomicU32,
    /// Which opening this is, so that a thread's link to a book of an earlier one is not followed.
    /// Written when the book opens.
    pub serial: AtomicU32,
    /// Address of the condition variable that waiters wait on.
    pub cond: AtomicUsize,
    pub mutex: AtomicUsize,
    /// Address of the condition variable that a forced switch waits on.
    pub switch_cond: AtomicUsize,
    /// Address of the `PyInterpreterState` that owns it; 0 where unknown.
    pub interpreter: AtomicUsize,
    /// The id of that interpreter; -1 where unknown.
    pub interpreter_id: AtomicI64,
    /// Readers that may lock `mutex`; whoever closes the GIL waits until it is 0.
    pub readers: AtomicU32,
    /// Book for threads that found none free; taken when the GIL's book opens.
    pub unmeasured: AtomicU32,
    locked: UnsafeCell<Locked>,
}

// SAFETY: `locked` is reached only through `locked()`, whose callers hold the GIL's mutex.
unsafe impl Sync for Gil {}

impl Gil {
    const fn new() -> Self {
        Self {
            life: AtomicU32::new(life::UNUSED),
            serial: AtomicU32::new(0),
            cond: AtomicUsize::new(0),
            mutex: AtomicUsize::new(0),
            switch_cond: AtomicUsize::new(0),
            interpreter: AtomicUsize::new(0),
            interpreter_id: AtomicI64::new(-1),
            readers: AtomicU32::new(0),
            unmeasured: AtomicU32::new(u32::MAX),
            locked: UnsafeCell::new(Locked::new()),
        }
    }

    /// # Safety
    /// The caller holds this GIL's mutex, or is the only thread that can reach the GIL, and lets go
    /// of the reference before it lets go of that.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub unsafe fn locked(&self) -> &mut Locked {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.locked.get() }
    }

    pub fn index(&'static self) -> usize {
        (std::ptr::from_ref(self) as usize - GILS_OF_PROCESS.as_ptr() as usize) / size_of::<Gil>()
    }

    pub fn book(&'static self, slot: &'static Slot) -> &'static GilBook {
        &slot.gils[self.index()]
    }

    /// Begins a new opening: fresh state, a serial of its own, an empty book. `locked()`'s rules
    /// apply.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    pub unsafe fn open(&'static self, slot: &'static Slot, now_ns: u64) {
        // SAFETY: the caller's promise.
        *unsafe { self.locked() } = Locked::new();
        self.serial.store(NEXT_SERIAL.fetch_add(1, Relaxed), Relaxed);
        let book = self.book(slot);
        book.interpreter.store(self.interpreter_id.load(Relaxed), Relaxed);
        book.open(now_ns, false);
        let unmeasured = slab::pop().inspect(|&index| {
            let row = &slot.books[index as usize];
            row.gil.store(self.index() as u32, Relaxed);
            row.name.set(b"(unmeasured)");
            row.state.store(state::FOLDED, Release);
        });
        self.unmeasured.store(unmeasured.unwrap_or(u32::MAX), Relaxed);
        self.life.store(life::OPEN, Release);
    }

    /// Opens the book of the same opening once more, empty and with the GIL free: for a forked child, whose
    /// GIL is made anew before anything was counted.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    pub unsafe fn reopen(&'static self, slot: &'static Slot, now_ns: u64) {
        // SAFETY: the caller's promise.
        *unsafe { self.locked() } = Locked::new();
        self.book(slot).open(now_ns, false);
    }
}

/// Makes the main GIL known by its addresses; what holds of it is not known yet.
pub fn know_main(addresses: Addresses) -> &'static Gil {
    let gil = main();
    gil.mutex.store(addresses.mutex, Relaxed);
    gil.interpreter_id.store(0, Relaxed);
    gil.life.store(life::KNOWN, Relaxed);
    gil.switch_cond.store(addresses.switch_cond, Relaxed);
    gil.cond.store(addresses.cond, Release);
    gil
}

/// The GILs of this process; entry i keeps its books in book i of the slot. Entry 0 is the main
/// interpreter's. Entries are made under `CHANGING`.
static GILS_OF_PROCESS: [Gil; GILS] = [const { Gil::new() }; GILS];
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);
/// Entries from 0 to here have been in use; what a search has to look at.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(1);
/// Held by the one thread that adds or removes an entry: 0 nobody, 1 somebody. Taken only where no
/// GIL mutex is held by the taker, and for a few loads and stores.
static CHANGING: AtomicU32 = AtomicU32::new(0);
/// GILs that found no free entry and are not measured.
pub static UNMEASURED_GILS: AtomicU64 = AtomicU64::new(0);

/// Which condition variable of a GIL an address is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Cond,
    SwitchCond,
}

pub fn main() -> &'static Gil {
    &GILS_OF_PROCESS[0]
}

/// The entries that have ever been in use.
pub fn all() -> &'static [Gil] {
    &GILS_OF_PROCESS[..HIGH_WATER.load(Acquire)]
}

/// The GIL whose `cond` or `switch_cond` is at `address`, the main one first.
#[inline]
pub fn find(address: usize) -> Option<(&'static Gil, Role)> {
    all().iter().find_map(|gil| {
        if gil.cond.load(Relaxed) == address {
            Some((gil, Role::Cond))
        } else if gil.switch_cond.load(Relaxed) == address {
            Some((gil, Role::SwitchCond))
        } else {
            None
        }
    })
}

/// How the three addresses lie to each other, as learned from the main GIL.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub mutex_after_cond: usize,
    pub switch_cond_after_cond: usize,
    /// From the `PyInterpreterState` to its own GIL's `cond`; 0 where GILs do not lie in it.
    pub cond_after_interpreter: usize,
}

impl Layout {
    /// The addresses of the GIL whose `cond` is at `cond`.
    pub fn of(self, cond: usize) -> Addresses {
        Addresses {
            cond,
            mutex: cond + self.mutex_after_cond,
            switch_cond: cond + self.switch_cond_after_cond,
        }
    }
}

/// Adds the GIL whose `cond` is at `cond`, as `KNOWN`. `None` if the table is full.
pub fn add(cond: usize, layout: Layout) -> Option<&'static Gil> {
    let _changing = Changing::begin();
    if let Some((gil, _)) = find(cond) {
        return Some(gil);
    }
    let free = (1..ENDED_SUM).find(|&i| GILS_OF_PROCESS[i].life.load(Relaxed) == life::UNUSED);
    let index = free.or_else(oldest_closed);
    let Some(index) = index else {
        UNMEASURED_GILS.fetch_add(1, Relaxed);
        return None;
    };
    let gil = &GILS_OF_PROCESS[index];
    if gil.life.load(Relaxed) == life::CLOSED {
        super::threads::fold_gil(index);
    }
    gil.serial.store(0, Relaxed);
    gil.mutex.store(cond + layout.mutex_after_cond, Relaxed);
    let interpreter = match layout.cond_after_interpreter {
        0 => 0,
        distance => cond - distance,
    };
    gil.interpreter.store(interpreter, Relaxed);
    gil.interpreter_id.store(super::install::interpreter_id(interpreter), Relaxed);
    gil.life.store(life::KNOWN, Relaxed);
    gil.switch_cond.store(cond + layout.switch_cond_after_cond, Relaxed);
    gil.cond.store(cond, Release);
    HIGH_WATER.fetch_max(index + 1, Release);
    Some(gil)
}

fn oldest_closed() -> Option<usize> {
    (1..ENDED_SUM)
        .filter(|&i| GILS_OF_PROCESS[i].life.load(Relaxed) == life::CLOSED)
        .min_by_key(|&i| GILS_OF_PROCESS[i].serial.load(Relaxed))
}

/// Closes the books of a GIL. After it returns, no reader will touch the GIL's memory, and no
/// event of it counts. The caller holds the GIL's mutex, or the GIL is being destroyed.
pub fn close(gil: &'static Gil, slot: &'static Slot, now_ns: u64) {
    let was = gil.life.swap(life::CLOSED, SeqCst);
    if was == life::OPEN {
        let book = gil.book(slot);
        super::account::close_moment(book, now_ns);
        book.closed_ns.store(now_ns.max(1), Relaxed);
        book.state.store(state::ENDED, Release);
    } else if was == life::KNOWN {
        gil.life.store(life::UNUSED, SeqCst);
    }
}

/// Forgets where a destroyed GIL was, so that its memory can become something else.
pub fn forget_addresses(gil: &'static Gil) {
    gil.cond.store(0, Relaxed);
    gil.switch_cond.store(0, Relaxed);
    // A reader takes microseconds and waits only for the GIL's mutex, which nobody holds any more.
    while gil.readers.load(SeqCst) != 0 {
        // SAFETY: no preconditions.
        unsafe { libc::sched_yield() };
    }
}

/// In a forked child: every GIL but the main one is gone.
pub fn keep_main_only() {
    CHANGING.store(0, Relaxed);
    for gil in &all()[1..] {
        gil.cond.store(0, Relaxed);
        gil.switch_cond.store(0, Relaxed);
        gil.life.store(life::UNUSED, Relaxed);
    }
    all().iter().for_each(|gil| gil.readers.store(0, Relaxed));
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

/// Locks a GIL's mutex from outside the hooks, unless the GIL is closed.
pub struct Guard(&'static Gil);

impl Guard {
    pub fn lock(gil: &'static Gil) -> Option<Self> {
        gil.readers.fetch_add(1, SeqCst);
        if gil.life.load(SeqCst) != life::OPEN {
            gil.readers.fetch_sub(1, SeqCst);
            return None;
        }
        // SAFETY: an open GIL's mutex exists, and whoever destroys it waits for `readers` first.
        unsafe { libc::pthread_mutex_lock(gil.mutex.load(Relaxed) as *mut _) };
        Some(Self(gil))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: locked by `lock`.
        unsafe { libc::pthread_mutex_unlock(self.0.mutex.load(Relaxed) as *mut _) };
        self.0.readers.fetch_sub(1, SeqCst);
    }
}
