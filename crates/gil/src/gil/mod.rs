//! One GIL: its state, how an event changes it, and how readers get a consistent copy.
//!
//! - [`Gil::event`]: every change; [`Gil::read`]: a consistent copy.
//! - [`locked`]: the state that the GIL's mutex guards; [`unanswered`]: what a holder does while a
//!   drop request is pending.
//! - [`hold_time`]: the time of holds by kind; [`collection`]: passes of the garbage collector.
//! - [`addresses`]: where the parts of a GIL lie in CPython's memory.
//!
//! Events run in hooks, with the GIL's mutex held. Readers are in any thread and take no lock.

pub mod addresses;
pub mod collection;
pub mod hold_time;
pub mod locked;
pub mod unanswered;

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, compiler_fence, fence,
};
use std::time::{Duration, Instant};

use headway_measure::clock::now_ns;
use headway_measure::tsc::Reading;

use addresses::Addresses;
use collection::Collected;
use locked::Locked;

use crate::counters::{GilCounters, Name, ProcessCounters, free_list, state};
use crate::queue::forced_switch::ForcedSwitch;
use crate::{installation, membarrier};

/// The condition variable of a GIL that an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Cond,
    SwitchCond,
}

/// The end of a hold of this length is stored, for a watchdog that observes holds.
pub const LONG_HOLD_NS: u64 = 10_000_000;

/// The life of a GIL.
///
/// | value | meaning | events count |
/// |---|---|---|
/// | `UNUSED` | the entry names no GIL | no |
/// | `KNOWN` | its addresses are known, not whether it is held | the first take or drop opens it |
/// | `OPEN` | its counters are open | yes |
/// | `CLOSED` | it was destroyed, or the meter was removed | no |
pub mod life {
    pub const UNUSED: u32 = 0;
    pub const KNOWN: u32 = 1;
    pub const OPEN: u32 = 2;
    pub const CLOSED: u32 = 3;
}

/// An opening of a GIL's counters, as a hook finds it when it begins. Another GIL may get the entry
/// before the hook ends: where an interpreter ends while a thread waits for its GIL.
#[derive(Clone, Copy)]
pub struct Opening {
    epoch: u32,
    serial: u32,
}

/// The serial number of the next opening. Writers: openings, by atomic addition.
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(1);

fn next_serial() -> u32 {
    NEXT_SERIAL.fetch_add(1, Relaxed)
}

/// One GIL of this process.
///
/// A cache line that the last event has written on another core is slow to reach. So what every
/// hook reads is in the first line, and what each event writes follows the forced-switch wait.
#[repr(C, align(64))]
pub struct Gil {
    /// Address of the condition variable that waiters wait on; 0 for none. Writers: the thread that
    /// adds the GIL, with release, and the one that closes it. Readers: every hook, relaxed.
    pub cond: AtomicUsize,
    /// Address of the condition variable that a forced switch waits on. Written before `cond`.
    pub switch_cond: AtomicUsize,
    /// See [`life`]. Writers: an event of this GIL, the thread that adds the GIL, and the one that
    /// closes it. Read by events without a fence; see [`Gil::event`].
    pub life: AtomicU32,
    /// The number of the opening, so that a thread does not follow a link to counters of an earlier
    /// one. Writer: the opening. Relaxed.
    pub serial: AtomicU32,
    /// The counters of this opening. Writer: the opening. Relaxed: `life` orders it, which whoever
    /// does not hold the GIL's mutex reads with acquire.
    counters: AtomicPtr<GilCounters>,
    /// The latest moment that a copy of the counters shows. An event that the copy does not show
    /// has no earlier time, so that sums of time only grow from one copy to the next. Writers:
    /// readers of the counters. Reader: the event, between its two changes of `sequence`. See
    /// `moment_ns`.
    shown_ns: AtomicU64,
    /// Readers that got no consistent copy and ask events to pause. Writers: these readers, by
    /// atomic addition. Reader: the event, relaxed.
    readers: AtomicU32,
    /// The row for threads that found no free row, or `u32::MAX`. Writer: the opening. Relaxed.
    pub unmeasured: AtomicU32,
    /// The index in the table and of the counters. Never changes.
    pub index: usize,
    /// The wait of threads that are forced to switch, while a policy schedules.
    pub forced_switch: ForcedSwitch,
    /// Odd while an event changes the counters of this GIL, so that a reader knows whether its copy
    /// is consistent. Writer: the event, with the GIL's mutex held. See [`Gil::event`],
    /// [`Gil::read`].
    sequence: AtomicU32,
    /// `threads::this_thread` of the holder; 0 while no thread holds. Writers: the take and the
    /// drop, with the GIL's mutex held. Readers: these, and without the mutex a thread that asks
    /// whether it is the holder: it reads its own value only if its own last store of this field
    /// was a take.
    pub holder_thread: AtomicUsize,
    /// When the thread that locked the GIL's mutex last began to wait for it; 0 if it did not wait,
    /// or does not take the GIL. Writers and readers: holders of the mutex, which orders them.
    pub mutex_wait_began_ns: AtomicU64,
    locked: UnsafeCell<Locked>,
    /// When the last long hold began, and when it ended. Writer: the event that ends it. Readers:
    /// as those of the counters.
    pub last_long_hold_ns: [AtomicU64; 2],
    /// The CPU time that the holder used in that hold while a drop request was pending; 0 if it is
    /// not known. Writer and readers: as `last_long_hold_ns`.
    pub last_long_hold_cpu_ns: AtomicU64,
    /// The passes of the garbage collector.
    pub collected: Collected,
    /// Address of the `PyInterpreterState` that owns the GIL; 0 if it is not known.
    pub interpreter: AtomicUsize,
    /// The ID of that interpreter; -1 if it is not known.
    pub interpreter_id: AtomicI64,
    /// See `names`. Writers: holders of the registry lock, and the thread that adds the GIL.
    pub name: Name,
    /// Threads that found the GIL's mutex locked and wait for it to take the GIL. Writers: these
    /// threads, by atomic addition. Reader: the drop, with the mutex held. Relaxed: the mutex
    /// orders what depends on it.
    pub mutex_waiters: AtomicU32,
}

