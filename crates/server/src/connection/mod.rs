//! Connections: the table that holds them, the guard that owns one, and what reads and writes.

pub(crate) mod body;
pub(crate) mod buffers;
pub(crate) mod close;
pub mod deadline;
pub(crate) mod deferred;
mod ownership;
pub mod preamble;
pub(crate) mod read;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod write;
