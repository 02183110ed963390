//! The state of a worker thread in one interpreter: a thread state, and objects that it reuses
//! for each request. A request takes the GIL once.

use crate::http::{Rejection, Response};
use crate::request::RequestContext;
use crate::request::forked::watch_forks;
use crate::wsgi::adapter::Adapter;
use crate::wsgi::environ::EnvironBuilder;
use crate::wsgi::route::RouteFinder;
use headway_python::attached::Attached;
use headway_python::interpreter::SubInterpreter;
use headway_python::object::{PyResult, Raised};
use headway_python::thread_state::ThreadState;
use headway_reporter::stacks;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A request of this length may have made its thread CPU-bound in the eyes of a policy.
const LONG_NS: u64 = 500_000;

/// The meter's sums for the calling thread when they were last read, over all GILs.
pub struct ThreadMeter {
    waited_ns: Option<u64>,
    held_ns: Option<u64>,
}

impl ThreadMeter {
    pub fn of_this_thread() -> Self {
        Self {
            waited_ns: headway_gil::waited_ns_by_this_thread(),
            held_ns: headway_gil::held_ns_by_this_thread(),
        }
    }

    /// The time that the thread waited since the last call; `None` if it is not known.
    fn read_wait(&mut self) -> Option<u64> {
        growth(&mut self.waited_ns, headway_gil::waited_ns_by_this_thread())
    }

    /// The time of the holds that ended since the last call; `None` if it is not known.
    fn read_hold(&mut self) -> Option<u64> {
        growth(&mut self.held_ns, headway_gil::held_ns_by_this_thread())
    }
}

/// Used and dropped by its worker thread alone.
pub struct WorkerThreadState {
    adapter: Arc<Adapter>,
    /// `None` if it could not be made.
    environs: Option<EnvironBuilder>,
    /// With telemetry.
    finder: Option<RouteFinder>,
    response: Response,
    /// Detached between requests.
    state: ThreadState,
    /// Where the thread publishes a thread state that is not its first one: CPython up to 3.11
    /// would take its stack from the first one.
    present: Option<Arc<stacks::PresentState>>,
}

impl WorkerThreadState {
    /// With the thread state that the calling thread has attached.
    pub fn current(py: Attached, adapter: &Arc<Adapter>) -> PyResult<Self> {
        let environs = adapter.environ_builder(py)?;
        Ok(Self::new(adapter, ThreadState::current(py), Some(environs)))
    }

    /// With a new thread state in `interpreter`. Waits for that interpreter's GIL. `None` for want
    /// of memory.
    ///
    /// # Safety
    /// The calling thread has no thread state attached. The interpreter stays alive until
    /// `discard`, and the adapter is its own.
    pub unsafe fn create(adapter: &Arc<Adapter>, interpreter: &SubInterpreter) -> Option<Self> {
        // SAFETY: the caller's; the new state belongs to this thread.
        let (state, environs) = unsafe {
            let state = interpreter.new_thread_state()?;
            let environs = state.attach(|py| {
                let environs = adapter.environ_builder(py);
                environs.inspect_err(|Raised| {
                    adapter.report_raised(py, "the first request of a thread");
                })
            });
            (state, environs.ok())
        };
        let mut created = Self::new(adapter, state, environs);
        // SAFETY: no preconditions.
        created.present = stacks::present_state_of(unsafe { libc::gettid() } as u32);
        Some(created)
    }

    fn new(adapter: &Arc<Adapter>, state: ThreadState, environs: Option<EnvironBuilder>) -> Self {
        watch_forks();
        Self {
            adapter: Arc::clone(adapter),
            environs,
            finder: None,
            response: Response::default(),
            state,
            present: None,
        }
    }

    /// Runs a request.
    ///
    /// # Safety
    /// The calling thread is the one that made this and has no thread state attached; the
    /// interpreter is alive.
    pub unsafe fn run(&mut self, meter: &mut ThreadMeter, context: &mut RequestContext) {
        self.publish(&self.state);
        // SAFETY: the caller's; the state was detached after the last request.
        unsafe {
            self.state.attach(|py| {
                match &mut self.environs {
                    Some(environs) => {
                        let (finder, response) = (&mut self.finder, &mut self.response);
                        self.adapter.run(py, environs, finder, response, context);
                    }
                    None => context.refuse(Rejection::ApplicationUnavailable),
                }
                context.leave_forked_child();
                let wait_ns = meter.read_wait();
                context.note_gil_wait(wait_ns);
                if wait_ns.is_some_and(|wait_ns| wait_ns > 0) {
                    // Another thread was made to drop the GIL. It wakes when this one drops it,
                    // often on this core, and the response would wait for the end of its time
                    // slice.
                    context.prepare_for_preemption();
                }
            });
        }
        self.publish_none();
        context.note_gil_hold(meter.read_hold());
        if context.record().application_ns >= LONG_NS {
            headway_gil::begin_anew();
        }
    }

    fn publish(&self, state: &ThreadState) {
        if let Some(present) = &self.present {
            present.store(state.as_ptr().cast(), SeqCst);
        }
    }

    fn publish_none(&self) {
        if let Some(present) = &self.present {
            present.store(ptr::null_mut(), SeqCst);
        }
    }

    /// Deletes the thread state.
    ///
    /// # Safety
    /// `create` made it in the calling thread, which has no thread state attached; the interpreter
    /// is alive.
    pub unsafe fn discard(self) {
        let Self { adapter, environs, finder, state, .. } = self;
        // SAFETY: the caller's. Dropped inside, the objects give their references back.
        unsafe { state.delete_after(|_| drop((adapter, environs, finder))) }
    }
}

/// The growth of a sum since `past_ns`, which is updated.
fn growth(past_ns: &mut Option<u64>, now_ns: Option<u64>) -> Option<u64> {
    match (std::mem::replace(past_ns, now_ns), now_ns) {
        (Some(past), Some(now)) => now.checked_sub(past),
        // The meter was installed, or saw this thread for the first time, during the request.
        (None, now) => now,
        (Some(_), None) => None,
    }
}
