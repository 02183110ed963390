//! The WSGI adapter (PEP 3333) on CPython's raw API.
//!
//! Everything of Python belongs to the interpreter that opened the server: types are made per
//! server, nothing of Python is in a static, threads attach with the state they came with. So one
//! shared object serves in the main interpreter, in own-GIL sub-interpreters, and without a GIL.
//!
//! `adapter` is the centre: it takes the GIL once per request. `environ` builds the environ
//! (`origin` its part about TLS and proxies),
//! `call` calls the application and takes its iterable, `handle` is the Python object behind
//! `wsgi.input`, `start_response` and `write`, `file_wrapper` the one around files, `object` the thin safe layer under all of them.

pub mod adapter;
pub mod call;
pub mod environ;
pub mod file_wrapper;
pub mod handle;
pub mod input;
pub mod interruption;
pub mod object;
pub mod origin;
pub mod server;
pub mod start_response;

pub use server::{Server, ServerSettings};
