//! The threads that hooks have seen: which books are whose, names, and what happens when one ends.
//!
//! A thread finds its entry through a pthread key. The key must be one of the 32 that every
//! thread has room for, because `pthread_setspecific` allocates for higher ones, and hooks must not.
//!
//! What a hook runs with a GIL's mutex held (`of_this_thread`, and what says that it is for hooks)
//! takes no lock. The registry lock is taken by functions of snapshots, by threads that end, and by
//! the hook of `pthread_cond_init`, without a GIL's mutex: see `gils::add`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::aggregation;
use crate::counters;
use crate::counters::book::{NAME_BYTES, Name, ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping::{BOOKS, Slot};
use crate::queue::waiters;
use crate::registry::gil::Gil;
use crate::registry::gils;
use crate::trace;

/// Keys up to here need no allocation (glibc: `PTHREAD_KEY_2NDLEVEL_SIZE`).
const KEYS_WITHOUT_ALLOCATION: libc::pthread_key_t = 32;
/// GILs that one thread can use in turn without losing track of its rows.
const LINKS: usize = 6;
/// Names kept for threads that may never be seen.
const UNSEEN_LIMIT: usize = 256;

/// From a thread to its book of one GIL. Written by the thread itself.
struct Link {
    /// The GIL's opening; see `Gil::serial`. 0 for none.
    serial: AtomicU32,
    index: AtomicU32,
    book: AtomicPtr<ThreadBook>,
}

impl Link {
    const fn new() -> Self {
        Self {
            serial: AtomicU32::new(0),
            index: AtomicU32::new(0),
            book: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The book of a link whose serial is not 0.
    #[inline]
    fn book(&self) -> &'static ThreadBook {
        // SAFETY: stored before the serial, from a slot that is never unmapped.
        unsafe { &*self.book.load(Relaxed) }
    }
}

/// One thread. Written by the thread itself, except the name, which is written under the registry
/// lock.
pub struct Thread {
    /// 0 while the entry is free. Taken by compare-and-swap.
    native_id: AtomicU32,
    /// 1 while the entry only keeps a name for a thread that no hook has seen yet. Set under the
    /// registry lock, cleared by compare-and-swap by the thread.
    unseen: AtomicU32,
    links: [Link; LINKS],
    /// The link to give up next when all are in use.
    next_link: AtomicU32,
    /// The slice that a policy gives it; 0 for one switch interval of the GIL.
    switch_interval_ns: AtomicU64,
    name: Name,
}

static THREADS: [Thread; BOOKS] = [const {
    Thread {
        native_id: AtomicU32::new(0),
        unseen: AtomicU32::new(0),
        links: [const { Link::new() }; LINKS],
        next_link: AtomicU32::new(0),
        switch_interval_ns: AtomicU64::new(0),
        name: Name::new(),
    }
}; BOOKS];
/// Where to look first for a free entry. Any value is right.
static SEARCH_FROM: AtomicUsize = AtomicUsize::new(0);

/// Entries with `unseen` set.
static UNSEEN: AtomicUsize = AtomicUsize::new(0);

/// The pthread key plus one; 0 before the first install. Never deleted.
static KEY: AtomicU32 = AtomicU32::new(0);
/// The registry lock. Guards names, folding and the reuse of books.
///
/// | value | meaning |
/// |---|---|
/// | 0 | free |
/// | 1 | held, nobody waits |
/// | 2 | held, somebody may wait: the holder wakes one |
///
/// A forked child sets it to 0.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// Entries of `THREADS` that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Rows in state `ENDED`.
pub static ENDED: AtomicUsize = AtomicUsize::new(0);

/// Holds the registry lock.
pub struct Registry(());

impl Registry {
    /// Holders never wait for Python: a thread that holds a GIL may wait here.
    pub fn lock() -> Self {
        if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while LOCK.swap(2, Acquire) != 0 {
                futex(libc::FUTEX_WAIT, 2);
            }
        }
        Self(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if LOCK.swap(0, Release) == 2 {
            futex(libc::FUTEX_WAKE, 1);
        }
    }
}

fn futex(operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static; a wait without a timeout returns on a wake, a changed word or a
    // signal, and callers look again.
    unsafe { libc::syscall(libc::SYS_futex, LOCK.as_ptr(), operation, value, 0, 0, 0) };
}

/// Makes the key. `false` if the process has used up the keys that need no allocation.
pub fn prepare_key() -> bool {
    if KEY.load(Relaxed) != 0 {
        return true;
    }
    let mut key = 0;
    // SAFETY: `key` is a valid place; the destructor stays loaded, since extension modules are
    // never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(end_of_thread)) } != 0 {
        return false;
    }
    if key >= KEYS_WITHOUT_ALLOCATION {
        // SAFETY: the key was made above and is used nowhere.
        unsafe { libc::pthread_key_delete(key) };
        return false;
    }
    KEY.store(key + 1, Relaxed);
    true
}

#[inline]
fn current() -> Option<&'static Thread> {
    let key = KEY.load(Relaxed);
    if key == 0 {
        return None;
    }
    // SAFETY: the key exists; its values are null or entries of THREADS.
    unsafe { libc::pthread_getspecific(key - 1).cast::<Thread>().as_ref() }
}

