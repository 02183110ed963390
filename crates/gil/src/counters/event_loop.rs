//! The counters of one event loop, or a sum of loops that ended.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*, fence};

use headway_measure::{AtomicHistogram, add};

use super::text::Name;

/// The counters of one event loop, or a sum of loops that ended; see `loops`.
///
/// Writer: the thread that runs the loop; the sum's are holders of the registry lock. Fields that
/// the reader of stacks writes say so.
#[repr(C)]
pub struct LoopCounters {
    /// See [`state`](super::state).
    pub state: AtomicU32,
    /// Odd while the thread changes the counters.
    sequence: AtomicU32,
    /// A number that no other counters of the process have had; 0 in a sum.
    pub serial: AtomicU32,
    /// Changes when the thread runs another loop.
    pub loops: AtomicU32,
    /// The kernel's thread ID; 0 in a sum.
    pub native_id: AtomicU32,
    /// How many ended loops this sum stands for; 0 for a single loop.
    pub aggregated: AtomicU32,
    /// The descriptor that the loop waits on; -1 if it has been closed, by any thread.
    pub descriptor: AtomicI32,
    /// Another descriptor that the thread waits on within an iteration, and how often it did.
    pub other_descriptor: AtomicI32,
    pub other_waits: AtomicU32,
    pub name: Name,
    /// When the present iteration began; 0 while the thread waits for events, and when it has left
    /// the loop.
    pub iteration_began_ns: AtomicU64,
    /// The number of iterations that have begun.
    pub begun: AtomicU64,
    /// The number of an iteration in which the thread has left the loop's code; it does not count.
    /// Writers: the reader of stacks, and the program.
    pub left: AtomicU64,
    /// The number of an iteration that is late and in which the thread was seen to run the loop.
    /// Writer: the reader of stacks.
    pub seen: AtomicU64,
    /// The thread's times on GILs when the present iteration began.
    pub held_before_ns: AtomicU64,
    pub waited_before_ns: AtomicU64,
    /// A reading of the thread's CPU clock, and the time since then that counts as CPU time because
    /// the thread did not sleep.
    pub cpu_noted_ns: AtomicU64,
    pub awake_since_ns: AtomicU64,
    /// The time in which the thread waited for events.
    pub polled_ns: AtomicU64,
    /// The part of `blocked` in which the thread ran, as in C code without the GIL.
    pub ran_blocked_ns: AtomicU64,
    /// The part of `blocked` in which the thread waited for a core, as far as it was read. Writer:
    /// the reader of stacks.
    pub core_waited_ns: AtomicU64,
    /// Half the sum of the squares of all iterations, in square microseconds: divided by the time,
    /// how long an event that comes at a random moment waits for the end of an iteration.
    pub half_squares_us2: AtomicU64,
    /// The iterations that were late, and the sums of their parts.
    pub late: AtomicU64,
    pub late_computed_ns: AtomicU64,
    pub late_waited_ns: AtomicU64,
    pub late_blocked_ns: AtomicU64,
    /// The part of `late_blocked_ns` in which the thread ran.
    pub late_ran_blocked_ns: AtomicU64,
    /// The number of the last late iteration, and its parts.
    last_late: AtomicU64,
    last_late_ns: [AtomicU64; 3],
    /// Iterations, and their parts: with the GIL, for the GIL, and neither.
    pub duration: AtomicHistogram,
    pub computed: AtomicHistogram,
    pub waited: AtomicHistogram,
    pub blocked: AtomicHistogram,
}

