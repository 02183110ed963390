//! The books themselves, as they lie in mapped memory: one per GIL, one per (thread, GIL).
//!
//! Everything is a relaxed atomic, because a snapshot in this process or `headway report` in another
//! may look at any time. All zero bytes are an unused book. No field is a pointer, so a
//! mapping of the file makes sense anywhere.
//!
//! Writer of every counter: the thread that runs the event, with that GIL's mutex held; that mutex
//! is what makes one writer of many threads. Exceptions say so.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use headway_measure::AtomicHistogram;

/// What a book is in use for.
///
/// | state | meaning | may become |
/// |---|---|---|
/// | `FREE` | on the free list, or never used | `LIVE` |
/// | `LIVE` | its thread runs, its GIL is open | `ENDED` |
/// | `ENDED` | thread or GIL has ended, the row is still told apart | `FREE`, once folded |
/// | `FOLDED` | the sum of rows that ended, by name; for a GIL's unmeasured threads too | `FREE` |
///
/// `FREE` to `LIVE`: the owning thread, in a hook. `LIVE` to `ENDED`: by compare-and-swap, the ending
/// thread or the one that closes the GIL. The rest: under the registry lock of `threads`.
pub mod state {
    pub const FREE: u32 = 0;
    pub const LIVE: u32 = 1;
    pub const ENDED: u32 = 2;
    pub const FOLDED: u32 = 3;
}

pub const NAME_BYTES: usize = 64;
/// Of a command line; the rest of a longer one is left out.
pub const COMMAND_BYTES: usize = 1024;

/// A name of at most 64 bytes of UTF-8.
pub type Name = Text<NAME_BYTES>;

/// At most `N` bytes of UTF-8. Written under the registry lock of `threads`, or by the only thread of a process; another
/// process may see one half written.
#[repr(C)]
pub struct Text<const N: usize> {
    length: AtomicU32,
    bytes: [AtomicU8; N],
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Self { length: AtomicU32::new(0), bytes: [const { AtomicU8::new(0) }; N] }
    }

    /// Keeps as much of `text` as fits, cut between characters.
    pub fn set(&self, text: &[u8]) {
        let mut length = text.len().min(N);
        while length < text.len() && length > 0 && text[length] & 0xC0 == 0x80 {
            length -= 1;
        }
        for (byte, value) in self.bytes.iter().zip(&text[..length]) {
            byte.store(*value, Relaxed);
        }
        self.length.store(length as u32, Relaxed);
    }

    /// Copies the text into `buffer` and returns the part that it fills.
    pub fn get<'a>(&self, buffer: &'a mut [u8; N]) -> &'a [u8] {
        let length = (self.length.load(Relaxed) as usize).min(N);
        for (value, byte) in buffer.iter_mut().zip(&self.bytes[..length]) {
            *value = byte.load(Relaxed);
        }
        &buffer[..length]
    }

    pub fn is_empty(&self) -> bool {
        self.length.load(Relaxed) == 0
    }

    pub fn copy_from(&self, other: &Self) {
        let mut buffer = [0; N];
        self.set(other.get(&mut buffer));
    }
}

/// What a thread did with one GIL; or, under `gils::NO_GIL`, how it waited without one: see `parks`.
#[repr(C)]
pub struct ThreadBook {
    /// See [`state`].
    pub state: AtomicU32,
    /// Index of the GIL's book.
    pub gil: AtomicU32,
    /// The kernel's thread id; 0 in a folded row.
    pub native_id: AtomicU32,
    /// How many threads a folded row stands for.
    pub folded: AtomicU32,
    pub takes: AtomicU64,
    pub contended_takes: AtomicU64,
    pub voluntary_drops: AtomicU64,
    pub forced_drops: AtomicU64,
    pub preemptions: AtomicU64,
    /// Written by the thread itself, after a forced wait, without the GIL's mutex.
    pub forced_waits: AtomicU64,
    /// As `forced_waits`.
    pub forced_waited_ns: AtomicU64,
    /// The hold during which the GIL's books closed, as far as it belongs to them.
    pub held_at_close_ns: AtomicU64,
    /// The longest time from a drop request against a hold of this thread to the drop that answered it.
    pub longest_answer_ns: AtomicU64,
    /// The most CPU time that this thread used between a drop request and the drop, as far as that is known: see
    /// `unanswered`. 0 if it is not.
    pub longest_answer_cpu_ns: AtomicU64,
    /// When the wait that this thread is in began; 0 while it is in none.
    pub wait_began_ns: AtomicU64,
    pub name: Name,
    /// Contended takes only.
    pub wait: AtomicHistogram,
    /// Holds that have ended in a drop.
    pub hold: AtomicHistogram,
}

