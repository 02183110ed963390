//! HTTP/1.1 without I/O, in the manner of h11: received bytes become events, and a response becomes
//! bytes to send.
//!
//! Rules of this folder:
//! 1. No file here uses a socket, a clock, a thread or Python.
//! 2. The events do not depend on how the received bytes are split.
//! 3. A request that could be read in two ways (smuggling, RFC 9112 section 11.2) is rejected.
//!
//! `connection` is the entry point. Below it, `limits`, `head_end`, `head`, `framing` and `body`
//! parse a request, in this order; `forwarding` reads the fields that proxies add, and `path`
//! decodes the path of a target. `response` and `response_body` write the response, and `rejection`
//! names every reason to reject a request.

pub mod body;
mod chunk_extension;
pub mod connection;
pub mod digits;
pub mod forwarding;
mod framing;
pub mod head;
mod head_end;
pub mod limits;
mod octets;
pub mod path;
mod receive_buffer;
pub mod rejection;
pub mod response;
mod response_body;
pub mod target;

pub use connection::{Connection, Event};
pub use framing::Framing;
pub use head::Head;
pub use limits::Limits;
pub use rejection::Rejection;
pub use response::Response;

#[cfg(test)]
mod fuzzed_tests;