const _: () = assert!(std::mem::offset_of!(Gil, sequence) == 128);

// SAFETY: the pointers point to counters that are never unmapped. `locked` is accessed only through
// `locked()` and `event()`, whose callers hold the mutex.
unsafe impl Sync for Gil {}

impl Gil {
    pub const fn new(index: usize) -> Self {
        Self {
            cond: AtomicUsize::new(0),
            switch_cond: AtomicUsize::new(0),
            life: AtomicU32::new(life::UNUSED),
            serial: AtomicU32::new(0),
            counters: AtomicPtr::new(std::ptr::null_mut()),
            shown_ns: AtomicU64::new(0),
            readers: AtomicU32::new(0),
            unmeasured: AtomicU32::new(u32::MAX),
            index,
            forced_switch: ForcedSwitch::new(),
            sequence: AtomicU32::new(0),
            holder_thread: AtomicUsize::new(0),
            mutex_wait_began_ns: AtomicU64::new(0),
            locked: UnsafeCell::new(Locked::new()),
            last_long_hold_ns: [const { AtomicU64::new(0) }; 2],
            last_long_hold_cpu_ns: AtomicU64::new(0),
            collected: Collected::new(),
            interpreter: AtomicUsize::new(0),
            interpreter_id: AtomicI64::new(-1),
            name: Name::new(),
            mutex_waiters: AtomicU32::new(0),
        }
    }

    /// # Safety
    /// The caller holds this GIL's mutex, or is the only thread that can reach the GIL, for as long
    /// as the reference lives.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub unsafe fn locked(&self) -> &mut Locked {
        // SAFETY: the mutex is held, as the caller promises, so this is the only reference.
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

    /// The present opening, under the installation `epoch`.
    #[inline(always)]
    pub fn opening(&self, epoch: u32) -> Opening {
        Opening { epoch, serial: self.serial.load(Relaxed) }
    }

    /// Whether the counters are still open as they were at the beginning of the hook.
    #[inline(always)]
    pub fn is_open_as(&self, opening: Opening) -> bool {
        self.life.load(Relaxed) == life::OPEN
            && self.serial.load(Relaxed) == opening.serial
            && installation::is_in_force(opening.epoch)
    }

    /// Whether this is the own GIL of the interpreter with this address and ID.
    pub fn is_owned_by(&self, interpreter: usize, id: i64) -> bool {
        self.cond.load(Relaxed) != 0
            && self.interpreter.load(Relaxed) == interpreter
            && self.interpreter_id.load(Relaxed) == id
    }

    /// Runs the changes of an event so that a reader sees all of them or none. Returns `None`,
    /// without a change, if this GIL's counters are not open as in `opening`. For hooks.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    #[inline(always)]
    pub unsafe fn event<T>(
        &self,
        opening: Opening,
        change: impl FnOnce(&mut Locked) -> T,
    ) -> Option<T> {
        if self.readers.load(Relaxed) != 0 {
            self.pause_for_readers();
        }
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        // `gils::close_all` writes `life`, runs a barrier in all threads, and then waits for an
        // even sequence. This half of the barrier only keeps the compiler from reordering.
        compiler_fence(SeqCst);
        fence(Release);
        let current = self.is_open_as(opening);
        // SAFETY: the mutex is held, as the caller promises.
        let result = current.then(|| change(unsafe { self.locked() }));
        self.sequence.store(sequence.wrapping_add(2), Release);
        result
    }

    /// Spins for a bounded time: long enough to copy the rows of hundreds of threads, short enough
    /// not to matter if the reader has lost its core.
    #[cold]
    fn pause_for_readers(&self) {
        for _ in 0..2_000 {
            if self.readers.load(Relaxed) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Odd during an event, and different after each.
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Acquire)
    }

    /// Calls `copy` until no event of this GIL ran in between. Not for hooks.
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
                // A running event may need this core to end.
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

