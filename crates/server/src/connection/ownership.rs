//! The atomic word by which threads agree on who owns a connection.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const BUSY: u64 = 1;
const PENDING: u64 = 2;
const HANGUP: u64 = 4;
const GENERATION_SHIFT: u32 = 32;

/// One word per slot. The upper half is the slot's generation, which changes when a connection is
/// freed: an event that was fetched for its predecessor then finds another generation and is
/// dropped, in the same instruction that would claim the connection.
///
/// | BUSY | PENDING | state |
/// |---|---|---|
/// | 0 | 0 | IDLE: nobody owns the connection; whoever receives its next event claims it |
/// | 1 | 0 | BUSY: one thread, the ready queue, or an outbox, owns it. Also: the slot is free |
/// | 1 | 1 | PENDING: as BUSY, and an event came since. The owner must read and write once more, or data would lie there for ever: the epoll is edge-triggered |
/// | 0 | 1 | never |
///
/// HANGUP: an event said that the peer closed its sending side. It stays set; the owner reads to
/// the end even after a short read, because no further event may come.
///
/// Writers: the thread that polls (`note_event`), the owner (`release`, `free`), the monitor and
/// whoever stops the server (`claim`). All `SeqCst`: stopping relies on one order of the word and
/// the stop flag.
pub struct Ownership(AtomicU64);

/// What an event did to the word.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The caller owns the connection now.
    Claimed,
    /// Its owner will look again.
    Pending,
    /// The event belongs to a connection that is gone.
    Stale,
}

impl Default for Ownership {
    /// The word of a free slot.
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

    pub fn note_event(&self, generation: u32, hangup: bool) -> Event {
        let hangup = if hangup { HANGUP } else { 0 };
        let mut word = self.0.load(SeqCst);
        loop {
            if (word >> GENERATION_SHIFT) as u32 != generation {
                return Event::Stale;
            }
            let (next, noted) = match word & BUSY {
                0 => (word | BUSY | hangup, Event::Claimed),
                _ => (word | PENDING | hangup, Event::Pending),
            };
            match self.0.compare_exchange_weak(word, next, SeqCst, SeqCst) {
                Ok(_) => return noted,
                Err(current) => word = current,
            }
        }
    }

    /// Claims the connection if nobody owns it, without an event.
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

    /// The connection is gone: no event of it counts from here on. Owner only.
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
        assert_eq!(word.note_event(0, false), Event::Claimed);
        assert_eq!(word.note_event(0, true), Event::Pending);
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
        assert_eq!(word.note_event(0, false), Event::Stale);
        assert!(word.release());
        assert_eq!(word.note_event(0, false), Event::Stale);
        assert_eq!(word.note_event(1, false), Event::Claimed);
    }

    #[test]
    fn of_many_threads_one_claims_and_no_event_is_lost() {
        use std::sync::atomic::{AtomicU32, AtomicU64};
        let word = Ownership::default();
        assert!(word.release());
        let (owners, seen) = (AtomicU32::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if word.note_event(0, false) == Event::Claimed {
                            loop {
                                assert_eq!(owners.fetch_add(1, SeqCst), 0);
                                seen.fetch_add(1, SeqCst);
                                owners.fetch_sub(1, SeqCst);
                                if word.release() {
                                    break;
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(seen.load(SeqCst) > 0);
        assert_eq!(word.note_event(0, false), Event::Claimed);
        assert!(word.release());
    }
}