/// The book of the calling thread for `gil`, and its index; a new one at the thread's first
/// event. If there is none to be had, the GIL's book for unmeasured threads. For hooks, with the GIL's
/// mutex held.
#[inline]
pub fn of_this_thread(
    gil: &'static Gil,
    slot: &'static Slot,
) -> Option<(u32, &'static ThreadBook)> {
    if let Some(thread) = current() {
        let serial = gil.serial.load(Relaxed);
        for link in &thread.links {
            if link.serial.load(Relaxed) == serial {
                return Some((link.index.load(Relaxed), link.book()));
            }
        }
    }
    first_event(gil, slot)
}

/// The calling thread's own switch interval, or 0. For hooks.
#[inline]
pub fn switch_interval_of_this_thread_ns() -> u64 {
    current().map_or(0, |thread| thread.switch_interval_ns.load(Relaxed))
}

/// Gives the calling thread a switch interval of its own, or, with 0, none. Without effect before the first
/// install, or where there are more threads than can be told apart.
pub fn set_switch_interval_of_this_thread_ns(interval_ns: u64) {
    let thread = if interval_ns == 0 { current() } else { current().or_else(enter) };
    if let Some(thread) = thread {
        thread.switch_interval_ns.store(interval_ns, Relaxed);
    }
}

/// Books of open GILs that the calling thread already has.
pub fn books_of_this_thread() -> impl Iterator<Item = &'static ThreadBook> {
    links_to_gils_of_this_thread().map(Link::book)
}

/// The indices of these books.
pub fn books_of_this_thread_by_index() -> impl Iterator<Item = u32> {
    links_to_gils_of_this_thread().map(|link| link.index.load(Relaxed))
}

/// Without the book of what it waited for where there is no GIL.
fn links_to_gils_of_this_thread() -> impl Iterator<Item = &'static Link> {
    let no_gil = gils::no_gil().serial.load(Relaxed);
    open_links_of_this_thread().filter(move |link| link.serial.load(Relaxed) != no_gil)
}

/// A GIL that ends leaves its threads' links, whose books may be others' by now.
fn open_links_of_this_thread() -> impl Iterator<Item = &'static Link> {
    let links = current().map_or(&[][..], |thread| &thread.links);
    links.iter().filter(|link| {
        let serial = link.serial.load(Relaxed);
        serial != 0 && gils::is_current(serial)
    })
}

#[cold]
#[inline(never)]
fn first_event(gil: &'static Gil, slot: &'static Slot) -> Option<(u32, &'static ThreadBook)> {
    if let Some(again) = current().and_then(|thread| link_again(thread, gil, slot)) {
        return Some(again);
    }
    // Nothing is searched where nothing is left: this may be every event of thousands of threads.
    let thread = if free_list::is_empty() { None } else { current().or_else(enter) };
    let Some((thread, index)) = thread.and_then(|thread| Some((thread, free_list::pop()?))) else {
        slot.unmeasured.fetch_add(1, Relaxed);
        return unmeasured(gil, slot);
    };
    let book = &slot.books[index as usize];
    book.gil.store(gil.index() as u32, Relaxed);
    book.native_id.store(thread.native_id.load(Relaxed), Relaxed);
    book.name.copy_from(&thread.name);
    waiters::clear(index);
    book.state.store(state::LIVE, Release);
    link(thread, gil, index, book);
    Some((index, book))
}

