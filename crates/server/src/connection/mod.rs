//! Connections: the table that holds them, the guard that owns one, and the driver that reads,
//! runs requests and writes.

pub(crate) mod buffers;
pub(crate) mod close;
pub mod deadline;
pub(crate) mod deferred;
pub(crate) mod drive;
mod ownership;
pub mod preamble;
pub(crate) mod read;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod write;