impl LoopCounters {
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            serial: AtomicU32::new(0),
            loops: AtomicU32::new(0),
            native_id: AtomicU32::new(0),
            aggregated: AtomicU32::new(0),
            descriptor: AtomicI32::new(0),
            other_descriptor: AtomicI32::new(0),
            other_waits: AtomicU32::new(0),
            name: Name::new(),
            iteration_began_ns: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            left: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            held_before_ns: AtomicU64::new(0),
            waited_before_ns: AtomicU64::new(0),
            cpu_noted_ns: AtomicU64::new(0),
            awake_since_ns: AtomicU64::new(0),
            polled_ns: AtomicU64::new(0),
            ran_blocked_ns: AtomicU64::new(0),
            core_waited_ns: AtomicU64::new(0),
            half_squares_us2: AtomicU64::new(0),
            late: AtomicU64::new(0),
            late_computed_ns: AtomicU64::new(0),
            late_waited_ns: AtomicU64::new(0),
            late_blocked_ns: AtomicU64::new(0),
            late_ran_blocked_ns: AtomicU64::new(0),
            last_late: AtomicU64::new(0),
            last_late_ns: [const { AtomicU64::new(0) }; 3],
            duration: AtomicHistogram::new(),
            computed: AtomicHistogram::new(),
            waited: AtomicHistogram::new(),
            blocked: AtomicHistogram::new(),
        }
    }

    /// Runs `change` so that `copy_from` copies all of it or nothing.
    #[inline]
    pub fn changing(&self, change: impl FnOnce()) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        change();
        self.sequence.store(sequence.wrapping_add(2), Release);
    }

    /// The iteration that ends was late. Within `changing`.
    pub fn note_late_parts(&self, parts_ns: [u64; 3]) {
        self.last_late.store(self.begun.load(Relaxed), Relaxed);
        for (noted, ns) in self.last_late_ns.iter().zip(parts_ns) {
            noted.store(ns, Relaxed);
        }
    }

    /// The parts of the iteration with this number: computed, waited, blocked. `None` if it was not
    /// late, or is not the last one that was.
    pub fn late_parts(&self, number: u64) -> Option<[u64; 3]> {
        let before = self.sequence.load(Acquire);
        let is_last = self.last_late.load(Relaxed) == number;
        let parts_ns = [0, 1, 2].map(|part: usize| self.last_late_ns[part].load(Relaxed));
        fence(Acquire);
        (before % 2 == 0 && is_last && self.sequence.load(Relaxed) == before).then_some(parts_ns)
    }

    /// Makes these counters a copy of `other` between two changes. If there is none for long, as in
    /// the file of a process that was killed, it is a copy of the last moment.
    pub fn copy_from(&self, other: &Self) {
        const TRIES: u32 = 1_000;
        for _ in 0..TRIES {
            let before = other.sequence.load(Acquire);
            self.copy_once(other);
            fence(Acquire);
            if before % 2 == 0 && other.sequence.load(Relaxed) == before {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn copy_once(&self, other: &Self) {
        for (mine, theirs) in [
            (&self.state, &other.state),
            (&self.serial, &other.serial),
            (&self.native_id, &other.native_id),
            (&self.aggregated, &other.aggregated),
        ] {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        self.descriptor.store(other.descriptor.load(Relaxed), Relaxed);
        self.iteration_began_ns.store(other.iteration_began_ns.load(Relaxed), Relaxed);
        self.begun.store(other.begun.load(Relaxed), Relaxed);
        self.left.store(other.left.load(Relaxed), Relaxed);
        self.seen.store(other.seen.load(Relaxed), Relaxed);
        self.name.copy_from(&other.name);
        for (mine, theirs) in self.sums().into_iter().zip(other.sums()) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
        for (mine, theirs) in self.histograms().into_iter().zip(other.histograms()) {
            mine.copy_from(theirs);
        }
    }

    /// Adds the counters of a loop that has ended.
    pub fn merge(&self, ended: &Self) {
        for (mine, theirs) in self.sums().into_iter().zip(ended.sums()) {
            add(mine, theirs.load(Relaxed));
        }
        for (mine, theirs) in self.histograms().into_iter().zip(ended.histograms()) {
            mine.merge(theirs);
        }
        self.aggregated.fetch_add(ended.aggregated.load(Relaxed).max(1), Relaxed);
    }

    /// Clears everything but the state.
    pub fn clear(&self) {
        for number in [&self.serial, &self.native_id, &self.aggregated, &self.other_waits] {
            number.store(0, Relaxed);
        }
        self.descriptor.store(-1, Relaxed);
        self.name.set(b"");
        for number in [
            &self.iteration_began_ns,
            &self.begun,
            &self.left,
            &self.seen,
            &self.held_before_ns,
            &self.waited_before_ns,
            &self.cpu_noted_ns,
            &self.awake_since_ns,
            &self.last_late,
        ] {
            number.store(0, Relaxed);
        }
        self.sums().iter().for_each(|sum| sum.store(0, Relaxed));
        self.histograms().iter().for_each(|histogram| histogram.clear());
    }

    fn sums(&self) -> [&AtomicU64; 9] {
        [
            &self.polled_ns,
            &self.ran_blocked_ns,
            &self.core_waited_ns,
            &self.half_squares_us2,
            &self.late,
            &self.late_computed_ns,
            &self.late_waited_ns,
            &self.late_blocked_ns,
            &self.late_ran_blocked_ns,
        ]
    }

    fn histograms(&self) -> [&AtomicHistogram; 4] {
        [&self.duration, &self.computed, &self.waited, &self.blocked]
    }
}
