//! An interpreter that runs requests: the main interpreter, from which the worker threads come, or
//! a sub-interpreter that was made for an application group and ends before the process does.
//!
//! One Python thread, the interpreter manager, makes, enters and ends the sub-interpreters; the
//! first thread state of each belongs to it. Worker threads have thread states of their own, which
//! are kept here. Each worker deletes its own, between two requests: from 3.12 on CPython has a
//! thread-local pointer to the state that its thread attached last (for `PyGILState_Ensure`), and
//! another thread that deletes the state would clear its own pointer instead.

use crate::http::Rejection;
use crate::interpreters::departing_threads;
use crate::interpreters::thread_state::{ThreadMeter, WorkerThreadState};
use crate::request::RequestContext;
use crate::wsgi::adapter::Adapter;
use headway_python::attached::Attached;
use headway_python::interpreter::{SubInterpreter, run_exit_handlers};
use headway_threads::lock::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How often the interpreter manager looks whether threads have left the interpreter.
const LOOK: Duration = Duration::from_millis(2);
/// How long threads of the application that are ending may take.
const ENDING: Duration = Duration::from_millis(200);

pub struct Interpreter {
    /// `None`: the main interpreter, in which the worker threads have thread states already.
    sub: Option<SubInterpreter>,
    /// Unique among all interpreters that the process ever had; from 1.
    pub number: usize,
    /// Removed at the end. Locked while a visitor waits for the GIL, so it must not be locked by a
    /// thread that holds a GIL which others may need here.
    adapter: Lock<Option<Arc<Adapter>>>,
    /// By number of the worker thread, which locks it while it runs a request here, and empties it.
    thread_states: Box<[Lock<Option<WorkerThreadState>>]>,
    /// No request begins here any more. The interpreter manager sets it before it looks at
    /// `thread_states`; threads read it after they have locked theirs. `SeqCst`.
    is_retired: AtomicBool,
    /// No request runs here any more, and worker threads must empty `thread_states`. Set by the
    /// interpreter manager, read by worker threads; `SeqCst`.
    is_draining: AtomicBool,
    /// Requests that began here. Written and read by worker threads; relaxed.
    requests: AtomicU64,
    /// Written and read by the interpreter manager; relaxed.
    has_ended: AtomicBool,
}

/// The interpreter takes no more requests.
pub struct Retired;

impl Interpreter {
    /// The one that the calling thread is attached to.
    pub fn main(adapter: Adapter) -> Self {
        Self::new(None, Some(Arc::new(adapter)), 0)
    }

    /// A new sub-interpreter for up to `threads` worker threads. The error is CPython's reason.
    pub fn create(py: Attached, own_gil: bool, threads: usize) -> Result<Self, String> {
        Ok(Self::new(Some(SubInterpreter::create(py, own_gil)?), None, threads))
    }

