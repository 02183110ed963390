//! One GIL while it lives: how it is recognised, its present state, and how its books change and are
//! read.
//!
//! Events run in hooks, with the GIL's own mutex held. Readers come from anywhere and take no lock.

use headway_sched::ThreadId;
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, compiler_fence, fence,
};
use std::time::{Duration, Instant};

use crate::counters::book::{GilBook, Name, ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping::Slot;
use crate::queue::Queue;
use crate::queue::forced_switch::Switch;
use crate::registry::gils;
use crate::registry::unanswered::Unanswered;
use headway_measure::clock::now_ns;

/// Which installation is in force; 0 for none. Grows with each. Written by install, uninstall and
/// fork; read by every hook first.
pub static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Which condition variable of a GIL an address is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Cond,
    SwitchCond,
}

/// The end of a hold that took so long is kept apart, for who watches holds from outside.
pub const LONG_HOLD_NS: u64 = 10_000_000;

/// What the engine knows of a GIL's present state. Guarded by that GIL's own mutex, which CPython
/// holds around every call that the hooks see.
pub struct Locked {
    pub held: bool,
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
    /// When it was made first, and last.
    pub requested_ns: u64,
    pub requested_last_ns: u64,
    /// And whether that was before the switch interval was over: the policy preempts.
    pub requested_early: bool,
    /// What the holder does while it is pending.
    pub unanswered: Unanswered,
    pub queue: Queue,
}

impl Locked {
    const fn new() -> Self {
        Self {
            held: false,
            holder: std::ptr::null(),
            last_holder: u32::MAX,
            switch_number: 0,
            in_timed_wait: 0,
            drop_requested: false,
            requested_ns: 0,
            requested_last_ns: 0,
            requested_early: false,
            unanswered: Unanswered::new(),
            queue: Queue::new(),
        }
    }

