//! The server: HTTP connections, worker threads, and the WSGI adapter.
//!
//! # Layout
//! - [`http`]: the protocol, without I/O.
//! - [`net`]: sockets, epoll, TLS, sendfile.
//! - [`connection`]: the table of connections, their owners, and the driver of an owned one.
//! - [`pool`]: the worker threads, and which of them runs which connection.
//! - [`request`]: one request and its response.
//! - [`wsgi`]: calls a Python application for a request.
//! - [`interpreters`]: the interpreters that applications run in.
//! - [`limits`]: the limits that a process checks itself.
//! - [`stats`]: counters, requests by path, the access log, the report to a recorder.

pub mod connection;
pub mod http;
pub mod interpreters;
pub mod limits;
pub mod net;
pub mod pool;
pub mod request;
pub mod stats;
pub mod wsgi;
