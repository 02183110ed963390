//! What one worker thread runs, as others see it: the monitor, and whoever interrupts it.

use crate::limits::in_flight::InFlightRequest;
use crate::stats::clock::now_ns;
use crate::stats::endpoints::endpoint_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// As much of `METHOD target` as a message needs.
const LINE_BYTES: usize = 200;

const RUNNING: u64 = 1;
const INTERRUPTING: u64 = 2;
const INTERRUPTED: u64 = 3;
const STATE: u64 = 3;
const BEGUN_SHIFT: u32 = 2;

pub struct WorkerStatus {
    /// The kernel's id of the thread.
    pub native_id: i32,
    /// The C library's, by which CPython knows it.
    pub thread: libc::pthread_t,
    /// Whether a limit needs any of this.
    wanted: bool,
    /// Which of the application's places has the request, and when it was called; 0: not yet. Written by the
    /// thread, read by who tells of slow requests; relaxed.
    place: AtomicUsize,
    called_ns: AtomicU64,
    /// Who of the application has the request, by a number of its own; 0: nobody yet. Written by the
    /// thread before it calls the application, read by an interrupter while it is there; relaxed,
    /// ordered by `request`.
    holder: AtomicUsize,
    /// The request that the thread runs: when it began, and in the lower bits its state.
    ///
    /// | begun | state | meaning |
    /// |---|---|---|
    /// | 0 | 0 | none |
    /// | > 0 | `RUNNING` | the application has it |
    /// | > 0 | `INTERRUPTING` | and somebody is about to set an exception in its thread |
    /// | > 0 | `INTERRUPTED` | and somebody has |
    /// | > 0 | 0 | the application is done with it |
    ///
    /// Writers: the thread; from `RUNNING` to `INTERRUPTED` the interrupter. `SeqCst`: none of it is
    /// frequent.
    request: AtomicU64,
    /// When its last request ended; 0 before the first. Written by the thread; relaxed.
    ended_ns: AtomicU64,
    /// The beginning of the request that the monitor has told of last, and when it did. Its own.
    told_begun_ns: AtomicU64,
    told_ns: AtomicU64,
    /// The request in words. Locked by the thread for the time of a copy, by the monitor likewise.
    line: Mutex<Vec<u8>>,
    /// And more of it, if slow requests are told of. Locked by the thread between requests and when one ends, by
    /// who tells of it for the time of a copy.
    in_flight: Option<Mutex<InFlightRequest>>,
}

/// A request that runs for too long.
pub struct Overdue {
    pub line: String,
    pub begun_ns: u64,
    pub run_ns: u64,
}

impl WorkerStatus {
    pub fn of_this_thread(wanted: bool, describes: bool) -> Self {
        Self {
            // SAFETY: no preconditions.
            native_id: unsafe { libc::gettid() },
            // SAFETY: likewise.
            thread: unsafe { libc::pthread_self() },
            wanted,
            holder: AtomicUsize::new(0),
            request: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            told_begun_ns: AtomicU64::new(0),
            told_ns: AtomicU64::new(0),
            line: Mutex::default(),
            in_flight: describes.then(Mutex::default),
            place: AtomicUsize::new(0),
            called_ns: AtomicU64::new(0),
        }
    }

