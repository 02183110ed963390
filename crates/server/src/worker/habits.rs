//! What requests for a path have done the last times: whether they compute for long.
//!
//! A policy learns that a thread is CPU-bound after a millisecond, in which short requests wait for it. A
//! request for a page that has always computed for long need not begin as if nobody knew. Guessing wrong
//! costs the request a place behind those that compute, so it takes several in a row, and one that was
//! short ends it.
//!
//! Knows nothing of Python. All worker threads write and read it, with relaxed atomics: each word stands
//! alone, and of racing writers one loses what it had to say.

use crate::record::RequestRecord;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// A request that held the GIL for so long in all, and for 7/8 of the time that it did not wait, computed.
const LONG_HOLD_NS: u64 = 2_000_000;
/// So many in a row make a habit.
const ESTABLISHED: u32 = 3;
const WORDS: usize = 256;
const COUNT_MASK: u32 = 0xff;

/// | a word | its path |
/// |---|---|
/// | 0 | no request for it computed, or not the last one |
/// | tag, count in the low 8 bits | the last `count` did, which is at most `ESTABLISHED` |
///
/// Paths that share a word push each other out.
pub struct Habits {
    words: [AtomicU32; WORDS],
    /// Whether any word was ever written: while all requests are short nothing is looked up.
    is_known: AtomicBool,
}

/// Where a path has its word, and what tells it from others there.
#[derive(Clone, Copy)]
pub struct Key {
    word: usize,
    tag: u32,
}

impl Habits {
    pub fn new() -> Self {
        Self { words: [const { AtomicU32::new(0) }; WORDS], is_known: AtomicBool::new(false) }
    }

    /// Of the requests with this method for this target, whatever its query.
    pub fn key(method: &[u8], target: &[u8]) -> Key {
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let mut hasher = FxHasher::default();
        (method, &target[..end]).hash(&mut hasher);
        let hash = hasher.finish();
        Key { word: hash as usize % WORDS, tag: (hash >> 32) as u32 & !COUNT_MASK }
    }

    pub fn are_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// Whether a request that begins now is expected to compute for long.
    pub fn expect_long(&self, key: Key) -> bool {
        self.words[key.word].load(Relaxed) == key.tag | ESTABLISHED
    }

    pub fn learn(&self, key: Key, computed: bool) {
        let word = &self.words[key.word];
        let known = word.load(Relaxed);
        let is_of_path = known & COUNT_MASK != 0 && known & !COUNT_MASK == key.tag;
        if computed {
            let count = if is_of_path { known & COUNT_MASK } else { 0 };
            word.store(key.tag | (count + 1).min(ESTABLISHED), Relaxed);
            self.is_known.store(true, Relaxed);
        } else if is_of_path {
            word.store(0, Relaxed);
        }
    }
}

/// Whether the request did little else than hold the GIL, for long.
pub fn computed(record: &RequestRecord) -> bool {
    let (Some(held_ns), Some(waited_ns)) = (record.gil_held_ns, record.gil_wait_ns) else {
        return false;
    };
    let active_ns = record.application_ns.saturating_sub(waited_ns);
    held_ns >= LONG_HOLD_NS && held_ns / 7 > active_ns / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_long_requests_in_a_row_make_a_habit_and_a_short_one_ends_it() {
        let habits = Habits::new();
        let key = Habits::key(b"GET", b"/report?year=2026");
        for _ in 0..ESTABLISHED {
            assert!(!habits.expect_long(key));
            habits.learn(key, true);
        }
        assert!(habits.expect_long(Habits::key(b"GET", b"/report")));
        habits.learn(key, true);
        assert!(habits.expect_long(key));
        habits.learn(key, false);
        assert!(!habits.expect_long(key));
    }

    #[test]
    fn methods_and_paths_have_habits_of_their_own() {
        let habits = Habits::new();
        (0..ESTABLISHED).for_each(|_| habits.learn(Habits::key(b"POST", b"/report"), true));
        habits.learn(Habits::key(b"GET", b"/report"), false);
        assert!(!habits.expect_long(Habits::key(b"GET", b"/report")));
        assert!(!habits.expect_long(Habits::key(b"POST", b"/reports")));
        assert!(habits.expect_long(Habits::key(b"POST", b"/report")));
    }

    #[test]
    fn paths_that_share_a_word_push_each_other_out() {
        let (habits, key) = (Habits::new(), Habits::key(b"GET", b"/one"));
        let other = Key { tag: key.tag ^ 0x100, ..key };
        (0..ESTABLISHED).for_each(|_| habits.learn(key, true));
        habits.learn(other, false);
        assert!(habits.expect_long(key));
        habits.learn(other, true);
        assert!(!habits.expect_long(key) && !habits.expect_long(other));
    }

    #[test]
    fn who_waits_for_something_else_did_not_compute() {
        let record = |application_ms: u64, waited_ms: u64, held_ms: u64| RequestRecord {
            application_ns: application_ms * 1_000_000,
            gil_wait_ns: Some(waited_ms * 1_000_000),
            gil_held_ns: Some(held_ms * 1_000_000),
            ..RequestRecord::default()
        };
        assert!(computed(&record(400, 200, 199)));
        assert!(!computed(&record(400, 200, 150)));
        assert!(!computed(&record(1, 0, 1)));
        assert!(!computed(&RequestRecord { gil_held_ns: None, ..record(400, 200, 199) }));
    }
}
