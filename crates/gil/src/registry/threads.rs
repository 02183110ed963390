//! The table of threads that hooks have seen.
//!
//! A thread finds its entry through a pthread key. The key must be one of those that every thread
//! has memory for, because `pthread_setspecific` allocates for higher keys, and hooks must not.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::counters::{Name, ROWS, ThreadCounters};
use crate::registry_lock::RegistryGuard;
use headway_threads::c_library::KEYS_WITHOUT_ALLOCATION;

/// The number of GILs that one thread can use in turn without losing its links.
const LINKS: usize = 6;
/// The number of names that are stored for threads that no hook has seen.
const UNSEEN_LIMIT: usize = 256;

/// A link from a thread to its counters for one GIL. Writer and reader: the thread. Relaxed.
pub struct Link {
    /// The opening of the GIL, `Gil::serial`; 0 for none. Also written by a forked child.
    pub serial: AtomicU32,
    pub row: AtomicU32,
    counters: AtomicPtr<ThreadCounters>,
}

impl Link {
    const fn new() -> Self {
        Self {
            serial: AtomicU32::new(0),
            row: AtomicU32::new(0),
            counters: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub fn set(&self, serial: u32, row: u32, counters: &'static ThreadCounters) {
        self.row.store(row, Relaxed);
        self.counters.store(std::ptr::from_ref(counters).cast_mut(), Relaxed);
        self.serial.store(serial, Relaxed);
    }

    /// The counters of a link whose serial is not 0.
    #[inline]
    pub fn counters(&self) -> &'static ThreadCounters {
        // SAFETY: `set` stored counters that are never unmapped before it stored the serial.
        unsafe { &*self.counters.load(Relaxed) }
    }
}

/// One thread.
pub struct Thread {
    /// The kernel's thread ID; 0 while the entry is free. Taken by compare-and-swap, freed by the
    /// thread with release.
    pub native_id: AtomicU32,
    /// 1 while the entry only stores a name for a thread that no hook has seen. Set under the
    /// registry lock, cleared by the thread by compare-and-swap.
    unseen: AtomicU32,
    pub links: [Link; LINKS],
    /// The number of links that were replaced, to replace the next one in turn. Writer and reader:
    /// the thread.
    replaced_links: AtomicU32,
    /// The slice that a policy gives the thread; 0 for one switch interval of the GIL. Writer and
    /// reader: the thread.
    switch_interval_ns: AtomicU64,
    /// The index of the counters of the thread's event loop plus one; 0 if it runs none. Writer and
    /// reader: the thread. Also written by a forked child, at an install, and where it ends.
    pub event_loop: AtomicU32,
    /// Writers: holders of the registry lock. Reader: the thread, in its first event on a GIL, and
    /// holders of the lock.
    pub name: Name,
}

impl Thread {
    /// Returns whether a link was replaced, so that the thread may have rows without a link.
    pub fn has_replaced_links(&self) -> bool {
        self.replaced_links.load(Relaxed) != 0
    }

    /// The link to replace next when all are in use.
    pub fn next_link_to_replace(&self) -> &Link {
        let turn = self.replaced_links.load(Relaxed);
        self.replaced_links.store(turn.wrapping_add(1), Relaxed);
        &self.links[turn as usize % LINKS]
    }

    pub fn forget_replaced_links(&self) {
        self.replaced_links.store(0, Relaxed);
    }

    /// Frees the entry.
    pub fn free(&self) {
        self.forget_thread();
        TAKEN.fetch_sub(1, Relaxed);
    }

    /// Makes the entry one that any thread may take.
    fn forget_thread(&self) {
        self.name.set(b"");
        self.replaced_links.store(0, Relaxed);
        self.event_loop.store(0, Relaxed);
        self.links.iter().for_each(|link| link.serial.store(0, Relaxed));
        self.native_id.store(0, Release);
    }
}

static THREADS: [Thread; ROWS] = [const {
    Thread {
        native_id: AtomicU32::new(0),
        unseen: AtomicU32::new(0),
        links: [const { Link::new() }; LINKS],
        replaced_links: AtomicU32::new(0),
        switch_interval_ns: AtomicU64::new(0),
        event_loop: AtomicU32::new(0),
        name: Name::new(),
    }
}; ROWS];
/// The entry at which the search for a free one begins. Any value is valid. Writers: threads that
/// take an entry.
static SEARCH_FROM: AtomicUsize = AtomicUsize::new(0);
/// The number of entries that are taken. Writers: threads that take or free one, by atomic
/// addition.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// The number of entries with `unseen` set. Writers: as of `unseen`, by atomic addition.
static UNSEEN: AtomicUsize = AtomicUsize::new(0);
/// The pthread key plus one; 0 before the first install. Writer: install. Readers: hooks, relaxed.
/// Never deleted.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Creates the key. `destructor` gets the entry of each thread that ends. Returns false if the
/// process has used up the keys that need no allocation.
pub fn create_key(destructor: unsafe extern "C" fn(*mut c_void)) -> bool {
    if KEY.load(Relaxed) != 0 {
        return true;
    }
    let mut key = 0;
    // SAFETY: `key` is a valid place. The destructor stays loaded, because extension modules are
    // never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(destructor)) } != 0 {
        return false;
    }
    if key >= KEYS_WITHOUT_ALLOCATION {
        // SAFETY: the key was created above and is used nowhere.
        unsafe { libc::pthread_key_delete(key) };
        return false;
    }
    KEY.store(key + 1, Relaxed);
    true
}

