//! The server: HTTP connections, worker threads, and the WSGI adapter.
//!
//! # Layout
//! - [`http`]: the protocol, without I/O.
//! - [`record`]: phases of a request, the access log, requests by path.
//! - [`worker`]: threads, epoll, connections; runs requests. Knows `http` and `record`.
//! - [`wsgi`]: calls a Python application for the worker. The only part that knows Python.
//!
//! The way of a request: `worker::pool` (who runs it) → `worker::turn` (read, parse) →
//! `wsgi::adapter` (take the GIL once) → `wsgi::call` (PEP 3333) → `worker::turn` (write).

pub mod http;
pub mod record;
pub mod worker;
pub mod wsgi;
