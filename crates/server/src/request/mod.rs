//! Requests: the context through which an application answers one.

pub mod context;
pub mod forked;
mod refusal;

pub use context::{Broken, RequestContext, Resources};
pub use refusal::encode_refusal;

/// A request asks this of the scheduler of the threads.
pub trait ThreadScheduling {
    /// Makes the monitor notice a response that it is to send.
    fn wake_monitor_if_asleep(&self);
    /// Called when a thread is about to drop a GIL that it took from another thread, and may lose
    /// its core. True if it should send its response now.
    fn sends_before_preemption(&self) -> bool;
}

/// The interface that a worker calls for each request.
pub trait Application {
    /// The state that one worker thread keeps between requests.
    type Thread;

    /// Runs one request to its end: the response is framed, and handed to the kernel as far as
    /// the application streams. Returns with `context.finish` called.
    fn handle(&self, thread: &mut Self::Thread, context: &mut RequestContext);

    /// Called by each thread between turns; see `Pool::request_quiesce`.
    fn quiesce(&self, _: &mut Self::Thread) {}
}
