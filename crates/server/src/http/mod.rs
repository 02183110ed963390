//! HTTP/1.1 without any I/O, in the manner of h11: bytes in, events out; a response in, bytes out.
//!
//! Rules of this folder:
//! 1. No file here touches a socket, a clock, a thread or Python.
//! 2. However the peer's bytes are cut into pieces, the events are the same.
//! 3. Whatever could be read in two ways (RFC 9112 section 11.2, request smuggling) is refused.
//!
//! `connection` is the centre. Within `limits`, `head_end`, `head`, `framing` and `body` take apart
//! what the peer sends, in this order; `forwarding` reads what proxies say of it. `response` and
//! `response_body` put together what we answer, `rejection` names everything that we refuse.

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
