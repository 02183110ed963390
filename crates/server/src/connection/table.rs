//! The table of open connections, and the guard that owns one of them.
//!
//! A slot is never freed, so an event or the monitor may look at its ownership state at any time.
//! The connection in it is reached through [`Owned`], of which at most one exists for each
//! connection, or through [`Queued`], which is an [`Owned`] at rest: in the ready queue, or among
//! the deferred responses.

use crate::connection::ownership::{Noted, Ownership};
use crate::connection::state::{Connection, Stage};
use crate::connection::write::close_sending;
use crate::net::epoll::Epoll;
use crate::net::socket;
use crate::stats::ServerStats;
use headway_threads::lock::Lock;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

const SLOTS_PER_CHUNK: usize = 256;
const CHUNKS: usize = 256;

/// Connections that can be open at once; more wait in the listen queue.
pub const MAX_CONNECTIONS: usize = SLOTS_PER_CHUNK * CHUNKS;

/// The number of tables, which is the serial number of the next one. Written by `Table::new`;
/// relaxed, because it is only a count.
static TABLES: AtomicU32 = AtomicU32::new(0);

struct Slot {
    ownership: Ownership,
    /// The time at which the monitor must end the current wait of the connection; 0 means never.
    /// Written by the owner before it releases the slot, read by the monitor; relaxed, because a
    /// stale value only moves the end by one sweep.
    deadline_ns: AtomicU64,
    /// When the connection was accepted, while it waits for its first complete head; 0 for any
    /// other and for a free slot. Written by the owner before it releases the slot. Read by the
    /// thread that accepts, relaxed: while the slot is BUSY the value may be stale, so the reader
    /// claims the slot and reads again.
    without_request_since_ns: AtomicU64,
    /// Accessed only through `Owned` and `Queued`.
    connection: UnsafeCell<Option<Box<Connection>>>,
}

// SAFETY: at most one `Owned` or `Queued` exists for a slot, and `connection` is reached only
// through it; the transitions of `ownership` order the accesses. The other fields are atomic.
unsafe impl Sync for Slot where Box<Connection>: Send {}

pub struct Table {
    /// Distinguishes this table's `Queued` from those of others.
    serial: u32,
    /// A chunk is made when its first slot is needed and stays.
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Slots that were used and are free again.
    free: Lock<Vec<u32>>,
    /// Slots ever used: indices below this exist. Written under `free`'s lock.
    used: AtomicU32,
    /// Slots in use. Written by `insert` and `close`, read by all threads; `SeqCst`, since a
    /// stopping server is over when it reads 0.
    open: AtomicUsize,
    epoll: Arc<Epoll>,
    stats: Arc<ServerStats>,
}

/// Index and generation of a connection, as epoll hands them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    index: u32,
    generation: u32,
}

impl Token {
    pub fn to_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_data(data: u64) -> Self {
        Self { index: data as u32, generation: (data >> 32) as u32 }
    }
}

/// The only access to a connection. `wait`, `queue` and `close` consume it. If an `Owned` is
/// dropped otherwise, as by a panic, the connection is closed.
pub struct Owned<'t> {
    table: &'t Table,
    slot: &'t Slot,
    index: u32,
    /// `Sync` only if the connection is.
    access: PhantomData<&'t mut Connection>,
}

/// An owned connection outside of any borrow of its table. Only [`Owned::queue`] makes one, and
/// only [`Table::take`] turns it back. If one is lost, its slot stays BUSY for ever.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Queued {
    index: u32,
    /// The serial number of the table that it belongs to.
    table: u32,
}

/// A slot that the caller does not own. If it has a connection, another thread may own it.
#[derive(Clone, Copy)]
pub struct Unowned<'t> {
    table: &'t Table,
    slot: &'t Slot,
    index: u32,
}

impl Table {
    pub fn new(epoll: Arc<Epoll>, stats: Arc<ServerStats>) -> Self {
        let serial = TABLES.fetch_add(1, Relaxed);
        assert_ne!(serial, u32::MAX, "no serial number is used twice");
        Self {
            serial,
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Lock::default(),
            used: AtomicU32::new(0),
            open: AtomicUsize::new(0),
            epoll,
            stats,
        }
    }

    /// Puts a connection into a free slot. `None` if all slots are in use.
    pub fn insert(&self, connection: Box<Connection>) -> Option<Owned<'_>> {
        let index = {
            let mut free = self.free.lock();
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
        let slot = self.slot(index).expect("made above");
        // SAFETY: a free slot is BUSY, and its index was handed to this caller alone.
        unsafe { *slot.connection.get() = Some(connection) };
        self.open.fetch_add(1, SeqCst);
        self.stats.note_accepted();
        Some(self.owned(slot, index))
    }