    /// The present holder, as its scheduler knows it.
    pub fn holder_id(&self) -> Option<ThreadId> {
        self.held.then_some(self.last_holder)
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
    /// See `names`. Written under the registry lock, and where the entry is made.
    pub name: Name,
    /// Odd while an event changes the books of this GIL, so that a snapshot can tell whether what it
    /// copied is of one moment. Writer: the event, with the GIL's mutex held.
    sequence: AtomicU32,
    /// Snapshots that could not get a copy of one moment and ask events to pause. Writers: snapshots.
    readers: AtomicU32,
    /// The latest moment that a copy of the books shows. An event that the copy does not show has no earlier
    /// time, so that sums of time only grow from one copy to the next. Writers: readers of the books;
    /// reader: the event, between its two changes of `sequence`; see `moment_ns`.
    shown_ns: AtomicU64,
    /// Where this opening's books are kept. Written when the book opens.
    book: AtomicPtr<GilBook>,
    /// Book for threads that found none free; taken when the GIL's book opens.
    pub unmeasured: AtomicU32,
    /// For those that are forced to switch, while a policy schedules.
    pub switch: Switch,
    /// [`this_thread`] of the holder; 0 while nobody holds. Writers: the take and the drop, with the GIL's
    /// mutex held. Readers: those, and without the mutex a thread that asks whether it holds the GIL
    /// itself: it reads its own value only if its own last store of this field was that of a take.
    pub holder_thread: AtomicUsize,
    /// Threads that found the GIL's mutex locked and wait for it to take the GIL. Writers: these
    /// threads. Reader: the drop, with the mutex held. Relaxed: the mutex orders what depends on it.
    pub mutex_waiters: AtomicU32,
    /// When the thread that locked the GIL's mutex last began to wait for it; 0 if it did not wait, or does
    /// not take the GIL. Writers and readers: threads that hold the mutex, which orders them.
    pub mutex_wait_began_ns: AtomicU64,
    /// When the last hold that was long began, and ended. Written by the event that ends it, and read
    /// as the books are.
    pub last_long_hold_ns: [AtomicU64; 2],
    /// The CPU time that was used in it while a drop request was pending; 0 if that is not known. Likewise.
    pub last_long_hold_cpu_ns: AtomicU64,
    locked: UnsafeCell<Locked>,
}

// SAFETY: the pointers are to books that are never unmapped; `locked` is reached only through `locked()` and `event()`, whose callers hold the mutex.
unsafe impl Sync for Gil {}

impl Gil {
    pub const fn new() -> Self {
        Self {
            life: AtomicU32::new(life::UNUSED),
            serial: AtomicU32::new(0),
            cond: AtomicUsize::new(0),
            switch_cond: AtomicUsize::new(0),
            interpreter: AtomicUsize::new(0),
            interpreter_id: AtomicI64::new(-1),
            name: Name::new(),
            sequence: AtomicU32::new(0),
            readers: AtomicU32::new(0),
            shown_ns: AtomicU64::new(0),
            book: AtomicPtr::new(std::ptr::null_mut()),
            unmeasured: AtomicU32::new(u32::MAX),
            switch: Switch::new(),
            holder_thread: AtomicUsize::new(0),
            mutex_waiters: AtomicU32::new(0),
            mutex_wait_began_ns: AtomicU64::new(0),
            last_long_hold_ns: [const { AtomicU64::new(0) }; 2],
            last_long_hold_cpu_ns: AtomicU64::new(0),
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
    pub fn role_of(&self, address: usize) -> Option<Role> {
        if self.cond.load(Relaxed) == address {
            Some(Role::Cond)
        } else if self.switch_cond.load(Relaxed) == address {
            Some(Role::SwitchCond)
        } else {
            None
        }
    }

    /// Runs an event's changes so that a snapshot sees all of them or none; `None`, with nothing
    /// changed, if this GIL's books are not open under the installation `epoch`. For hooks.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    #[inline(always)]
    pub unsafe fn event<T>(&self, epoch: u32, change: impl FnOnce(&mut Locked) -> T) -> Option<T> {
        if self.readers.load(Relaxed) != 0 {
            self.pause_for_readers();
        }
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        // Against `close_all`, which writes `life`, makes all threads see it, and then waits for an even
        // sequence: the other half of its barrier need only keep the compiler from reordering.
        compiler_fence(SeqCst);
        fence(Release);
        let current = self.life.load(Relaxed) == life::OPEN && EPOCH.load(Relaxed) == epoch;
        // SAFETY: the caller's promise.
        let result = current.then(|| change(unsafe { self.locked() }));
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

    /// Odd while an event is under way; another number after each.
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Acquire)
    }

    /// Calls `copy` until it ran without an event of this GIL in between. Outside the hooks.
    pub fn read<T>(&self, mut copy: impl FnMut() -> T) -> T {
        const TRIES_WITHOUT_ASKING: u32 = 8;
        const TRIES: u32 = 100_000;
        const TRIES_BETWEEN_YIELDS: u32 = 64;
        let mut asked = false;
        let mut tries = 0;
        loop {
            let before = self.sequence();
            let copied = copy();
            fence(Acquire);
            let same = before % 2 == 0 && self.sequence.load(Relaxed) == before;
            tries += 1;
            if tries == TRIES_WITHOUT_ASKING && !same {
                self.readers.fetch_add(1, Relaxed);
                asked = true;
            }
            if tries % TRIES_BETWEEN_YIELDS == 0 {
                // An event under way may need this very core to end.
                std::thread::yield_now();
            }
            if same || tries == TRIES {
                if asked {
                    self.readers.fetch_sub(1, Relaxed);
                }
                return copied;
            }
        }
    }

    /// The present, for a copy that `read` makes.
    ///
    /// The event writes `sequence` and then reads `shown_ns`; the reader does the opposite, with a barrier in
    /// all threads in between. So either `read` sees the event and copies again, or the event sees the moment.
    pub fn moment_ns(&self) -> u64 {
        let now_ns = now_ns();
        self.shown_ns.fetch_max(now_ns, SeqCst);
        gils::memory_barrier_in_all_threads();
        now_ns
    }

    /// The time of an event whose clock was read at `now_ns`. Only inside an event.
    #[inline(always)]
    pub fn time_of_event_ns(&self, now_ns: u64) -> u64 {
        now_ns.max(self.shown_ns.load(Relaxed))
    }

    /// In a forked child, where no event and no reader is under way.
    pub fn rest(&self) {
        self.switch.reset();
        self.mutex_waiters.store(0, Relaxed);
        self.mutex_wait_began_ns.store(0, Relaxed);
        self.sequence.store(0, Relaxed);
        self.readers.store(0, Relaxed);
    }

    /// Waits for an event under way to end. After `life` was changed and all threads were made to see
    /// it, no event changes the books any more.
    pub fn settle(&self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let began = Instant::now();
        while self.sequence() % 2 == 1 && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }

    pub fn index(&'static self) -> usize {
        gils::index_of(self)
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
        self.holder_thread.store(0, Relaxed);
        self.mutex_wait_began_ns.store(0, Relaxed);
        self.switch.set_in_use(false);
        self.serial.store(gils::next_serial(), Relaxed);
        let book = &slot.gils[self.index()];
        self.book.store(std::ptr::from_ref(book).cast_mut(), Relaxed);
        book.interpreter.store(self.interpreter_id.load(Relaxed), Relaxed);
        book.open(now_ns, false);
        book.name.copy_from(&self.name);
        crate::trace::name_gil(self);
        let unmeasured = free_list::pop().inspect(|&index| {
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
        self.holder_thread.store(0, Relaxed);
        self.mutex_wait_began_ns.store(0, Relaxed);
        self.switch.set_in_use(false);
        self.book().open(now_ns, false);
        self.book().name.copy_from(&self.name);
    }
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
