//! The worker: threads that share one epoll and run whole requests, one after another.
//!
//! Whichever thread runs a ready connection reads, parses, calls the application and writes the
//! response; nothing is handed between threads. `pool` is the centre: who does the `polling`, who
//! runs, who parks. A `turn` is what a thread does with one connection that is ready, an `exchange`
//! is one request of it, `word` and `slab` say who owns it and `custody` what the owner does with
//! it, the `monitor` wakes a thread when all others are stuck, answers who is `late` and looks at the
//! limits that `watch` knows. How connections end is in `deadline` and `lingering`. Knows nothing
//! of Python: the application is a trait.

mod accepting;
mod burst;
mod custody;
mod deadline;
mod end;
pub mod entrance;
pub mod epoll;
mod eviction;
pub mod exchange;
pub mod file_body;
pub mod forked;
pub mod inbox;
pub mod late;
mod lingering;
pub mod monitor;
pub mod networks;
pub mod outbox;
pub mod parking;
pub mod peer;
mod polling;
pub mod pool;
pub mod ready;
pub mod request_body;
pub mod sharing;
pub mod slab;
pub mod socket;
pub mod tls;
pub mod turn;
pub mod watch;
pub mod word;

pub use entrance::{Entrance, Forwarding};
pub use exchange::{Broken, Exchange};
pub use file_body::FileBody;
pub use pool::{Pool, PoolSettings, Timeouts};
pub use watch::ProcessLimits;

/// What the worker calls for each request.
pub trait Application {
    /// What one worker thread keeps between requests.
    type Thread;

    /// Runs one request to its end: the response is framed, and handed to the kernel as far as
    /// the application streams. Returns with `exchange.finish` called.
    fn handle(&self, thread: &mut Self::Thread, exchange: &mut Exchange);

    /// Called by each thread between turns; see `Pool::call_everyone`.
    fn tidy(&self, _: &mut Self::Thread) {}
}