impl ThreadBook {
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            gil: AtomicU32::new(0),
            native_id: AtomicU32::new(0),
            folded: AtomicU32::new(0),
            takes: AtomicU64::new(0),
            contended_takes: AtomicU64::new(0),
            voluntary_drops: AtomicU64::new(0),
            forced_drops: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
            forced_waits: AtomicU64::new(0),
            forced_waited_ns: AtomicU64::new(0),
            held_at_close_ns: AtomicU64::new(0),
            longest_answer_ns: AtomicU64::new(0),
            longest_answer_cpu_ns: AtomicU64::new(0),
            wait_began_ns: AtomicU64::new(0),
            name: Name::new(),
            wait: AtomicHistogram::new(),
            hold: AtomicHistogram::new(),
        }
    }

    /// Makes this book a copy of `other`.
    pub fn copy_from(&self, other: &ThreadBook) {
        for (mine, theirs) in [
            (&self.state, &other.state),
            (&self.gil, &other.gil),
            (&self.native_id, &other.native_id),
            (&self.folded, &other.folded),
        ] {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in self.counters().into_iter().zip(other.counters()) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in self.longest().into_iter().zip(other.longest()) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        self.name.copy_from(&other.name);
        self.wait.copy_from(&other.wait);
        self.hold.copy_from(&other.hold);
    }

    /// Adds the counters of `other`, which no thread writes any more; what was longest in either stays.
    pub fn merge(&self, other: &ThreadBook) {
        use headway_measure::add;
        for (mine, theirs) in self.counters().into_iter().zip(other.counters()) {
            add(mine, theirs.load(Relaxed));
        }
        for (mine, theirs) in self.longest().into_iter().zip(other.longest()) {
            mine.fetch_max(theirs.load(Relaxed), Relaxed);
        }
        self.wait.merge(&other.wait);
        self.hold.merge(&other.hold);
    }

    /// How many takes and drops changed this book: every event that a row shows is one of them.
    pub fn events(&self) -> u64 {
        [&self.takes, &self.voluntary_drops, &self.forced_drops]
            .map(|n| n.load(Relaxed))
            .iter()
            .sum()
    }

    pub fn clear(&self) {
        for counter in self.counters() {
            counter.store(0, Relaxed);
        }
        self.longest().into_iter().for_each(|longest| longest.store(0, Relaxed));
        self.wait_began_ns.store(0, Relaxed);
        self.folded.store(0, Relaxed);
        self.native_id.store(0, Relaxed);
        self.name.set(b"");
        self.wait.clear();
        self.hold.clear();
    }

    /// What adds up.
    fn counters(&self) -> [&AtomicU64; 8] {
        [
            &self.takes,
            &self.contended_takes,
            &self.voluntary_drops,
            &self.forced_drops,
            &self.preemptions,
            &self.forced_waits,
            &self.forced_waited_ns,
            &self.held_at_close_ns,
        ]
    }

    /// What is the longest of something.
    fn longest(&self) -> [&AtomicU64; 2] {
        [&self.longest_answer_ns, &self.longest_answer_cpu_ns]
    }

    /// What decides who keeps a row of its own after its end.
    pub fn weight_ns(&self) -> u64 {
        self.wait.sum_ns.load(Relaxed) + self.hold.sum_ns.load(Relaxed)
    }
}

/// The two kinds of gap between a drop and the next take, decided at the drop.
pub mod gap {
    pub const IDLE: u32 = 0;
    /// At least one thread was in a timed wait.
    pub const HANDOFF: u32 = 1;
}

/// What became of one GIL.
///
/// The books balance by construction: a moment belongs to the hold or to the gap that began at
/// `changed_ns`, and each event moves that moment on and adds the time between.
#[repr(C)]
pub struct GilBook {
    /// `FREE` unused, `LIVE` open, `ENDED` closed, `FOLDED` the sum of GILs that ended.
    pub state: AtomicU32,
    /// Whether the GIL was held when the book opened.
    pub held_at_open: AtomicU32,
    pub held_now: AtomicU32,
    /// Which kind of gap it is while nobody holds; see [`gap`].
    pub gap: AtomicU32,
    /// The interpreter that owns this GIL; -1 where it could not be told.
    pub interpreter: AtomicI64,
    /// What the program calls it; empty where it was not told.
    pub name: Name,
    pub opened_ns: AtomicU64,
    /// When the books closed; 0 while they are open.
    pub closed_ns: AtomicU64,
    /// The last take, drop or opening.
    pub changed_ns: AtomicU64,
    /// Index of the thread book of the present holder; meaningless while nobody holds.
    pub holder: AtomicU32,
    /// How many GILs a folded row stands for.
    pub folded: AtomicU32,
    /// Lifetimes of folded GILs.
    pub wall_ns: AtomicU64,
    pub held_ns: AtomicU64,
    pub handoff_ns: AtomicU64,
    pub idle_ns: AtomicU64,
    pub takes: AtomicU64,
    pub contended_takes: AtomicU64,
    pub voluntary_drops: AtomicU64,
    pub forced_drops: AtomicU64,
    pub drop_requests: AtomicU64,
    pub preemptions: AtomicU64,
    /// The longest wait that ended in a take, by the class that the taker had; under `interval` all
    /// are counted as I/O-bound.
    pub longest_io_bound_wait_ns: AtomicU64,
    pub longest_cpu_bound_wait_ns: AtomicU64,
    /// Events that do not fit the state; the books were mended at each.
    pub anomalies: AtomicU64,
}

