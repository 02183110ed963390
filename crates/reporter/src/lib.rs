//! Reports what happens in a process, without the GIL.

pub mod stacks;
