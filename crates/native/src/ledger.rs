//! Ledgers that Python code has opened, for `gil_read_ledger` and others.

use headway_gil::{MappingError, Refusal};
use headway_python::attached::Attached;
use headway_python::exception::Exception;
use headway_python::object::PyResult;
use std::os::fd::BorrowedFd;

/// The file that the caller has open at this descriptor, and keeps open during the call.
pub fn opened<'a>(py: Attached<'_>, fd: &'a i32) -> PyResult<BorrowedFd<'a>> {
    if *fd < 0 {
        let refusal = Refusal::Ledger(MappingError::Open(libc::EBADF));
        return Err(Exception::RuntimeError.raise(py, &refusal.to_string()));
    }
    // SAFETY: the caller passes an open descriptor, and the result lives as long as the call.
    Ok(unsafe { BorrowedFd::borrow_raw(*fd) })
}