impl GilBook {
    /// What adds up.
    fn counters(&self) -> [&AtomicU64; 11] {
        [
            &self.wall_ns,
            &self.held_ns,
            &self.handoff_ns,
            &self.idle_ns,
            &self.takes,
            &self.contended_takes,
            &self.voluntary_drops,
            &self.forced_drops,
            &self.drop_requests,
            &self.preemptions,
            &self.anomalies,
        ]
    }

    /// What has a maximum and no sum.
    fn longest(&self) -> [&AtomicU64; 2] {
        [&self.longest_io_bound_wait_ns, &self.longest_cpu_bound_wait_ns]
    }

    pub fn clear(&self) {
        for counter in self.counters().into_iter().chain(self.longest()) {
            counter.store(0, Relaxed);
        }
        self.folded.store(0, Relaxed);
        self.name.set(b"");
    }

    /// Adds the counters of `other`, which has closed; what was longest in either stays.
    pub fn merge(&self, other: &GilBook) {
        for (mine, theirs) in self.counters().into_iter().zip(other.counters()) {
            mine.fetch_add(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in self.longest().into_iter().zip(other.longest()) {
            mine.fetch_max(theirs.load(Relaxed), Relaxed);
        }
    }

    /// Makes an empty book that opens now. The state comes last, so that a reader who sees it
    /// `LIVE` sees the rest.
    pub fn open(&self, now_ns: u64, held: bool) {
        self.clear();
        self.opened_ns.store(now_ns, Relaxed);
        self.changed_ns.store(now_ns, Relaxed);
        self.closed_ns.store(0, Relaxed);
        self.gap.store(gap::IDLE, Relaxed);
        self.held_at_open.store(held as u32, Relaxed);
        self.held_now.store(held as u32, Relaxed);
        self.state.store(state::LIVE, std::sync::atomic::Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_gils_adds_counters_and_keeps_the_longest() {
        // SAFETY: all zero bytes are an unused book.
        let [sum, first, second] = unsafe { std::mem::zeroed::<[GilBook; 3]>() };
        for (book, takes, io_bound_ns, cpu_bound_ns) in [(&first, 3, 70, 10), (&second, 4, 20, 30)]
        {
            book.takes.store(takes, Relaxed);
            book.preemptions.store(takes, Relaxed);
            book.longest_io_bound_wait_ns.store(io_bound_ns, Relaxed);
            book.longest_cpu_bound_wait_ns.store(cpu_bound_ns, Relaxed);
        }
        sum.merge(&first);
        sum.merge(&second);
        assert_eq!(sum.takes.load(Relaxed), 7);
        assert_eq!(sum.preemptions.load(Relaxed), 7);
        assert_eq!(sum.longest_io_bound_wait_ns.load(Relaxed), 70);
        assert_eq!(sum.longest_cpu_bound_wait_ns.load(Relaxed), 30);
        sum.clear();
        assert!(sum.counters().into_iter().chain(sum.longest()).all(|one| one.load(Relaxed) == 0));
    }

    #[test]
    fn a_sum_of_threads_adds_counters_and_keeps_the_longest() {
        let [sum, first, second] = [const { ThreadBook::new() }; 3];
        for (book, preemptions, answer_ns) in [(&first, 3, 70), (&second, 4, 20)] {
            book.preemptions.store(preemptions, Relaxed);
            book.longest_answer_ns.store(answer_ns, Relaxed);
            book.longest_answer_cpu_ns.store(answer_ns / 2, Relaxed);
        }
        sum.merge(&first);
        sum.merge(&second);
        assert_eq!(sum.preemptions.load(Relaxed), 7);
        assert_eq!(sum.longest_answer_ns.load(Relaxed), 70);
        let copy = ThreadBook::new();
        copy.copy_from(&sum);
        assert_eq!(copy.longest().map(|longest| longest.load(Relaxed)), [70, 35]);
        sum.clear();
        assert_eq!(sum.longest().map(|longest| longest.load(Relaxed)), [0, 0]);
    }
}