fn link(thread: &'static Thread, gil: &'static Gil, index: u32, book: &'static ThreadBook) {
    let link = free_link(thread);
    link.index.store(index, Relaxed);
    link.book.store(std::ptr::from_ref(book).cast_mut(), Relaxed);
    link.serial.store(gil.serial.load(Relaxed), Relaxed);
}

/// The book of a GIL whose link was given up for another's.
fn link_again(
    thread: &'static Thread,
    gil: &'static Gil,
    slot: &'static Slot,
) -> Option<(u32, &'static ThreadBook)> {
    if thread.next_link.load(Relaxed) == 0 {
        return None;
    }
    let native_id = thread.native_id.load(Relaxed);
    let (index, book) = free_list::used(slot).find(|(_, book)| {
        book.state.load(Relaxed) == state::LIVE
            && book.native_id.load(Relaxed) == native_id
            && book.gil.load(Relaxed) == gil.index() as u32
    })?;
    link(thread, gil, index, book);
    Some((index, book))
}

fn unmeasured(gil: &'static Gil, slot: &'static Slot) -> Option<(u32, &'static ThreadBook)> {
    let index = gil.unmeasured.load(Relaxed);
    slot.books.get(index as usize).map(|book| (index, book))
}

/// Gives the calling thread an entry.
fn enter() -> Option<&'static Thread> {
    let key = KEY.load(Relaxed).checked_sub(1)?;
    // SAFETY: no preconditions.
    let native_id = unsafe { libc::gettid() } as u32;
    let thread = kept_for(native_id).or_else(|| take_entry(native_id))?;
    // SAFETY: the key is below 32, so this stores into the thread's own descriptor.
    unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(thread).cast()) };
    Some(thread)
}

/// A free entry, taken for the thread that the kernel knows as `native_id`.
fn take_entry(native_id: u32) -> Option<&'static Thread> {
    if TAKEN.load(Relaxed) >= BOOKS {
        return None;
    }
    let from = SEARCH_FROM.load(Relaxed);
    (from..BOOKS).chain(0..from).map(|i| (i, &THREADS[i])).find_map(|(i, thread)| {
        let taken = thread.native_id.compare_exchange(0, native_id, AcqRel, Relaxed).is_ok();
        taken.then(|| {
            SEARCH_FROM.store(i + 1, Relaxed);
            thread.switch_interval_ns.store(0, Relaxed);
            TAKEN.fetch_add(1, Relaxed);
            thread
        })
    })
}

/// The entry that was taken to keep a name for the calling thread.
fn kept_for(native_id: u32) -> Option<&'static Thread> {
    if UNSEEN.load(Relaxed) == 0 {
        return None;
    }
    let kept = THREADS.iter().find(|thread| {
        thread.unseen.load(Relaxed) == 1 && thread.native_id.load(Relaxed) == native_id
    })?;
    kept.unseen.compare_exchange(1, 0, AcqRel, Relaxed).ok()?;
    UNSEEN.fetch_sub(1, Relaxed);
    Some(kept)
}

