//! The WSGI adapter (PEP 3333).
//!
//! Each interpreter has an adapter with types and objects of its own: no Python object is in a
//! static. So one shared object serves in the main interpreter, in sub-interpreters with a GIL of
//! their own or without, and without any GIL.
//!
//! - [`adapter`]: one application; runs its requests.
//! - [`environ`]: builds the environ, with [`fields`] (header fields), [`origin`] (TLS and
//!   proxies) and [`text`] (its values).
//! - [`call`]: calls the application and delivers its iterable.
//! - [`handle`]: the object that lends the request to [`input`] and [`start_response`].
//! - [`block`], [`detach`]: blocks of a body; sends without the GIL.
//! - [`file_wrapper`]: files that are sent without being read.
//! - [`interruption`]: the exception that ends a request which takes too long.
//! - [`route`]: the framework's route of a request.

pub mod adapter;
mod block;
mod call;
mod detach;
pub mod environ;
mod fields;
mod file_wrapper;
mod handle;
mod input;
pub mod interruption;
mod origin;
pub mod route;
mod start_response;
mod text;
