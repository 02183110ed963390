//! The atomic word by which threads agree on who owns a connection.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const BUSY: u64 = 1;
const PENDING: u64 = 2;
const HANGUP: u64 = 4;
const GENERATION_SHIFT: u32 = 32;

/// The ownership state of one slot of the table. The upper half is the slot's generation, which
/// changes when the connection is closed: an event that was fetched for its predecessor then finds
/// another generation and is dropped, by the same instruction that would claim the connection.
///
/// | BUSY | PENDING | state |
/// |---|---|---|
/// | 0 | 0 | IDLE: no thread owns the connection; the thread that notes its next event claims it |
/// | 1 | 0 | BUSY: a thread, the ready queue or the deferred responses own the connection, or the slot is free |
/// | 1 | 1 | PENDING: as BUSY, and an event came since. The owner must read and write once more, because the epoll is edge-triggered and reports that event once |
/// | 0 | 1 | never |
///
/// HANGUP: an event reported that the client closed its sending side. It stays set; the owner then
/// reads to the end even after a short read, because no further event may come.
///
/// Writers: the thread that polls (`note_event`), the owner (`release`, `free`), the monitor, the
/// thread that accepts and the thread that stops the server (`claim`). All `SeqCst`: stopping
/// relies on one order of this word and the count of stops.
pub struct Ownership(AtomicU64);

/// The effect of an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Noted {
    /// The caller owns the connection.
    Claimed,
    /// Its owner will read and write once more.
    Pending,
    /// The event belongs to a connection that was closed.
    Stale,
}

impl Default for Ownership {
    /// The state of a free slot.
    fn default() -> Self {
        Self(AtomicU64::new(BUSY))
    }
}

impl Ownership {
    pub fn generation(&self) -> u32 {
        (self.0.load(SeqCst) >> GENERATION_SHIFT) as u32
    }

    pub fn has_hangup(&self) -> bool {
        self.0.load(SeqCst) & HANGUP != 0
    }

    pub fn note_event(&self, generation: u32, hangup: bool) -> Noted {
        let hangup = if hangup { HANGUP } else { 0 };
        let mut word = self.0.load(SeqCst);
        loop {
            if (word >> GENERATION_SHIFT) as u32 != generation {
                return Noted::Stale;
            }
            let (next, noted) = match word & BUSY {
                0 => (word | BUSY | hangup, Noted::Claimed),
                _ => (word | PENDING | hangup, Noted::Pending),
            };
            match self.0.compare_exchange_weak(word, next, SeqCst, SeqCst) {
                Ok(_) => return noted,
                Err(current) => word = current,
            }
        }
    }

    /// Claims the connection without an event, if no thread owns it.
    pub fn claim(&self) -> bool {
        let word = self.0.load(SeqCst);
        word & BUSY == 0 && self.0.compare_exchange(word, word | BUSY, SeqCst, SeqCst).is_ok()
    }

    /// BUSY to IDLE. False if an event came meanwhile: the caller still owns the connection and
    /// PENDING is cleared. Owner only.
    pub fn release(&self) -> bool {
        let mut word = self.0.load(SeqCst);
        loop {
            let (next, released) =
                if word & PENDING == 0 { (word & !BUSY, true) } else { (word & !PENDING, false) };
            match self.0.compare_exchange_weak(word, next, SeqCst, SeqCst) {
                Ok(_) => return released,
                Err(current) => word = current,
            }
        }
    }

    /// Closes the connection: no event of it counts from here on. Owner only.
    pub fn free(&self) {
        let generation = self.generation().wrapping_add(1);
        self.0.store(u64::from(generation) << GENERATION_SHIFT | BUSY, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_on_a_busy_connection_is_seen_by_its_owner() {
        let word = Ownership::default();
        assert!(word.release());
        assert_eq!(word.note_event(0, false), Noted::Claimed);
        assert_eq!(word.note_event(0, true), Noted::Pending);
        assert!(!word.claim());
        assert!(!word.release());
        assert!(word.has_hangup());
        assert!(word.release());
        assert!(word.claim());
    }

    #[test]
    fn an_event_of_a_freed_connection_is_stale() {
        let word = Ownership::default();
        assert!(word.release());
        assert!(word.claim());
        word.free();
        assert_eq!(word.note_event(0, false), Noted::Stale);
        assert!(word.release());
        assert_eq!(word.note_event(0, false), Noted::Stale);
        assert_eq!(word.note_event(1, false), Noted::Claimed);
    }
}
