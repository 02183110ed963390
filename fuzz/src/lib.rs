//! The fuzz targets' view of the server: `http` from its own sources, and what must be true of it; and what must be
//! true of telemetry's datagrams.

#[path = "../../crates/server/src/http/mod.rs"]
pub mod http;
pub mod properties;
pub mod telemetry;