    /// What is to be told of the request that begins next, or runs; `None` if nothing is. For the thread.
    pub fn describe(&self) -> Option<MutexGuard<'_, InFlightRequest>> {
        let in_flight = self.in_flight.as_ref()?;
        Some(in_flight.lock().expect("no panic under this lock"))
    }

    /// A copy of that.
    pub fn in_flight(&self) -> Option<InFlightRequest> {
        self.describe().map(|in_flight| in_flight.clone())
    }

    /// What of Python the request that began then runs, or why that is not known: the last that was seen of it.
    pub fn note_stack(&self, begun_ns: u64, stack: Result<String, &'static str>) {
        let Some(mut in_flight) = self.describe() else { return };
        let has_one = matches!(in_flight.stack, Some(Ok(_)));
        // What is locked is of the request that runs, or of one that has not begun.
        if self.begun_ns() == Some(begun_ns) && !(has_one && stack.is_err()) {
            in_flight.stack = Some(stack);
        }
    }

    /// Whether it was looked at, or has ended.
    pub fn has_stack(&self, begun_ns: u64) -> bool {
        let Some(in_flight) = self.describe() else { return true };
        self.begun_ns() != Some(begun_ns) || in_flight.stack.is_some()
    }

    pub fn set_place(&self, place: usize) {
        self.place.store(place, Relaxed);
    }

    pub fn place(&self) -> usize {
        self.place.load(Relaxed)
    }

    pub fn note_called(&self, now_ns: u64) {
        self.called_ns.store(now_ns, Relaxed);
    }

    pub fn called_ns(&self) -> u64 {
        self.called_ns.load(Relaxed)
    }

    /// What the request is for, as far as its path says.
    pub fn endpoint(&self) -> String {
        let line = self.line.lock().expect("no panic under this lock");
        let target = line.splitn(2, |byte| *byte == b' ').nth(1).unwrap_or_default();
        endpoint_of(target)
    }

    pub fn begin_request(&self, method: &[u8], target: &[u8]) {
        if self.wanted {
            let mut line = self.line.lock().expect("no panic under this lock");
            line.clear();
            line.extend_from_slice(method);
            line.push(b' ');
            line.extend_from_slice(&target[..target.len().min(LINE_BYTES)]);
            self.called_ns.store(0, Relaxed);
            self.request.store(now_ns() << BEGUN_SHIFT | RUNNING, SeqCst);
        }
    }

    pub fn set_holder(&self, holder: usize) {
        self.holder.store(holder, Relaxed);
    }

    pub fn holder(&self) -> usize {
        self.holder.load(Relaxed)
    }

    /// The application is done with the request, and is not to be interrupted any more. `forget` takes
    /// back an exception that was set and perhaps not raised; `wait` lets a moment pass.
    pub fn leave_application(&self, forget: impl FnOnce(), wait: impl Fn()) {
        if !self.wanted {
            return;
        }
        loop {
            let word = self.request.load(SeqCst);
            if word & STATE == INTERRUPTING {
                wait();
            } else if self.request.compare_exchange(word, word & !STATE, SeqCst, SeqCst).is_ok() {
                if word & STATE == INTERRUPTED {
                    forget();
                }
                return;
            }
        }
    }

    pub fn end_request(&self, now_ns: u64) {
        if self.wanted {
            self.ended_ns.store(now_ns, Relaxed);
            self.request.store(0, SeqCst);
        }
    }

    /// Calls `set`, which sets an exception in the thread, unless the application is done with the
    /// request that began then.
    pub fn interrupt(&self, begun_ns: u64, set: impl FnOnce(libc::pthread_t)) {
        let begun = begun_ns << BEGUN_SHIFT;
        let (running, interrupting) = (begun | RUNNING, begun | INTERRUPTING);
        if self.request.compare_exchange(running, interrupting, SeqCst, SeqCst).is_ok() {
            set(self.thread);
            self.request.store(begun | INTERRUPTED, SeqCst);
        }
    }

    /// Also when the exception is just being set: without a GIL it may be raised already.
    pub fn is_interrupted(&self) -> bool {
        matches!(self.request.load(SeqCst) & STATE, INTERRUPTING | INTERRUPTED)
    }

    pub fn begun_ns(&self) -> Option<u64> {
        Some(self.request.load(SeqCst) >> BEGUN_SHIFT).filter(|ns| *ns != 0)
    }

    pub fn ended_ns(&self) -> Option<u64> {
        Some(self.ended_ns.load(Relaxed)).filter(|ns| *ns != 0)
    }

    /// The request, if it has run for longer than `limit_ns` and was not told of.
    pub fn overdue(&self, now_ns: u64, limit_ns: u64) -> Option<Overdue> {
        let line = self.line.lock().expect("no panic under this lock");
        // Under the lock no other request begins, so this is the one that `line` says.
        let begun_ns = self.begun_ns()?;
        let run_ns = now_ns.saturating_sub(begun_ns);
        if run_ns <= limit_ns || self.told_begun_ns.swap(begun_ns, Relaxed) == begun_ns {
            return None;
        }
        self.told_ns.store(now_ns, Relaxed);
        let graphic =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { *byte } else { b'?' };
        let line = line.iter().map(graphic).map(char::from).collect();
        Some(Overdue { line, begun_ns, run_ns })
    }

    /// Whether the request that was told of runs on, for longer than `grace_ns` since.
    pub fn outlasts(&self, now_ns: u64, grace_ns: u64) -> bool {
        self.begun_ns() == Some(self.told_begun_ns.load(Relaxed))
            && now_ns.saturating_sub(self.told_ns.load(Relaxed)) > grace_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_request_is_overdue_once() {
        let activity = WorkerStatus::of_this_thread(true, false);
        assert!(activity.overdue(u64::MAX, 5).is_none(), "none runs");
        activity.begin_request(b"GET", b"/slow\n");
        let begun_ns = activity.begun_ns().unwrap();
        assert!(activity.overdue(begun_ns + 5, 5).is_none());
        let overdue = activity.overdue(begun_ns + 6, 5).unwrap();
        assert_eq!((&*overdue.line, overdue.run_ns), ("GET /slow?", 6));
        assert!(activity.overdue(begun_ns + 7, 5).is_none());
        assert!(!activity.outlasts(begun_ns + 16, 10));
        assert!(activity.outlasts(begun_ns + 17, 10));
        activity.end_request(begun_ns + 8);
        assert!(activity.overdue(u64::MAX, 5).is_none());
        assert!(!activity.outlasts(u64::MAX, 10));
        activity.begin_request(b"GET", &[b'x'; 1_000]);
        assert_eq!(activity.overdue(u64::MAX, 5).unwrap().line.len(), 4 + LINE_BYTES);
    }

    #[test]
    fn nothing_is_kept_that_no_limit_needs() {
        let activity = WorkerStatus::of_this_thread(false, false);
        activity.begin_request(b"GET", b"/");
        activity.leave_application(|| unreachable!(), || unreachable!());
        assert!(activity.begun_ns().is_none() && activity.ended_ns().is_none());
    }

    #[test]
    fn only_the_request_that_was_meant_is_interrupted() {
        let activity = WorkerStatus::of_this_thread(true, false);
        activity.begin_request(b"GET", b"/one");
        let first_ns = activity.begun_ns().unwrap();
        let set = Cell::new(0);
        activity.interrupt(first_ns, |_| set.set(set.get() + 1));
        assert!(activity.is_interrupted());
        activity.interrupt(first_ns, |_| unreachable!("it was interrupted already"));
        let forgotten = Cell::new(false);
        activity.leave_application(|| forgotten.set(true), || unreachable!());
        assert!(set.get() == 1 && forgotten.get());
        activity.interrupt(first_ns, |_| unreachable!("the application is done"));
        activity.end_request(1);
        std::thread::sleep(std::time::Duration::from_nanos(10));
        activity.begin_request(b"GET", b"/two");
        activity.interrupt(first_ns, |_| unreachable!("another request runs"));
        activity.leave_application(|| unreachable!("nothing was set"), || unreachable!());
    }

    #[test]
    fn an_exception_under_way_is_waited_for() {
        let activity = WorkerStatus::of_this_thread(true, false);
        activity.begin_request(b"GET", b"/");
        let begun_ns = activity.begun_ns().unwrap();
        let (setting, waited) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                activity.interrupt(begun_ns, |_| {
                    setting.store(1, SeqCst);
                    while waited.load(SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                    setting.store(2, SeqCst);
                });
            });
            while setting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let forget = || assert_eq!(setting.load(SeqCst), 2);
            activity.leave_application(forget, || waited.store(1, SeqCst));
        });
    }
}
