//! Which GILs this process has: the addresses that tell them apart, and what the engine knows of
//! each while it lives.
//!
//! A GIL is known by two addresses inside one structure of CPython (`struct _gil_runtime_state`):
//! `cond` and `switch_cond`. How they lie to each other is learned from the main GIL (see
//! `learning`); own-GIL sub-interpreters use the same structure. The addresses are only compared, never
//! followed: CPython frees an own GIL with its interpreter and tells nobody.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*, fence};

use super::clock;
use super::ledger::book::{GilBook, ThreadBook, state};
use super::learning::Addresses;
use super::ledger::slab;
use super::ledger::region::{GILS, Slot};

/// Sum row of GILs that ended: the last book of a slot; never a live GIL's.
pub const ENDED_SUM: usize = GILS - 1;

/// What the engine knows of a GIL's present state. Guarded by that GIL's own mutex, which CPython
/// holds around every call that the hooks see.
pub struct Locked {
    pub held: bool,
    /// [`this_thread`] of the holder.
    pub holder_thread: usize,
    /// The holder's book; null while nobody has held.
    pub holder: *const ThreadBook,
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
            holder: std::ptr::null(),
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
    /// See [`life`]. Written by an event of this GIL, by whoever makes the entry, and by `close`.
    pub life: AtomicU32,
    /// Which opening this is, so that a thread's link to a book of an earlier one is not followed.
    /// Written when the book opens.
    pub serial: AtomicU32,
    /// Address of the condition variable that waiters wait on.
    pub cond: AtomicUsize,
    /// Address of the condition variable that a forced switch waits on.
    pub switch_cond: AtomicUsize,
    /// Address of the `PyInterpreterState` that owns it; 0 where unknown.
    pub interpreter: AtomicUsize,
    /// The id of that interpreter; -1 where unknown.
    pub interpreter_id: AtomicI64,
    /// Odd while an event changes the books of this GIL, so that a snapshot can tell whether what it
    /// copied is of one moment. Writer: the event, with the GIL's mutex held.
    sequence: AtomicU32,
    /// Snapshots that could not get a copy of one moment and ask events to pause. Writers: snapshots.
    readers: AtomicU32,
    /// Where this opening's books are kept. Written when the book opens.
    book: AtomicPtr<GilBook>,
    /// Book for threads that found none free; taken when the GIL's book opens.
    pub unmeasured: AtomicU32,
    locked: UnsafeCell<Locked>,
}

// SAFETY: the pointers are to books that are never unmapped; `locked` is reached only through `locked()` and `event()`, whose callers hold the mutex.
unsafe impl Sync for Gil {}

