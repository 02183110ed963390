//! The contention profile, on request: which Python code holds a GIL while threads wait for it, and
//! which code waits.
//!
//! - [`charges`]: what threads wait, per GIL.
//! - [`frames`], [`layout`], [`lines`]: how a stack of Python calls is read from memory.
//! - [`store`]: code objects, stacks, and what they are charged with.
//! - [`recording`]: what an event means for the profile. Runs in hooks.
//! - [`parked`]: the same for the waits of a free-threaded build.
//! - [`sampler`], [`wakeup`]: the stacks of threads that hold for long while others wait.
//! - [`resolver`]: which lines of which functions the tables have.
//! - [`control`]: begin, end, read.
//! - [`growth`], [`kept_stacks`]: what a reporter reads, again and again.

mod charges;
pub mod control;
pub mod frames;
pub mod growth;
mod kept_stacks;
pub mod layout;
mod lines;
pub mod parked;
mod recording;
pub mod resolver;
pub mod sampler;
pub mod store;
#[cfg(test)]
mod tests;
mod wakeup;

pub use frames::DEPTH as STACK_DEPTH;
pub use recording::{
    EndedWait, close, is_on, knows_holders, name_thread, on_drop, on_end_of_wait, on_take, on_wait,
};
pub use recording::{keep_layout, layout};
pub use wakeup::{await_loop_look, force as wake_sampler, wake as wake_sleeping_sampler};

/// Forgets the profile and its reader in a forked child, because both are the parent's.
pub fn forget() {
    recording::forget();
    growth::forget();
}
