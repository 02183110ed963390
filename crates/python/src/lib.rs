//! The safe layer over CPython's C API: owned references, exceptions, conversions.

pub mod object;
