//! The system calls of the server: sockets, epoll, TLS, sendfile, and ranges of addresses.

pub mod epoll;
pub mod handover;
pub mod listener;
pub mod networks;
pub mod sendfile;
pub mod socket;
pub mod tls;
