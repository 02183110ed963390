//! The safe layer over CPython's C API.
//!
//! - [`c_api`]: the C API, guarded against `pthread_exit` inside CPython.
//! - [`attached`]: the token that proves that the calling thread has a thread state attached.
//! - [`object`]: owned references.
//! - [`stored`]: references that outlive the token.
//! - [`panics`]: no panic reaches CPython.
//! - [`exception`]: raising, taking and clearing exceptions.
//! - [`convert`]: arguments and results as Rust values.
//! - [`function`], [`module`], [`class`], [`capsule`]: what CPython calls and keeps.
//! - [`thread_state`], [`interpreter`]: thread states, and interpreters beside the main one.

pub mod attached;
pub mod c_api;
pub mod capsule;
pub mod class;
pub mod convert;
pub mod exception;
pub mod function;
pub mod interpreter;
pub mod module;
pub mod object;
pub mod panics;
pub mod stored;
pub mod thread_state;
