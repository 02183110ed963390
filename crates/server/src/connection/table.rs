//! The table of open connections.
//!
//! Slots are never freed, so an event or the monitor may look at a slot's ownership word at any
//! time. A connection is reached through [`Owned`] alone, of which there is one at a time.

use super::ownership::{Event, Ownership};
use super::state::Connection;
use headway_reporter::lock::Lock;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{MutexGuard, OnceLock};

const SLOTS_PER_CHUNK: usize = 256;
const CHUNKS: usize = 256;

/// Connections that can be open at once; more wait in the listen queue.
pub const MAX_CONNECTIONS: usize = SLOTS_PER_CHUNK * CHUNKS;

/// Distinguishes the tables of one process. Written by `ConnectionTable::default`, relaxed: each
/// increment gives a number of its own.
static TABLES: AtomicU32 = AtomicU32::new(0);

pub struct ConnectionTable {
    serial: u32,
    /// A chunk is made when its first slot is needed, and stays.
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Slots that were used and are free again.
    free: Lock<Vec<u32>>,
    /// Slots that were ever used: indices below this exist. Written with `free` locked, read by all
    /// threads, `SeqCst`.
    used: AtomicU32,
    /// Open connections. Written by owners, read by all threads, `SeqCst`: a stopping server is over
    /// when it reads 0.
    open: AtomicUsize,
}

struct Slot {
    ownership: Ownership,
    /// When the monitor is to end what the connection waits for (0: never). Written by the owner
    /// before it gives the connection up, read by the monitor, relaxed: a stale value moves the end
    /// by one look.
    deadline_ns: AtomicU64,
    /// When a connection was accepted that waits for its first complete head; 0 for any other and
    /// for a free slot. Written by the owner before it gives the connection up. Read by the thread
    /// that accepts, relaxed: the value may be stale, so the reader claims the connection and reads
    /// again.
    without_request_since_ns: AtomicU64,
    /// Reached by the owner alone.
    connection: UnsafeCell<Option<Box<Connection>>>,
}

// SAFETY: `connection` is reached through `Owned` alone, of which there is one at a time: the
// transitions of `ownership` order the accesses. The other fields are atomic.
unsafe impl Sync for Slot {}

/// Index and generation of a connection, as epoll hands them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    index: u32,
    generation: u32,
}

/// An open connection that belongs to the calling thread. It is consumed by `wait`, `queue` or
/// `close`; one that is dropped instead, by a panic, is closed.
pub struct Owned<'t> {
    table: &'t ConnectionTable,
    slot: &'t Slot,
    index: u32,
    connection: NonNull<Connection>,
}

/// An owned connection at rest, in a queue: `ConnectionTable::resume` makes an [`Owned`] of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Queued {
    table: u32,
    index: u32,
}

/// A slot as threads see it that do not own its connection. It may be free.
#[derive(Clone, Copy)]
pub struct SlotView<'t> {
    table: &'t ConnectionTable,
    slot: &'t Slot,
    index: u32,
}

impl Token {
    pub fn to_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_data(data: u64) -> Self {
        Self { index: data as u32, generation: (data >> 32) as u32 }
    }
}

impl Default for ConnectionTable {
    fn default() -> Self {
        Self {
            serial: TABLES.fetch_add(1, Relaxed),
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Lock::default(),
            used: AtomicU32::new(0),
            open: AtomicUsize::new(0),
        }
    }
}

