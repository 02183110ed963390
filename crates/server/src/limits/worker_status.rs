//! The state of one worker thread that other threads read: the monitor, the reporter, and the
//! thread that interrupts requests.

use crate::limits::in_flight::InFlightRequest;
use crate::stats::endpoints::endpoint_of;
use headway_measure::clock::now_ns;
use headway_threads::c_library::{ThreadNumber, number_of_this_thread};
use headway_threads::lock::Lock;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Longer request targets are truncated in messages.
const LINE_BYTES: usize = 200;

const RUNNING: u64 = 1;
const INTERRUPTING: u64 = 2;
const INTERRUPTED: u64 = 3;
const STATE: u64 = 3;
const BEGUN_SHIFT: u32 = 2;

pub struct WorkerStatus {
    /// The kernel's id of the thread.
    pub native_id: i32,
    /// The C library's id of the thread, by which CPython identifies it.
    pub thread: ThreadNumber,
    /// Whether any limit or report needs the fields below.
    is_tracked: bool,
    /// The interpreter slot that has the request. The thread writes it, the reporter's thread reads
    /// it for slow request reports; relaxed.
    slot: AtomicUsize,
    /// When the application was called; 0: not yet. Written and read like `slot`; relaxed.
    called_ns: AtomicU64,
    /// The number of the interpreter that runs the request; 0: not yet known. The thread writes it
    /// before it calls the application. The interrupting thread reads it while the request is in
    /// the application; relaxed, because `request` orders it.
    interpreter_number: AtomicUsize,
    /// The request that the thread runs: when it began, and in the lower bits its state.
    ///
    /// | begun | state | meaning |
    /// |---|---|---|
    /// | 0 | 0 | no request |
    /// | > 0 | `RUNNING` | the application runs it |
    /// | > 0 | `INTERRUPTING` | it runs, and another thread is setting an exception |
    /// | > 0 | `INTERRUPTED` | it runs, and the exception was set |
    /// | > 0 | 0 | the application is done with it |
    ///
    /// Writers: the thread for all transitions, except those from `RUNNING` to `INTERRUPTING` and
    /// on to `INTERRUPTED`, which the interrupting thread makes. Readers: any thread. `SeqCst`: the
    /// transitions are rare.
    request: AtomicU64,
    /// When the thread's last request ended; 0 before the first. The thread writes it, the monitor
    /// reads it; relaxed.
    ended_ns: AtomicU64,
    /// When the request that was last reported as overdue began, and when it was reported. Only the
    /// monitor reads and writes these; relaxed.
    reported_begun_ns: AtomicU64,
    reported_ns: AtomicU64,
    /// `METHOD target` of the request. The thread and its readers lock it for the time of a copy.
    line: Lock<Vec<u8>>,
    /// The description of the request, if slow requests are reported. The thread locks it between
    /// requests and when one ends; the reporter's thread locks it for the time of a copy.
    in_flight: Option<Lock<InFlightRequest>>,
}

/// A request that exceeds `request-timeout`.
pub struct Overdue {
    pub line: String,
    pub begun_ns: u64,
    pub run_ns: u64,
}

impl WorkerStatus {
    pub fn of_this_thread(is_tracked: bool, describes: bool) -> Self {
        Self {
            native_id: rustix::thread::gettid().as_raw_nonzero().get(),
            thread: number_of_this_thread(),
            is_tracked,
            interpreter_number: AtomicUsize::new(0),
            request: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            reported_begun_ns: AtomicU64::new(0),
            reported_ns: AtomicU64::new(0),
            line: Lock::default(),
            in_flight: describes.then(Lock::default),
            slot: AtomicUsize::new(0),
            called_ns: AtomicU64::new(0),
        }
    }

