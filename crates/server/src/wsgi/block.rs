//! A block of a response's body.

use crate::request::RequestContext;
use headway_python::attached::Attached;
use headway_python::exception::Exception;
use headway_python::object::{Object, PyResult};

/// The bytes of a block; TypeError for anything else than bytes.
pub fn bytes_of_block<'a>(block: &'a Object) -> PyResult<&'a [u8]> {
    block.as_bytes().ok_or_else(|| {
        let message = format!("the body must consist of bytes, not {}", block.type_name());
        Exception::TypeError.raise(block.py(), &message)
    })
}

/// Reserves memory for the copy of a large block, or raises MemoryError: under a memory limit one
/// response fails and not the process. Called before the head is framed, so that the client can
/// get a 500.
pub fn make_room(py: Attached, context: &mut RequestContext, bytes: usize) -> PyResult<()> {
    if !is_large(bytes) || context.is_head_request() || context.make_room(bytes) {
        return Ok(());
    }
    Err(Exception::MemoryError.raise(py, "no memory for a block of the response"))
}

/// Copying and sending a block of this size takes longer than taking the GIL again.
pub fn is_large(bytes: usize) -> bool {
    const LARGE_BYTES: usize = 262_144;
    bytes > LARGE_BYTES
}