impl ConnectionTable {
    /// Puts a connection into a free slot. `None`: all are in use, and the connection is closed.
    pub fn insert(&self, connection: Box<Connection>) -> Option<Owned<'_>> {
        let index = {
            let mut free = self.lock_free();
            match free.pop() {
                Some(index) => index,
                None => {
                    let index = self.used.load(SeqCst);
                    let chunk = self.chunks.get(index as usize / SLOTS_PER_CHUNK)?;
                    chunk.get_or_init(new_chunk);
                    self.used.store(index + 1, SeqCst);
                    index
                }
            }
        };
        let slot = self.slot(index)?;
        slot.without_request_since_ns.store(connection.without_request_since_ns(), SeqCst);
        // SAFETY: a free slot is BUSY, so no other thread claims it, and its index was taken off the
        // list of free ones, or is new: this thread alone has it.
        unsafe { *slot.connection.get() = Some(connection) };
        self.open.fetch_add(1, SeqCst);
        // SAFETY: as above.
        unsafe { Owned::new(self, slot, index) }
    }

    /// Notes an event of epoll. Returns the connection if nobody owned it; its owner, if there is one,
    /// finds the event when it gives the connection up. An event of a closed connection is dropped.
    pub fn note_event(&self, token: Token, hangup: bool) -> Option<Owned<'_>> {
        let slot = self.slot(token.index)?;
        match slot.ownership.note_event(token.generation, hangup) {
            // SAFETY: the ownership word made this thread the owner just now.
            Event::Claimed => unsafe { Owned::new(self, slot, token.index) },
            Event::Pending | Event::Stale => None,
        }
    }

    /// Takes a connection out of a queue.
    pub fn resume(&self, queued: Queued) -> Owned<'_> {
        assert_eq!(queued.table, self.serial, "a connection of another table");
        let index = queued.index;
        let slot = self.slot(index).expect("a queued connection has a slot");
        // SAFETY: `Owned::queue` alone makes a `Queued`, which is no copy, so that it stands for the
        // ownership that was given up there.
        unsafe { Owned::new(self, slot, index) }.expect("a queued connection is open")
    }

    /// Every slot that was ever used.
    pub fn slots(&self) -> impl Iterator<Item = SlotView<'_>> {
        (0..self.used.load(SeqCst)).filter_map(|index| self.view(index))
    }

    pub fn view(&self, index: u32) -> Option<SlotView<'_>> {
        Some(SlotView { table: self, slot: self.slot(index)?, index })
    }

    pub fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(index as usize / SLOTS_PER_CHUNK)?.get()?;
        chunk.get(index as usize % SLOTS_PER_CHUNK)
    }

    fn lock_free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock()
    }
}

impl<'t> SlotView<'t> {
    pub fn index(self) -> u32 {
        self.index
    }

    pub fn deadline_ns(self) -> u64 {
        self.slot.deadline_ns.load(Relaxed)
    }

    pub fn without_request_since_ns(self) -> u64 {
        self.slot.without_request_since_ns.load(Relaxed)
    }

    /// The connection, if the slot holds one that nobody owns.
    pub fn claim(self) -> Option<Owned<'t>> {
        if !self.slot.ownership.claim() {
            return None;
        }
        // SAFETY: the ownership word made this thread the owner just now.
        unsafe { Owned::new(self.table, self.slot, self.index) }
    }
}

impl<'t> Owned<'t> {
    /// `None`, which never happens, if the slot is empty.
    ///
    /// # Safety
    /// The calling thread owns the slot's connection, and has no other `Owned` of it.
    unsafe fn new(table: &'t ConnectionTable, slot: &'t Slot, index: u32) -> Option<Self> {
        // SAFETY: the caller owns the connection, so that nobody else reaches the cell.
        let connection = unsafe { (*slot.connection.get()).as_deref_mut() }?;
        Some(Self { table, slot, index, connection: NonNull::from(connection) })
    }

    pub fn token(&self) -> Token {
        Token { index: self.index, generation: self.slot.ownership.generation() }
    }

