//! What a worker thread keeps of one interpreter: a thread state there, and what is used again for
//! each request. One take of the GIL per request.

use crate::http::{Rejection, Response};
use crate::request::Exchange;
use crate::request::forked::watch_forks;
use crate::wsgi::adapter::Adapter;
use crate::wsgi::environ::EnvironBuilder;
use crate::wsgi::route::RouteFinder;
use headway_python::object::PyResult;
use headway_reporter::stacks;
use pyo3_ffi::*;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A request that took so long may have made its thread CPU-bound in the eyes of a policy.
const LONG_NS: u64 = 500_000;

/// What the meter has said of a thread so far, all GILs together.
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

    /// Waits since this was last asked; `None` if they are not known.
    fn read_wait(&mut self) -> Option<u64> {
        growth(&mut self.waited_ns, headway_gil::waited_ns_by_this_thread())
    }

    /// Holds likewise, those that are over.
    fn read_hold(&mut self) -> Option<u64> {
        growth(&mut self.held_ns, headway_gil::held_ns_by_this_thread())
    }
}

pub struct Attachment {
    adapter: Arc<Adapter>,
    /// `None` if it could not be made.
    environs: Option<EnvironBuilder>,
    /// With telemetry.
    finder: Option<RouteFinder>,
    response: Response,
    /// Detached between requests.
    state: *mut PyThreadState,
    /// Where a thread says that `state` is not its first one, which is the one that CPython up to 3.11 would take its
    /// stack from.
    present: Option<Arc<stacks::PresentState>>,
}

// SAFETY: used and dropped by its thread alone; it lies where others can see that it is there.
unsafe impl Send for Attachment {}

impl Attachment {
    /// Called attached with `state`, the calling thread's own.
    pub fn new(adapter: &Arc<Adapter>, state: *mut PyThreadState) -> PyResult<Self> {
        Ok(Self { environs: Some(adapter.environ_builder()?), ..Self::bare(adapter, state) })
    }

    /// A new thread state in `interpreter`, for the calling thread. Called detached; waits for that
    /// interpreter's GIL. `None` for want of memory.
    ///
    /// # Safety
    /// The interpreter stays alive until the attachment is discarded; the adapter is its own.
    pub unsafe fn make(
        adapter: &Arc<Adapter>,
        interpreter: *mut PyInterpreterState,
    ) -> Option<Self> {
        // SAFETY: as the caller promises; the new state is this thread's.
        unsafe {
            let state = PyThreadState_New(interpreter);
            if state.is_null() {
                return None;
            }
            PyEval_RestoreThread(state);
            let mut made = Self::new(adapter, state).unwrap_or_else(|_| {
                adapter.report_raised("the first request of a thread");
                Self::bare(adapter, state)
            });
            PyEval_SaveThread();
            made.present = stacks::present_state_of(libc::gettid() as u32);
            Some(made)
        }
    }

    fn bare(adapter: &Arc<Adapter>, state: *mut PyThreadState) -> Self {
        watch_forks();
        Self {
            adapter: Arc::clone(adapter),
            environs: None,
            finder: None,
            response: Response::default(),
            state,
            present: None,
        }
    }

    /// Called detached.
    pub fn run(&mut self, meter: &mut ThreadMeter, exchange: &mut Exchange) {
        self.say_present(self.state);
        // SAFETY: this thread's own state, detached since the last request.
        unsafe { PyEval_RestoreThread(self.state) };
        match &mut self.environs {
            Some(environs) => {
                self.adapter.run(environs, &mut self.finder, &mut self.response, exchange);
            }
            None => exchange.refuse(Rejection::ApplicationUnavailable),
        }
        exchange.leave_forked_child();
        exchange.record.gil_wait_ns = meter.read_wait();
        if exchange.record.gil_wait_ns.is_some_and(|wait_ns| wait_ns > 0) {
            // Another thread was made to drop the GIL. It is called when we drop it, often to this
            // core, and the response would wait for the end of its time slice.
            exchange.prepare_for_preemption();
        }
        // SAFETY: attached above; the application must leave it so, as any C function's caller.
        unsafe { PyEval_SaveThread() };
        self.say_present(ptr::null_mut());
        exchange.record.gil_held_ns = meter.read_hold();
        if exchange.record.application_ns >= LONG_NS {
            headway_gil::begin_anew();
        }
    }

    fn say_present(&self, state: *mut PyThreadState) {
        if let Some(present) = &self.present {
            present.store(state.cast(), SeqCst);
        }
    }

    /// The end of a thread state that was made here. Called detached by its thread.
    ///
    /// # Safety
    /// `make` made it, and its interpreter is alive.
    pub unsafe fn discard(self) {
        let state = self.state;
        // SAFETY: this thread's own state; with it attached Python's objects may be dropped.
        unsafe {
            PyEval_RestoreThread(state);
            drop(self);
            PyThreadState_Clear(state);
            PyThreadState_DeleteCurrent();
        }
    }
}

/// What a sum of the meter has grown by since `past_ns`, which it becomes.
fn growth(past_ns: &mut Option<u64>, now_ns: Option<u64>) -> Option<u64> {
    match (std::mem::replace(past_ns, now_ns), now_ns) {
        (Some(past), Some(now)) => now.checked_sub(past),
        // The meter came on, or saw this thread for the first time, during the request.
        (None, now) => now,
        (Some(_), None) => None,
    }
}