    fn new(sub: Option<SubInterpreter>, adapter: Option<Arc<Adapter>>, threads: usize) -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        Self {
            sub,
            number: LAST.fetch_add(1, Relaxed) + 1,
            adapter: Lock::new(adapter),
            thread_states: (0..threads).map(|_| Lock::default()).collect(),
            is_retired: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    pub fn adapter(&self) -> Option<Arc<Adapter>> {
        self.adapter.lock().clone()
    }

    /// From now on requests may run here. Called inside `enter`.
    pub fn set_adapter(&self, adapter: Adapter) {
        *self.adapter.lock() = Some(Arc::new(adapter));
    }

    pub fn is_main(&self) -> bool {
        self.sub.is_none()
    }

    /// Counts a request; returns how many there were.
    pub fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed) + 1
    }

    /// Runs a request in a sub-interpreter. Called detached; `number` is the calling thread's.
    pub fn run(
        &self,
        number: usize,
        meter: &mut ThreadMeter,
        context: &mut RequestContext,
    ) -> Result<(), Retired> {
        let sub = self.sub.as_ref().ok_or(Retired)?;
        let mut mine = self.thread_states[number].lock();
        if self.is_retired.load(SeqCst) {
            return Err(Retired);
        }
        if mine.is_none() {
            let adapter = self.adapter().ok_or(Retired)?;
            // SAFETY: called detached. `end` comes after `retire`, which waits until worker threads
            // have emptied `thread_states`.
            *mine = unsafe { WorkerThreadState::create(&adapter, sub) };
        }
        match &mut *mine {
            // SAFETY: called detached, by the thread of this number, which made the state above.
            Some(state) => unsafe { state.run(meter, context) },
            None => context.refuse(Rejection::ApplicationUnavailable),
        }
        Ok(())
    }

    /// Deletes the thread state of worker thread `number`. Called detached, by that thread.
    pub fn leave(&self, number: usize) {
        let Some(mine) = self.thread_states.get(number) else { return };
        if let Some(state) = mine.lock().take() {
            // SAFETY: `run` made it in this thread, and `end` waits until all are gone.
            unsafe { state.discard() };
        }
    }

    /// Whether worker threads must `leave`.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(SeqCst)
    }

    /// Runs `act` attached to this sub-interpreter, in any thread, unless it is ending. Called
    /// detached.
    pub fn visit(&self, act: impl FnOnce(Attached, &Adapter)) {
        let adapter = self.adapter.lock();
        if let (Some(adapter), Some(sub)) = (&*adapter, &self.sub) {
            // SAFETY: `end` takes the adapter before it ends the interpreter, so the interpreter is
            // alive while the lock is held. The thread state is new, and deleted before the unlock.
            unsafe {
                if let Some(state) = sub.new_thread_state() {
                    state.delete_after(|py| act(py, adapter));
                }
            }
        }
    }

    /// Runs `act` inside a sub-interpreter that has not ended. Called by the interpreter manager.
    pub fn enter<T: Send>(
        &self,
        py: Attached,
        act: impl FnOnce(Attached) -> T + Send,
    ) -> Option<T> {
        let sub = self.sub.as_ref().filter(|_| !self.has_ended.load(Relaxed))?;
        // SAFETY: the interpreter manager made the interpreter, which has not ended.
        Some(unsafe { sub.enter(py, act) })
    }

    /// Lets no request begin here, waits for the requests that run and for the worker threads to
    /// leave, which `call` asks them to do. True if nobody is left within `timeout`. Called
    /// detached.
    pub fn retire(&self, timeout: Duration, call: impl Fn()) -> bool {
        let deadline = Instant::now() + timeout;
        self.is_retired.store(true, SeqCst);
        let mut called = false;
        loop {
            let (mut running, mut staying) = (false, false);
            for state in &self.thread_states {
                match state.try_lock() {
                    Some(state) => staying |= state.is_some(),
                    None => running = true,
                }
            }
            if !(running || staying) {
                return true;
            }
            // Not before: a thread that leaves waits for the GIL of those that run.
            if !running && !called {
                self.is_draining.store(true, SeqCst);
                call();
                called = true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends a retired sub-interpreter as a program ends: non-daemon threads are waited for and
    /// atexit handlers run. If threads of the application are left after that, the interpreter
    /// stays, and the error is their number. Called by the interpreter manager.
    pub fn end(&self, py: Attached) -> Result<(), usize> {
        let Some(sub) = self.sub.as_ref().filter(|_| !self.has_ended.load(Relaxed)) else {
            return Ok(());
        };
        // A visitor holds this lock while it waits for the GIL.
        let adapter = py.detach(|| self.adapter.lock().take());
        // SAFETY: the interpreter manager made the interpreter, which has not ended. Worker threads
        // have left it, and threads of the application that are left are an error.
        unsafe {
            sub.end(py, |py| {
                drop(adapter);
                run_exit_handlers(py);
                match count_threads_left(py, sub) {
                    0 => {
                        py.detach(departing_threads::wait_until_gone);
                        self.has_ended.store(true, Relaxed);
                        Ok(())
                    }
                    left => Err(left),
                }
            })
        }
    }
}

/// The application's threads that have not ended after a moment.
///
/// # Safety
/// The token is of this interpreter.
unsafe fn count_threads_left(py: Attached, sub: &SubInterpreter) -> usize {
    let deadline = Instant::now() + ENDING;
    loop {
        // SAFETY: the caller's. One thread state is the caller's own.
        let left = unsafe { sub.count_thread_states(py) } - 1;
        if left == 0 || Instant::now() >= deadline {
            return left;
        }
        py.detach(|| std::thread::sleep(LOOK));
    }
}