/// A link to write: an unused one, one whose GIL has gone, or, in turn, one that is given up.
fn free_link(thread: &'static Thread) -> &'static Link {
    let gone = |link: &&Link| {
        let serial = link.serial.load(Relaxed);
        serial == 0 || !gils::is_current(serial)
    };
    thread.links.iter().find(gone).unwrap_or_else(|| {
        let turn = thread.next_link.load(Relaxed);
        thread.next_link.store(turn + 1, Relaxed);
        &thread.links[turn as usize % LINKS]
    })
}

fn end_book(book: &ThreadBook) {
    if book.state.compare_exchange(state::LIVE, state::ENDED, AcqRel, Relaxed).is_ok() {
        ENDED.fetch_add(1, Relaxed);
    }
}

/// Runs in each measured thread as it ends, after its last event in ordinary cases; if a later
/// destructor uses Python once more, the thread enters again.
extern "C" fn end_of_thread(thread: *mut c_void) {
    // SAFETY: the key's values are entries of THREADS.
    let thread = unsafe { &*thread.cast::<Thread>() };
    let Some(slot) = counters::slot() else { return };
    let registry = Registry::lock();
    let mut told = [0; NAME_BYTES];
    let name = Some(thread.name.get(&mut told)).filter(|name| !name.is_empty());
    // A thread with a name of its own needs no call that a filter of system calls may forbid.
    let mut kernel_name = [0_u8; 16];
    if name.is_none() {
        // SAFETY: PR_GET_NAME writes at most 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, kernel_name.as_mut_ptr()) };
    }
    let kernel_name = kernel_name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = name.unwrap_or(kernel_name);
    trace::name_thread(thread.native_id.load(Relaxed), name);
    for link in &thread.links {
        let serial = link.serial.swap(0, Relaxed);
        if serial != 0 && gils::is_current(serial) {
            let book = link.book();
            if book.name.is_empty() {
                book.name.set(name);
            }
            end_book(book);
        }
    }
    if thread.next_link.swap(0, Relaxed) != 0 {
        let native_id = thread.native_id.load(Relaxed);
        free_list::used(slot)
            .filter(|(_, book)| book.native_id.load(Relaxed) == native_id)
            .for_each(|(_, book)| end_book(book));
    }
    thread.name.set(b"");
    thread.native_id.store(0, Release);
    TAKEN.fetch_sub(1, Relaxed);
    drop(registry);
    aggregation::fold_if_many(slot);
    free_list::prepare(slot);
}

/// Names the calling thread, in its rows so far and to come.
pub fn name_this_thread(name: &[u8]) {
    let _registry = Registry::lock();
    if let Some(thread) = current().or_else(enter) {
        thread.name.set(name);
        open_links_of_this_thread().for_each(|link| link.book().name.set(name));
    }
}

/// Names the live thread that the kernel knows as `native_id`; keeps the name if no hook has seen
/// the thread yet.
pub fn name_thread(native_id: u32, name: &[u8]) {
    let _registry = Registry::lock();
    let Some(slot) = counters::slot() else { return };
    match THREADS.iter().find(|thread| thread.native_id.load(Relaxed) == native_id) {
        Some(thread) => thread.name.set(name),
        None if UNSEEN.load(Relaxed) < UNSEEN_LIMIT => {
            if let Some(thread) = take_entry(native_id) {
                thread.name.set(name);
                thread.unseen.store(1, Release);
                UNSEEN.fetch_add(1, Relaxed);
            }
        }
        None => {}
    }
    for (_, book) in free_list::used(slot) {
        if book.state.load(Relaxed) == state::LIVE && book.native_id.load(Relaxed) == native_id {
            book.name.set(name);
        }
    }
}

/// What the live thread that the kernel knows as `native_id` is called: by Python as far as the ledger was
/// told, else by the kernel.
pub fn name_of(native_id: u32) -> Option<String> {
    let told = {
        let _registry = Registry::lock();
        let thread = THREADS.iter().find(|thread| thread.native_id.load(Relaxed) == native_id);
        let name = thread.filter(|_| native_id != 0).map(|thread| &thread.name);
        name.map(|name| String::from_utf8_lossy(name.get(&mut [0; NAME_BYTES])).into_owned())
    };
    told.filter(|name| !name.is_empty()).or_else(|| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{native_id}/comm")).ok()?;
        Some(name.trim_end().to_owned())
    })
}

/// All threads of a GIL that closes have ended their business with it.
pub fn end_books_of(gil: usize, slot: &'static Slot) {
    free_list::used(slot).filter(|(_, book)| book.gil.load(Relaxed) == gil as u32).for_each(
        |(_, book)| {
            end_book(book);
        },
    );
}

/// In a forked child, or at a new install: no thread is known. Only while no other thread runs a
/// hook.
pub fn forget_all() {
    for thread in THREADS.iter().filter(|thread| thread.native_id.load(Relaxed) != 0) {
        thread.links.iter().for_each(|link| link.serial.store(0, Relaxed));
    }
    ENDED.store(0, Relaxed);
}

/// In a forked child: other threads' entries are free, this thread's is its own under its new id.
pub fn keep_this_thread_only() {
    LOCK.store(0, Relaxed);
    let this = current();
    for thread in &THREADS {
        if thread.native_id.load(Relaxed) != 0 {
            let mine = this.is_some_and(|this| std::ptr::eq(this, thread));
            // SAFETY: no preconditions.
            let native_id = if mine { unsafe { libc::gettid() as u32 } } else { 0 };
            thread.native_id.store(native_id, Relaxed);
            thread.unseen.store(0, Relaxed);
        }
    }
    UNSEEN.store(0, Relaxed);
    TAKEN.store(usize::from(this.is_some()), Relaxed);
}
