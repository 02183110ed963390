//! The WSGI adapter (PEP 3333) on CPython's raw API.
//!
//! Everything of Python belongs to one interpreter: types are made for each, nothing of Python is in
//! a static, and a thread has a state in each interpreter that it runs requests in. So one shared object
//! serves in the main interpreter, in sub-interpreters with a GIL of their own or without, and without
//! any GIL.
//!
//! `groups` says which interpreter runs a request; an `interpreter` has an `adapter`, and for each
//! thread an `attachment`, which takes the GIL once per request. `environ` builds the environ
//! (`path` and `origin` are its parts about the target, and about TLS and proxies), `call` calls the application and takes its iterable, `handle` is the Python object behind
//! `wsgi.input`, `start_response` and `write`, `file_wrapper` the one around files, `route` asks the framework for its route, `object` the thin safe layer under all of them.

pub mod adapter;
pub mod call;
pub mod environ;
pub mod file_wrapper;
pub mod handle;
pub mod input;
pub mod origin;
pub mod path;
pub mod route;
pub mod start_response;
