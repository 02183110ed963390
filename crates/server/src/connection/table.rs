//! Where connections live: slots that are never freed, so that an event or the monitor may look at
//! a slot's word at any time; what a slot holds comes and goes under that word.

use crate::connection::ownership::Word;
use crate::connection::state::Peer;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

const SLOTS_PER_CHUNK: usize = 256;
const CHUNKS: usize = 256;

/// Connections that can be open at once; more wait in the listen queue.
pub const MAX_CONNECTIONS: usize = SLOTS_PER_CHUNK * CHUNKS;

pub struct Slot {
    pub word: Word,
    /// When the monitor is to end what the connection waits for (0: never). Written by the owner
    /// before it releases the word, read by the monitor, relaxed in effect: a stale value only
    /// moves the end by one look.
    pub deadline_ns: AtomicU64,
    /// When a connection was accepted that waits for its first complete head; 0 for any other and
    /// for a free slot. Written by the owner before it releases the word. Read by the thread that
    /// accepts, relaxed: while the word is BUSY the value may be stale, so the reader claims the word
    /// and reads again.
    pub without_request_since_ns: AtomicU64,
    /// Owner of `word` only.
    peer: UnsafeCell<Option<Box<Peer>>>,
}

// SAFETY: `peer` is touched only by the owner of `word`, whose transitions order the accesses;
// the other fields are atomic.
unsafe impl Sync for Slot {}

impl Slot {
    /// What the slot holds.
    ///
    /// # Safety
    /// The caller owns `word` and lets no second reference live.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn peer(&self) -> &mut Option<Box<Peer>> {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.peer.get() }
    }
}

pub struct Slab {
    /// A chunk is made when its first slot is needed and stays.
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Slots that were used and are free again.
    free: Mutex<Vec<u32>>,
    /// Slots ever used: indices below this exist. Written under `free`'s lock.
    used: AtomicU32,
    open: AtomicUsize,
}

/// Index and generation of a connection, as epoll hands them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub index: u32,
    pub generation: u32,
}

impl Token {
    pub fn to_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_data(data: u64) -> Self {
        Self { index: data as u32, generation: (data >> 32) as u32 }
    }
}

impl Default for Slab {
    fn default() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::default(),
            used: AtomicU32::new(0),
            open: AtomicUsize::new(0),
        }
    }
}

impl Slab {
    /// Puts a peer into a free slot. The caller owns its word (BUSY). `None`: all are in use.
    pub fn insert(&self, peer: Box<Peer>) -> Option<Token> {
        let index = {
            let mut free = self.free.lock().expect("no panic under this lock");
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
        // SAFETY: a free slot is BUSY and its index was handed to this caller alone.
        let content = unsafe { slot.peer() };
        slot.without_request_since_ns.store(peer.without_request_since_ns(), SeqCst);
        *content = Some(peer);
        self.open.fetch_add(1, SeqCst);
        Some(Token { index, generation: slot.word.generation() })
    }

    /// Empties a slot; the peer's socket is closed by dropping what is returned. Owner only.
    ///
    /// # Safety
    /// The caller owns the word of `index`, and uses the slot no more.
    pub unsafe fn remove(&self, index: u32) -> Option<Box<Peer>> {
        let slot = self.slot(index)?;
        // SAFETY: the caller owns the word.
        let peer = unsafe { slot.peer() }.take();
        slot.deadline_ns.store(0, SeqCst);
        slot.without_request_since_ns.store(0, SeqCst);
        slot.word.free();
        self.free.lock().expect("no panic under this lock").push(index);
        self.open.fetch_sub(1, SeqCst);
        peer
    }

    pub fn slot(&self, index: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(index as usize / SLOTS_PER_CHUNK)?.get()?;
        chunk.get(index as usize % SLOTS_PER_CHUNK)
    }

    /// Every slot that was ever used, with its index.
    pub fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..self.used.load(SeqCst)).filter_map(|index| Some((index, self.slot(index)?)))
    }

    pub fn open(&self) -> usize {
        self.open.load(SeqCst)
    }
}

fn new_chunk() -> Box<[Slot]> {
    (0..SLOTS_PER_CHUNK)
        .map(|_| Slot {
            word: Word::default(),
            deadline_ns: AtomicU64::new(0),
            without_request_since_ns: AtomicU64::new(0),
            peer: UnsafeCell::new(None),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ownership::Noted;
    use crate::net::socket::PeerAddress;
    use std::os::unix::net::UnixStream;

    fn peer() -> Box<Peer> {
        let (one, _) = UnixStream::pair().unwrap();
        Box::new(Peer::new(one.into(), PeerAddress::default(), Default::default()))
    }

    #[test]
    fn a_slot_is_used_again_under_another_generation() {
        let slab = Slab::default();
        let first = slab.insert(peer()).unwrap();
        assert_eq!(Token::from_data(first.to_data()), first);
        // SAFETY: this test is the only owner.
        assert!(unsafe { slab.remove(first.index) }.is_some());
        let second = slab.insert(peer()).unwrap();
        assert_eq!(second.index, first.index);
        let slot = slab.slot(second.index).unwrap();
        assert!(slot.word.release());
        assert_eq!(slot.word.note_event(first.generation, false), Noted::Stale);
        assert_eq!(slot.word.note_event(second.generation, false), Noted::Claimed);
        assert_eq!(slab.open(), 1);
    }
}