    /// Locks the description of the current or next request; `None` if slow requests are not
    /// reported. The worker thread fills it before the request begins.
    pub fn describe(&self) -> Option<MutexGuard<'_, InFlightRequest>> {
        let in_flight = self.in_flight.as_ref()?;
        Some(in_flight.lock())
    }

    /// Copies the description of the current request.
    pub fn in_flight(&self) -> Option<InFlightRequest> {
        self.describe().map(|in_flight| in_flight.clone())
    }

    /// Stores the Python stack of the request that began at `begun_ns`, or why it is not known. A
    /// failure does not replace an earlier stack.
    pub fn note_stack(&self, begun_ns: u64, stack: Result<String, &'static str>) {
        let Some(mut in_flight) = self.describe() else { return };
        let has_one = matches!(in_flight.stack, Some(Ok(_)));
        // The locked description belongs to the running request, or to one that has not begun.
        if self.begun_ns() == Some(begun_ns) && !(has_one && stack.is_err()) {
            in_flight.stack = Some(stack);
        }
    }

    /// Returns true if a stack was taken or tried for the request, or if the request has ended.
    pub fn has_stack(&self, begun_ns: u64) -> bool {
        let Some(in_flight) = self.describe() else { return true };
        self.begun_ns() != Some(begun_ns) || in_flight.stack.is_some()
    }

    pub fn set_slot(&self, slot: usize) {
        self.slot.store(slot, Relaxed);
    }

    pub fn slot(&self) -> usize {
        self.slot.load(Relaxed)
    }

    pub fn note_called(&self, now_ns: u64) {
        self.called_ns.store(now_ns, Relaxed);
    }

    pub fn called_ns(&self) -> u64 {
        self.called_ns.load(Relaxed)
    }

    /// The endpoint that the request's path leads to.
    pub fn endpoint(&self) -> String {
        let line = self.line.lock();
        let target = line.splitn(2, |byte| *byte == b' ').nth(1).unwrap_or_default();
        endpoint_of(target)
    }

    pub fn begin_request(&self, method: &[u8], target: &[u8]) {
        if self.is_tracked {
            let mut line = self.line.lock();
            line.clear();
            line.extend_from_slice(method);
            line.push(b' ');
            line.extend_from_slice(&target[..target.len().min(LINE_BYTES)]);
            self.called_ns.store(0, Relaxed);
            self.request.store(now_ns() << BEGUN_SHIFT | RUNNING, SeqCst);
        }
    }

    pub fn set_interpreter_number(&self, interpreter_number: usize) {
        self.interpreter_number.store(interpreter_number, Relaxed);
    }

    pub fn interpreter_number(&self) -> usize {
        self.interpreter_number.load(Relaxed)
    }

    /// Marks the request as done with the application, so that it is no longer interrupted.
    /// `forget` clears an exception that was set and perhaps not raised; `wait` briefly yields
    /// while another thread sets the exception.
    pub fn leave_application(&self, forget: impl FnOnce(), wait: impl Fn()) {
        if !self.is_tracked {
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
        if self.is_tracked {
            self.ended_ns.store(now_ns, Relaxed);
            self.request.store(0, SeqCst);
        }
    }

    /// Calls `set`, which sets an exception in the thread, unless the application is done with the
    /// request that began at `begun_ns`.
    pub fn interrupt(&self, begun_ns: u64, set: impl FnOnce(ThreadNumber)) {
        let begun = begun_ns << BEGUN_SHIFT;
        let (running, interrupting) = (begun | RUNNING, begun | INTERRUPTING);
        if self.request.compare_exchange(running, interrupting, SeqCst, SeqCst).is_ok() {
            set(self.thread);
            self.request.store(begun | INTERRUPTED, SeqCst);
        }
    }

    /// Returns true also while the exception is being set: without a GIL it may already be raised.
    pub fn is_interrupted(&self) -> bool {
        matches!(self.request.load(SeqCst) & STATE, INTERRUPTING | INTERRUPTED)
    }

    pub fn begun_ns(&self) -> Option<u64> {
        Some(self.request.load(SeqCst) >> BEGUN_SHIFT).filter(|ns| *ns != 0)
    }

    pub fn ended_ns(&self) -> Option<u64> {
        Some(self.ended_ns.load(Relaxed)).filter(|ns| *ns != 0)
    }

    /// Returns the request if it has run for longer than `limit_ns` and was not returned before.
    pub fn overdue(&self, now_ns: u64, limit_ns: u64) -> Option<Overdue> {
        let line = self.line.lock();
        // No other request begins while the lock is held, so `line` describes this request.
        let begun_ns = self.begun_ns()?;
        let run_ns = now_ns.saturating_sub(begun_ns);
        if run_ns <= limit_ns || self.reported_begun_ns.swap(begun_ns, Relaxed) == begun_ns {
            return None;
        }
        self.reported_ns.store(now_ns, Relaxed);
        let printable =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { *byte } else { b'?' };
        let line = line.iter().map(printable).map(char::from).collect();
        Some(Overdue { line, begun_ns, run_ns })
    }

    /// Returns true if the request that was reported as overdue still runs, more than `grace_ns`
    /// after the report.
    pub fn exceeds_grace(&self, now_ns: u64, grace_ns: u64) -> bool {
        self.begun_ns() == Some(self.reported_begun_ns.load(Relaxed))
            && now_ns.saturating_sub(self.reported_ns.load(Relaxed)) > grace_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_request_is_overdue_once() {
        let status = WorkerStatus::of_this_thread(true, false);
        assert!(status.overdue(u64::MAX, 5).is_none(), "no request runs");
        status.begin_request(b"GET", b"/slow\n");
        let begun_ns = status.begun_ns().unwrap();
        assert!(status.overdue(begun_ns + 5, 5).is_none());
        let overdue = status.overdue(begun_ns + 6, 5).unwrap();
        assert_eq!((&*overdue.line, overdue.run_ns), ("GET /slow?", 6));
        assert!(status.overdue(begun_ns + 7, 5).is_none());
        assert!(!status.exceeds_grace(begun_ns + 16, 10));
        assert!(status.exceeds_grace(begun_ns + 17, 10));
        status.end_request(begun_ns + 8);
        assert!(status.overdue(u64::MAX, 5).is_none());
        assert!(!status.exceeds_grace(u64::MAX, 10));
        status.begin_request(b"GET", &[b'x'; 1_000]);
        assert_eq!(status.overdue(u64::MAX, 5).unwrap().line.len(), 4 + LINE_BYTES);
    }

    #[test]
    fn an_untracked_thread_records_nothing() {
        let status = WorkerStatus::of_this_thread(false, false);
        status.begin_request(b"GET", b"/");
        status.leave_application(|| unreachable!(), || unreachable!());
        assert!(status.begun_ns().is_none() && status.ended_ns().is_none());
    }

    #[test]
    fn only_the_chosen_request_is_interrupted() {
        let status = WorkerStatus::of_this_thread(true, false);
        status.begin_request(b"GET", b"/one");
        let first_ns = status.begun_ns().unwrap();
        let set = Cell::new(0);
        status.interrupt(first_ns, |_| set.set(set.get() + 1));
        assert!(status.is_interrupted());
        status.interrupt(first_ns, |_| unreachable!("it was interrupted already"));
        let forgotten = Cell::new(false);
        status.leave_application(|| forgotten.set(true), || unreachable!());
        assert!(set.get() == 1 && forgotten.get());
        status.interrupt(first_ns, |_| unreachable!("the application is done"));
        status.end_request(1);
        std::thread::sleep(std::time::Duration::from_nanos(10));
        status.begin_request(b"GET", b"/two");
        status.interrupt(first_ns, |_| unreachable!("another request runs"));
        status.leave_application(|| unreachable!("nothing was set"), || unreachable!());
    }

    #[test]
    fn leaving_the_application_waits_for_an_exception_being_set() {
        let status = WorkerStatus::of_this_thread(true, false);
        status.begin_request(b"GET", b"/");
        let begun_ns = status.begun_ns().unwrap();
        let (setting, waited) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                status.interrupt(begun_ns, |_| {
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
            status.leave_application(forget, || waited.store(1, SeqCst));
        });
    }
}