impl Gil {
    const fn new() -> Self {
        Self {
            life: AtomicU32::new(life::UNUSED),
            serial: AtomicU32::new(0),
            cond: AtomicUsize::new(0),
            switch_cond: AtomicUsize::new(0),
            interpreter: AtomicUsize::new(0),
            interpreter_id: AtomicI64::new(-1),
            sequence: AtomicU32::new(0),
            readers: AtomicU32::new(0),
            book: AtomicPtr::new(std::ptr::null_mut()),
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

    #[inline(always)]
    fn role_of(&self, address: usize) -> Option<Role> {
        if self.cond.load(Relaxed) == address {
            Some(Role::Cond)
        } else if self.switch_cond.load(Relaxed) == address {
            Some(Role::SwitchCond)
        } else {
            None
        }
    }

    /// Runs an event's changes so that a snapshot sees all of them or none. For hooks.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    #[inline(always)]
    pub unsafe fn event<T>(&self, change: impl FnOnce(&mut Locked) -> T) -> T {
        if self.readers.load(Relaxed) != 0 {
            self.pause_for_readers();
        }
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        // SAFETY: the caller's promise.
        let result = change(unsafe { self.locked() });
        self.sequence.store(sequence.wrapping_add(2), Release);
        result
    }

    /// A short, bounded spin: long enough to copy the rows of hundreds of threads, too short to
    /// matter if the reader has lost its core.
    #[cold]
    fn pause_for_readers(&self) {
        for _ in 0..2_000 {
            if self.readers.load(Relaxed) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Calls `copy` until it ran without an event of this GIL in between. Outside the hooks.
    pub fn read<T>(&self, mut copy: impl FnMut() -> T) -> T {
        const TRIES_WITHOUT_ASKING: u32 = 8;
        const TRIES: u32 = 100_000;
        let mut asked = false;
        let mut tries = 0;
        loop {
            let before = self.sequence.load(Acquire);
            let copied = copy();
            fence(Acquire);
            let same = before % 2 == 0 && self.sequence.load(Relaxed) == before;
            tries += 1;
            if tries == TRIES_WITHOUT_ASKING && !same {
                self.readers.fetch_add(1, Relaxed);
                asked = true;
            }
            if same || tries == TRIES {
                if asked {
                    self.readers.fetch_sub(1, Relaxed);
                }
                return copied;
            }
        }
    }

    /// Waits for an event under way to end. After `life` was changed and all threads were made to see
    /// it, no event changes the books any more.
    fn settle(&self) {
        for _ in 0..100_000 {
            if self.sequence.load(Acquire) % 2 == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    pub fn index(&'static self) -> usize {
        (std::ptr::from_ref(self) as usize - GILS_OF_PROCESS.as_ptr() as usize) / size_of::<Gil>()
    }

    /// The book of an open or closed GIL.
    #[inline]
    pub fn book(&'static self) -> &'static GilBook {
        // SAFETY: `open` stored a book of a slot that is never unmapped, and a GIL has events and is
        // closed only after it was opened.
        unsafe { &*self.book.load(Relaxed) }
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
        let book = &slot.gils[self.index()];
        self.book.store(std::ptr::from_ref(book).cast_mut(), Relaxed);
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
    pub unsafe fn reopen(&'static self, now_ns: u64) {
        // SAFETY: the caller's promise.
        *unsafe { self.locked() } = Locked::new();
        self.book().open(now_ns, false);
    }
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

/// The GILs of this process; entry i keeps its books in book i of the slot. Entry 0 is the main
/// interpreter's. Entries are made under `CHANGING`.
static GILS_OF_PROCESS: [Gil; GILS] = [const { Gil::new() }; GILS];
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);
/// Entries from 0 to here have been in use; what a search has to look at.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(1);
/// Held by the one thread that adds or removes an entry: 0 nobody, 1 somebody. Taken only where no
/// GIL mutex is held by the taker, and for a few loads and stores.
static CHANGING: AtomicU32 = AtomicU32::new(0);

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

/// The GIL whose `cond` or `switch_cond` is at `address`.
#[inline(always)]
pub fn find(address: usize) -> Option<(&'static Gil, Role)> {
    main().role_of(address).map(|role| (main(), role)).or_else(|| find_own_gil(address))
}

#[cold]
fn find_own_gil(address: usize) -> Option<(&'static Gil, Role)> {
    all()[1..].iter().find_map(|gil| gil.role_of(address).map(|role| (gil, role)))
}

/// What tells threads apart, for as long as they run: the thread pointer, as `pthread_self`.
#[inline(always)]
pub fn this_thread() -> usize {
    let thread: usize;
    // SAFETY: reads the thread pointer, which glibc sets for every thread.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, nomem));
    }
    thread
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
        Addresses {
            cond,
            switch_cond: cond + self.switch_cond_after_cond,
        }
    }
}

/// Adds the GIL whose `cond` is at `cond`, as `KNOWN`, unless it is there.
pub fn add(cond: usize, layout: Layout) -> Option<&'static Gil> {
    let _changing = Changing::begin();
    if let Some((gil, _)) = find(cond) {
        return Some(gil);
    }
    let with = |wanted: u32| {
        let entries = (1..ENDED_SUM).filter(move |&i| GILS_OF_PROCESS[i].life.load(Relaxed) == wanted);
        entries.min_by_key(|&i| GILS_OF_PROCESS[i].serial.load(Relaxed))
    };
    // Full of open GILs: the oldest has most likely gone with its interpreter, which only a snapshot
    // finds out. If it has not, the next snapshot makes it known again.
    let index = with(life::UNUSED).or_else(|| with(life::CLOSED)).or_else(|| with(life::OPEN))?;
    let gil = &GILS_OF_PROCESS[index];
    if gil.life.load(Relaxed) == life::OPEN {
        close_gone(gil, super::ledger::slot()?);
    }
    if gil.life.load(Relaxed) == life::CLOSED {
        super::threads::fold_gil(index);
    }
    gil.serial.store(0, Relaxed);
    let interpreter = match layout.cond_after_interpreter {
        0 => 0,
        distance => cond - distance,
    };
    gil.interpreter.store(interpreter, Relaxed);
    gil.interpreter_id.store(super::install::interpreter_id(interpreter), Relaxed);
    gil.life.store(life::KNOWN, Relaxed);
    gil.switch_cond.store(cond + layout.switch_cond_after_cond, Relaxed);
    gil.cond.store(cond, Release);
    // No GIL mutex is held here, and the thread that makes the interpreter needs books for it.
    super::ledger::slot().inspect(|slot| slab::prepare(slot));
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
    barrier_in_all_threads();
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
        super::threads::end_books_of(gil.index(), slot);
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
    super::account::close_moment(book, now_ns);
    book.closed_ns.store(now_ns.max(1), Relaxed);
    book.state.store(state::ENDED, Release);
}

/// Compares with the interpreters that exist (their addresses and ids): closes the own GILs of those
/// that ended, and makes known those that were there before the meter. The caller holds the main GIL.
pub fn match_interpreters(existing: &[(usize, i64)], slot: &'static Slot) {
    let layout = super::learning::layout();
    if layout.cond_after_interpreter == 0 {
        return;
    }
    for gil in all()[1..].iter().filter(|gil| gil.cond.load(Relaxed) != 0) {
        let here = (gil.interpreter.load(Relaxed), gil.interpreter_id.load(Relaxed));
        if !existing.contains(&here) {
            close_gone(gil, slot);
        }
    }
    for (interpreter, _) in existing.iter().filter(|(_, id)| *id != 0) {
        add(interpreter + layout.cond_after_interpreter, layout);
    }
}

fn barrier_in_all_threads() {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    // SAFETY: the system call has no memory effects but the barrier.
    let done = unsafe {
        libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) == 0
            && libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) == 0
    };
    if !done {
        // Stores become visible by themselves within far less than this.
        std::thread::sleep(std::time::Duration::from_millis(1));
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
    main().sequence.store(0, Relaxed);
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
