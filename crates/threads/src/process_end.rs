//! The end of a process in which no thread but those of Headway is left.
//!
//! A process whose main thread has ended, by `pthread_exit` or because it is a child that another
//! thread has forked, ends when its last thread returns: glibc then calls `exit(0)`. So a thread of
//! Headway that runs as long as the process returns when it sees that only such threads are left.
//! It looks after the end of a thread, some more times until the kernel has removed that thread,
//! and once in `LOOK`, for threads that `note_end_of_thread` does not see.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::wakes::wake_all;

const LOOK: Duration = Duration::from_secs(1);
const FIRST_LOOK: Duration = Duration::from_micros(500);

/// The threads of Headway. Written by each of them, at its beginning and end: until its beginning
/// and after its end the kernel counts more threads than this, never fewer. Read by those that look
/// for the end. `SeqCst` here and below: threads begin and end rarely.
static INTERNAL_THREADS: AtomicU32 = AtomicU32::new(0);
/// The same, with those that have been started and do not run yet. Written by the threads that
/// start one too, read by threads that fork.
static STARTED_THREADS: AtomicU32 = AtomicU32::new(0);
/// Counts the changes of `INTERNAL_THREADS`. Written by the same threads, before and after each;
/// read by those that look for the end.
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// Whether the main thread has ended. Written by that thread, read by threads that end and by those
/// that look.
static MAIN_HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// The number of threads that have ended since then, with the main thread. Written by these
/// threads, read by those that look.
static ENDS: AtomicU32 = AtomicU32::new(0);
/// Whether only threads of Headway are left. Written by the thread that sees it first, read by the
/// others.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Counts a thread of Headway until it is dropped: by that thread, or without having begun.
pub(crate) struct Counted {
    has_begun: bool,
}

impl Counted {
    /// Before the thread is started.
    pub(crate) fn start() -> Self {
        STARTED_THREADS.fetch_add(1, SeqCst);
        Self { has_begun: false }
    }

    /// In the thread.
    pub(crate) fn begin(&mut self) {
        change_internal_threads(|| INTERNAL_THREADS.fetch_add(1, SeqCst));
        self.has_begun = true;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.has_begun {
            change_internal_threads(|| INTERNAL_THREADS.fetch_sub(1, SeqCst));
        }
        STARTED_THREADS.fetch_sub(1, SeqCst);
    }
}

fn change_internal_threads(change: impl FnOnce() -> u32) {
    CHANGES.fetch_add(1, SeqCst);
    change();
    CHANGES.fetch_add(1, SeqCst);
}

/// Notes that the calling thread, one of the program's, is about to end. Returns true if the
/// threads of Headway must look; those that wait with a `Waker` are woken.
pub fn note_end_of_thread() -> bool {
    // SAFETY: no preconditions.
    if unsafe { libc::gettid() == libc::getpid() } {
        MAIN_HAS_ENDED.store(true, SeqCst);
    }
    let must_look = MAIN_HAS_ENDED.load(SeqCst);
    if must_look {
        ENDS.fetch_add(1, SeqCst);
        wake_all();
    }
    must_look
}

pub(crate) fn forget_threads() {
    INTERNAL_THREADS.store(0, SeqCst);
    STARTED_THREADS.store(0, SeqCst);
    CHANGES.store(0, SeqCst);
    MAIN_HAS_ENDED.store(false, SeqCst);
    IS_OVER.store(false, SeqCst);
}

/// The number of the program's threads in this process. `None` without /proc.
pub fn threads_of_program() -> Option<u32> {
    let started = STARTED_THREADS.load(SeqCst);
    main_thread_and_count().map(|(_, threads)| threads.saturating_sub(started))
}

/// The state of the main thread, and the number of threads.
fn main_thread_and_count() -> Option<(u8, u32)> {
    let stat = std::fs::read("/proc/self/stat").ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    // Fields 3 and 20 of proc_pid_stat(5).
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    Some((state, fields.nth(16)?.parse().ok()?))
}

/// The looks of one thread of Headway.
pub struct ProcessEnd {
    next_look: Instant,
    pause: Duration,
    ends_seen: u32,
}

impl ProcessEnd {
    pub fn watch() -> Self {
        let ends_seen = ENDS.load(SeqCst);
        Self { next_look: Instant::now() + FIRST_LOOK, pause: FIRST_LOOK, ends_seen }
    }

    /// The time until `is_here` is to be called again.
    pub fn next_look_in(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Whether the calling thread must return. Looks if it is time.
    pub fn is_here(&mut self) -> bool {
        let (ends, now) = (ENDS.load(SeqCst), Instant::now());
        if ends != self.ends_seen {
            (self.ends_seen, self.next_look, self.pause) = (ends, now, FIRST_LOOK);
        }
        if now >= self.next_look {
            if only_internal_threads_are_left() {
                IS_OVER.store(true, SeqCst);
                wake_all();
            }
            self.next_look = now + self.pause;
            self.pause = LOOK.min(self.pause * 2);
        }
        IS_OVER.load(SeqCst)
    }
}

/// Where /proc cannot be read (chroot, no descriptor left), the threads of Headway return with the
/// main thread: glibc ends the process with its last thread, whichever that is.
fn only_internal_threads_are_left() -> bool {
    let (changes, internal) = (CHANGES.load(SeqCst), INTERNAL_THREADS.load(SeqCst));
    let Some((main_thread, threads)) = main_thread_and_count() else {
        return MAIN_HAS_ENDED.load(SeqCst);
    };
    // A thread of Headway that begins or ends meanwhile may be in one of the numbers alone.
    let is_stable = changes % 2 == 0 && changes == CHANGES.load(SeqCst);
    is_stable && matches!(main_thread, b'Z' | b'X') && threads == internal + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_the_threads() {
        let (state, threads) = main_thread_and_count().unwrap();
        assert!(state.is_ascii_uppercase());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv());
        assert!(threads_of_program().unwrap() >= 1 && threads >= 1);
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn a_process_with_a_main_thread_goes_on() {
        let mut end = ProcessEnd::watch();
        for _ in 0..20 {
            std::thread::sleep(end.next_look_in().min(Duration::from_millis(2)));
            assert!(!end.is_here());
        }
        assert!(end.next_look_in() > FIRST_LOOK);
    }
}