/// The entry of the calling thread. For hooks.
#[inline]
pub fn current() -> Option<&'static Thread> {
    let key = KEY.load(Relaxed);
    if key == 0 {
        return None;
    }
    // SAFETY: the key exists; its values are null or entries of THREADS.
    unsafe { libc::pthread_getspecific(key - 1).cast::<Thread>().as_ref() }
}

/// The entry of the calling thread, which gets one if it has none. For hooks.
pub fn current_or_new() -> Option<&'static Thread> {
    current().or_else(enter)
}

fn enter() -> Option<&'static Thread> {
    let key = KEY.load(Relaxed).checked_sub(1)?;
    // SAFETY: gettid has no preconditions.
    let native_id = unsafe { libc::gettid() } as u32;
    let thread = stored_for(native_id).or_else(|| take_entry(native_id))?;
    // SAFETY: the key exists and needs no allocation: this stores into memory that the thread has.
    unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(thread).cast()) };
    Some(thread)
}

/// Takes a free entry for the thread with this kernel thread ID.
fn take_entry(native_id: u32) -> Option<&'static Thread> {
    if TAKEN.load(Relaxed) >= ROWS {
        return None;
    }
    let from = SEARCH_FROM.load(Relaxed).min(ROWS);
    let entries = THREADS.iter().enumerate();
    entries.clone().skip(from).chain(entries.take(from)).find_map(|(index, thread)| {
        let taken = thread.native_id.compare_exchange(0, native_id, AcqRel, Relaxed).is_ok();
        taken.then(|| {
            SEARCH_FROM.store(index + 1, Relaxed);
            thread.switch_interval_ns.store(0, Relaxed);
            TAKEN.fetch_add(1, Relaxed);
            thread
        })
    })
}

/// An entry as that of another thread.
#[cfg(test)]
pub fn take_entry_for_test() -> &'static Thread {
    take_entry(1 << 30).unwrap()
}

/// The entry that was taken to store a name for the calling thread.
fn stored_for(native_id: u32) -> Option<&'static Thread> {
    if UNSEEN.load(Relaxed) == 0 {
        return None;
    }
    let stored = THREADS.iter().find(|thread| {
        thread.unseen.load(Relaxed) == 1 && thread.native_id.load(Relaxed) == native_id
    })?;
    stored.unseen.compare_exchange(1, 0, AcqRel, Relaxed).ok()?;
    UNSEEN.fetch_sub(1, Relaxed);
    Some(stored)
}

/// The entry of a thread of this process.
pub fn with_native_id(native_id: u32, _: &RegistryGuard) -> Option<&'static Thread> {
    THREADS.iter().find(|thread| thread.native_id.load(Relaxed) == native_id)
}

/// Stores the name of a thread that no hook has seen, if there is room.
pub fn store_name(native_id: u32, name: &[u8], _: &RegistryGuard) {
    if UNSEEN.load(Relaxed) < UNSEEN_LIMIT {
        if let Some(thread) = take_entry(native_id) {
            thread.name.set(name);
            thread.unseen.store(1, Release);
            UNSEEN.fetch_add(1, Relaxed);
        }
    }
}

/// The calling thread's own switch interval, or 0. For hooks.
#[inline]
pub fn switch_interval_of_this_thread_ns() -> u64 {
    current().map_or(0, |thread| thread.switch_interval_ns.load(Relaxed))
}

/// Gives the calling thread a switch interval of its own, or, with 0, none. Without effect before
/// the first install, or if the table is full. For hooks.
pub fn set_switch_interval_of_this_thread_ns(interval_ns: u64) {
    let thread = if interval_ns == 0 { current() } else { current_or_new() };
    if let Some(thread) = thread {
        thread.switch_interval_ns.store(interval_ns, Relaxed);
    }
}

/// Clears the links of all threads to counters, in a forked child or at a new install. No other
/// thread may run a hook of a GIL meanwhile; a wait for events finds another installation.
pub fn forget_links() {
    for thread in THREADS.iter().filter(|thread| thread.native_id.load(Relaxed) != 0) {
        thread.links.iter().for_each(|link| link.serial.store(0, Relaxed));
        thread.event_loop.store(0, Relaxed);
    }
}

/// Frees the entries of other threads in a forked child, and updates the ID of this thread.
pub fn keep_this_thread_only() {
    let this = current();
    for thread in THREADS.iter().filter(|thread| thread.native_id.load(Relaxed) != 0) {
        thread.unseen.store(0, Relaxed);
        if this.is_some_and(|this| std::ptr::eq(this, thread)) {
            // SAFETY: gettid has no preconditions.
            thread.native_id.store(unsafe { libc::gettid() as u32 }, Relaxed);
        } else {
            thread.forget_thread();
        }
    }
    UNSEEN.store(0, Relaxed);
    TAKEN.store(usize::from(this.is_some()), Relaxed);
}

/// Identifies the calling thread as long as it runs: the thread pointer, like `pthread_self`.
#[inline(always)]
pub fn this_thread() -> usize {
    let thread: usize;
    // SAFETY: reads the thread pointer, which the C library sets for every thread.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, nomem));
    }
    thread
}
