//! The code under test of the fuzz targets: `http`, compiled from the server's sources, with its
//! properties, and the properties of telemetry's datagrams.

#[path = "../../crates/server/src/http/mod.rs"]
pub mod http;
pub mod properties;
pub mod telemetry;