    /// The present time, for a copy in `read`.
    ///
    /// An event writes `sequence` and then reads `shown_ns`. The reader does the opposite, with a
    /// barrier in all threads in between. So either `read` sees the event and copies again, or the
    /// event sees the moment.
    pub fn moment_ns(&self) -> u64 {
        let now_ns = now_ns();
        self.shown_ns.fetch_max(now_ns, SeqCst);
        membarrier::in_all_threads();
        now_ns
    }

    /// The time of an event that read CLOCK_MONOTONIC at `now_ns`. It is not earlier than a moment
    /// that was shown, nor than the event before: some events read the time-stamp counter, and
    /// others the clock. Only inside the event.
    #[inline(always)]
    pub fn time_of_event_ns(&self, locked: &mut Locked, now_ns: u64) -> u64 {
        locked.latest_ns = now_ns.max(locked.latest_ns).max(self.shown_ns.load(Relaxed));
        locked.latest_ns
    }

    /// As `time_of_event_ns`, for an event that read the time-stamp counter.
    #[inline(always)]
    pub fn time_of_reading_ns(&self, locked: &mut Locked, reading: Reading) -> u64 {
        let now_ns = locked.conversion.ns(reading);
        self.time_of_event_ns(locked, now_ns)
    }

    /// Forgets all threads in a forked child, in which no event and no reader is running.
    pub fn forget_threads(&self) {
        self.forced_switch.reset();
        self.collected.forget_thread();
        self.mutex_waiters.store(0, Relaxed);
        self.mutex_wait_began_ns.store(0, Relaxed);
        self.shown_ns.store(0, Relaxed);
        self.sequence.store(0, Relaxed);
        self.readers.store(0, Relaxed);
    }

    /// Waits until a running event has ended. If all threads have seen a change of `life`, no event
    /// changes the counters after that.
    pub fn wait_for_event(&self) {
        const LIMIT: Duration = Duration::from_secs(5);
        let began = Instant::now();
        while self.sequence() % 2 == 1 && began.elapsed() < LIMIT {
            std::thread::yield_now();
        }
    }

    /// The counters of an open or closed GIL.
    #[inline]
    pub fn counters(&'static self) -> &'static GilCounters {
        // SAFETY: a GIL has events and is closed only after `open`, which stored counters that are
        // never unmapped.
        unsafe { &*self.counters.load(Relaxed) }
    }

    /// Where the GIL is.
    #[inline(always)]
    pub fn addresses(&self) -> Addresses {
        Addresses::of_cond(self.cond.load(Relaxed))
    }

    /// Opens the GIL: new state, a new serial, empty counters. It is free.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    pub unsafe fn open(&'static self, process: &'static ProcessCounters, now_ns: u64) {
        // SAFETY: as for `locked()`, which the caller promises.
        *unsafe { self.locked() } = Locked { latest_ns: now_ns, ..Locked::new() };
        self.holder_thread.store(0, Relaxed);
        self.collected.forget_thread();
        self.mutex_wait_began_ns.store(0, Relaxed);
        self.forced_switch.set_in_use(false);
        self.serial.store(next_serial(), Relaxed);
        let counters = process.gil(self.index);
        self.counters.store(std::ptr::from_ref(counters).cast_mut(), Relaxed);
        counters.interpreter.store(self.interpreter_id.load(Relaxed), Relaxed);
        counters.open(now_ns, false);
        counters.name.copy_from(&self.name);
        let unmeasured = free_list::pop(process).inspect(|row| {
            let unmeasured = process.thread(*row);
            unmeasured.gil.store(self.index as u32, Relaxed);
            unmeasured.name.set(b"(unmeasured)");
            unmeasured.state.store(state::AGGREGATE, Release);
        });
        self.unmeasured.store(unmeasured.unwrap_or(u32::MAX), Relaxed);
        self.life.store(life::OPEN, Release);
    }

    /// Begins a new opening without counters: for waits without a GIL, which only use the serial.
    pub fn open_without_counters(&self) {
        self.serial.store(next_serial(), Relaxed);
    }

    /// Stores the addresses and makes them known to hooks.
    pub fn know(&self, addresses: Addresses) {
        self.life.store(life::KNOWN, Relaxed);
        self.switch_cond.store(addresses.switch_cond, Relaxed);
        self.cond.store(addresses.cond, Release);
    }

    /// Removes the addresses, which may belong to something else.
    pub fn forget_addresses(&self) {
        self.cond.store(0, Relaxed);
        self.switch_cond.store(0, Relaxed);
    }

    /// Empties the counters of the present opening; the GIL is free. For a forked child, whose GIL
    /// CPython initializes again before anything was counted.
    ///
    /// # Safety
    /// As [`Gil::locked`].
    pub unsafe fn reopen(&'static self, now_ns: u64) {
        // SAFETY: as for `locked()`, which the caller promises.
        *unsafe { self.locked() } = Locked { latest_ns: now_ns, ..Locked::new() };
        self.holder_thread.store(0, Relaxed);
        self.collected.forget_thread();
        self.mutex_wait_began_ns.store(0, Relaxed);
        self.forced_switch.set_in_use(false);
        self.counters().open(now_ns, false);
        self.counters().name.copy_from(&self.name);
    }
}
