//! The server: HTTP connections, worker threads, and the WSGI adapter.
//!
//! # Layout
//! Each of these uses only those before it, which `tests/test_layers.py` checks.
//!
//! - `shutdown`: the phase of the server.
//! - `net`: sockets, epoll, TLS, sendfile. `stderr`: lines for the log.
//! - `http`: the protocol, without I/O.
//! - `stats`: counters, requests by path, the access log, the report to a recorder.
//! - `connection`: the table of connections, their owners, reading and writing.
//! - `limits`: the limits that a process checks itself.
//! - `request`: one request and its response.
//! - `wsgi`: calls a Python application for a request.
//! - `interpreters`: the interpreters that applications run in.
//! - `pool`: the worker threads, which of them runs which connection, and how a connection is
//!   driven.
//! - `server`: all of it, as Python holds it.

mod connection;
mod http;
mod interpreters;
mod limits;
mod net;
mod pool;
mod request;
mod server;
mod shutdown;
mod stats;
mod stderr;
mod wsgi;

pub use connection::deadline::Timeouts;
pub use connection::preamble::Preamble;
pub use http::Limits as HttpLimits;
pub use http::forwarding::{Believed, FIELDS as FORWARDING_FIELDS};
pub use interpreters::interpreter::Interpreter;
pub use interpreters::mounts::{ApplicationGroups, GroupSettings, Mount};
pub use limits::inbox::Received;
pub use limits::{ProcessLimits, SlowRequestReport};
pub use net::listener::Listener;
pub use net::networks::Networks;
pub use net::tls::{TlsConfig, read_config};
pub use pool::PoolSettings;
pub use pool::handover::Handover;
pub use server::Server;
pub use stats::interval::InterpreterName;
pub use stats::paths::percentile_ns;
pub use stats::report::ServerReport;
pub use stats::{AccessLog, LogForm};
pub use wsgi::adapter::{Adapter, InterpreterObjects};
