//! Requests: the context through which an application answers one, and the request's body.

pub mod body;
pub mod context;
pub mod forked;
mod refusal;

pub use context::{Broken, RequestContext, Resources};
pub use refusal::encode_refusal;

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