    pub fn view(&self) -> SlotView<'t> {
        SlotView { table: self.table, slot: self.slot, index: self.index }
    }

    /// Whether an event reported that the peer closed its sending side.
    pub fn has_hangup(&self) -> bool {
        self.slot.ownership.has_hangup()
    }

    /// The connection waits for an event, until `deadline_ns` (0: for ever). Returns it if an event
    /// came since it was claimed: it has to be read and written once more then.
    #[must_use]
    pub fn wait(self, deadline_ns: u64) -> Option<Self> {
        self.slot.deadline_ns.store(deadline_ns, Relaxed);
        self.slot.without_request_since_ns.store(self.without_request_since_ns(), Relaxed);
        let this = ManuallyDrop::new(self);
        if this.slot.ownership.release() {
            return None;
        }
        Some(ManuallyDrop::into_inner(this))
    }

    /// The connection waits for a thread.
    pub fn queue(self) -> Queued {
        let this = ManuallyDrop::new(self);
        Queued { table: this.table.serial, index: this.index }
    }

    /// Frees the slot; the socket is closed when what is returned is dropped.
    pub fn close(self) -> Box<Connection> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is the only `Owned` of the connection, and is not used again.
        unsafe { this.free_slot() }.expect("an owned slot is not empty")
    }

    /// # Safety
    /// The `Owned` is not used again.
    unsafe fn free_slot(&self) -> Option<Box<Connection>> {
        // SAFETY: this thread owns the connection.
        let connection = unsafe { (*self.slot.connection.get()).take() };
        self.slot.deadline_ns.store(0, SeqCst);
        self.slot.without_request_since_ns.store(0, SeqCst);
        self.slot.ownership.free();
        self.table.lock_free().push(self.index);
        self.table.open.fetch_sub(1, SeqCst);
        connection
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: it is being dropped.
        drop(unsafe { self.free_slot() });
    }
}

impl Deref for Owned<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        // SAFETY: the connection stays in its slot for as long as it is owned, and this is its owner.
        unsafe { self.connection.as_ref() }
    }
}

impl DerefMut for Owned<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        // SAFETY: as in `deref`; the owner is borrowed for as long as the reference lives.
        unsafe { self.connection.as_mut() }
    }
}

fn new_chunk() -> Box<[Slot]> {
    (0..SLOTS_PER_CHUNK)
        .map(|_| Slot {
            ownership: Ownership::default(),
            deadline_ns: AtomicU64::new(0),
            without_request_since_ns: AtomicU64::new(0),
            connection: UnsafeCell::new(None),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::PeerAddress;
    use std::os::unix::net::UnixStream;

    fn connection() -> Box<Connection> {
        let (one, _) = UnixStream::pair().unwrap();
        Box::new(Connection::new(one.into(), PeerAddress::default(), Default::default()))
    }

    #[test]
    fn a_slot_is_used_again_under_another_generation() {
        let table = ConnectionTable::default();
        let first = table.insert(connection()).unwrap();
        let token = first.token();
        assert_eq!(Token::from_data(token.to_data()), token);
        drop(first.close());
        let second = table.insert(connection()).unwrap();
        let next = second.token();
        assert_eq!(second.view().index(), token.index);
        assert!(second.wait(0).is_none());
        assert!(table.note_event(token, false).is_none(), "an event of the first connection");
        assert!(table.note_event(next, false).is_some());
    }

    #[test]
    fn one_thread_owns_a_connection_until_it_waits() {
        let table = ConnectionTable::default();
        let owned = table.insert(connection()).unwrap();
        let (token, view) = (owned.token(), owned.view());
        assert!(view.claim().is_none());
        assert!(table.note_event(token, true).is_none(), "its owner is to look again");
        let owned = owned.wait(7).expect("the event came while it was owned");
        assert!(owned.has_hangup() && view.deadline_ns() == 7);
        assert!(owned.wait(0).is_none());
        let queued = view.claim().expect("nobody owns it").queue();
        assert!(view.claim().is_none(), "the queue owns it");
        assert!(table.resume(queued).wait(0).is_none());
    }

    #[test]
    fn what_is_dropped_is_closed() {
        let table = ConnectionTable::default();
        drop(table.insert(connection()));
        assert_eq!(table.open(), 0);
        assert!(table.view(0).unwrap().claim().is_none(), "an empty slot");
    }

    #[test]
    #[should_panic(expected = "another table")]
    fn a_queued_connection_belongs_to_its_table() {
        let (one, other) = (ConnectionTable::default(), ConnectionTable::default());
        let (queued, kept) =
            (one.insert(connection()).unwrap().queue(), other.insert(connection()));
        let _ = other.resume(queued);
        drop(kept);
    }
}
