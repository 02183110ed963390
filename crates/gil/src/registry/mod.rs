//! Which GILs and threads exist.

pub mod gil;
pub mod gils;
pub mod names;
pub mod threads;
pub mod unanswered;