    /// Notes an event. The caller owns the connection if no thread owned it. Otherwise the owner
    /// reads again, or the connection is closed.
    pub fn note_event(&self, token: Token, hangup: bool) -> Option<Owned<'_>> {
        let slot = self.slot(token.index)?;
        match slot.ownership.note_event(token.generation, hangup) {
            Noted::Claimed => Some(self.owned(slot, token.index)),
            Noted::Pending | Noted::Stale => None,
        }
    }

    /// Turns a queued connection back into an owned one.
    pub fn take(&self, queued: Queued) -> Owned<'_> {
        let slot = self.slot_of(&queued);
        self.owned(slot, queued.index)
    }

    /// The connection of a `Queued`, of which only one exists.
    pub fn connection<'a>(&'a self, queued: &'a mut Queued) -> &'a mut Connection {
        let slot = self.slot_of(queued);
        // SAFETY: a `Queued` of this table owns the slot, and the borrow of it is exclusive.
        let connection = unsafe { &mut *slot.connection.get() };
        connection.as_mut().expect("an owned slot is not empty")
    }

    /// Every slot that was ever used.
    pub fn slots(&self) -> impl Iterator<Item = Unowned<'_>> {
        (0..self.used.load(SeqCst)).filter_map(|index| {
            let slot = self.slot(index)?;
            Some(Unowned { table: self, slot, index })
        })
    }

    pub fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// The caller has claimed the slot, or filled it while it was free.
    fn owned<'t>(&'t self, slot: &'t Slot, index: u32) -> Owned<'t> {
        Owned { table: self, slot, index, access: PhantomData }
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(index as usize / SLOTS_PER_CHUNK)?.get()?;
        chunk.get(index as usize % SLOTS_PER_CHUNK)
    }

    fn slot_of(&self, queued: &Queued) -> &Slot {
        assert_eq!(queued.table, self.serial, "a connection of another table");
        self.slot(queued.index).expect("a queued connection has a slot")
    }
}

impl<'t> Owned<'t> {
    /// Registers the connection for events. This must happen while it is BUSY: once it is IDLE the
    /// monitor may claim it, and the next owner may close its descriptor.
    pub fn register(&self) -> std::io::Result<()> {
        let token = Token { index: self.index, generation: self.slot.ownership.generation() };
        self.table.epoll.add_connection(self.socket.as_fd(), token.to_data())
    }

    /// Copies from the ownership state whether the client has closed its sending side.
    pub fn update_hangup(&mut self) {
        self.hangup = self.slot.ownership.has_hangup();
    }

    /// Lets the connection wait for an event, or for `deadline_ns`. `Err` means that an event came
    /// meanwhile: the caller still owns the connection, and must read and write again.
    pub fn wait(mut self, deadline_ns: u64) -> Result<Unowned<'t>, Self> {
        let slot = self.slot;
        slot.deadline_ns.store(deadline_ns, Relaxed);
        slot.without_request_since_ns.store(self.without_request_since_ns(), Relaxed);
        if slot.ownership.release() {
            let unowned = Unowned { table: self.table, slot, index: self.index };
            std::mem::forget(self);
            return Ok(unowned);
        }
        self.readable = true;
        Err(self)
    }

    /// Ends the borrow of the table and keeps the ownership.
    pub fn queue(self) -> Queued {
        let queued = Queued { index: self.index, table: self.table.serial };
        std::mem::forget(self);
        queued
    }

    pub fn close(self) {}
}

impl Deref for Owned<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        // SAFETY: this guard owns the slot, and is borrowed for as long as the reference lives.
        let connection = unsafe { &*self.slot.connection.get() };
        connection.as_ref().expect("an owned slot is not empty")
    }
}

impl DerefMut for Owned<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        // SAFETY: this guard owns the slot, and is borrowed exclusively.
        let connection = unsafe { &mut *self.slot.connection.get() };
        connection.as_mut().expect("an owned slot is not empty")
    }
}

impl Drop for Owned<'_> {
    /// Frees the slot, then closes the socket, and the connection unless another process has it.
    fn drop(&mut self) {
        let Self { table, slot, index, .. } = *self;
        // SAFETY: this guard owns the slot, and ends here.
        let connection = unsafe { &mut *slot.connection.get() }.take();
        slot.deadline_ns.store(0, SeqCst);
        slot.without_request_since_ns.store(0, SeqCst);
        slot.ownership.free();
        table.free.lock().push(index);
        table.open.fetch_sub(1, SeqCst);
        if let Some(mut connection) = connection {
            if connection.stage == Stage::Idle && connection.tls.is_some() {
                close_sending(&mut connection);
            }
            table.epoll.remove(connection.socket.as_fd());
            if !connection.is_handed_over {
                socket::shut_down(connection.socket.as_fd());
            }
            table.stats.note_closed();
        }
    }
}

impl<'t> Unowned<'t> {
    /// The connection, if no thread owns it.
    pub fn claim(self) -> Option<Owned<'t>> {
        self.slot.ownership.claim().then(|| self.table.owned(self.slot, self.index))
    }

    /// Whether the deadline of the connection has passed. The answer may be stale while a thread
    /// owns the connection.
    pub fn is_past_deadline(self, now_ns: u64) -> bool {
        let deadline_ns = self.slot.deadline_ns.load(Relaxed);
        deadline_ns != 0 && deadline_ns <= now_ns
    }

    /// When the connection was accepted, if it has sent no complete head since; otherwise 0. The
    /// answer may be stale while a thread owns the connection.
    pub fn without_request_since_ns(self) -> u64 {
        self.slot.without_request_since_ns.load(Relaxed)
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
#[path = "table_tests.rs"]
pub(crate) mod tests;
