//! Connections: where they live, who owns each, and what its owner does with it.

pub mod deadline;
pub mod deferred;
pub mod drive;
pub mod lingering;
pub mod ownership;
pub mod preamble;
pub mod state;
pub mod table;
