//! interrupt-timeout: an exception in the thread whose request runs too long.
//!
//! CPython raises it as soon as that thread runs Python again, so never in a call that does not return.

use super::object::{Object, without_gil};
use super::server::Server;
use crate::worker::Exchange;
use pyo3_ffi::*;
use std::ffi::c_long;
use std::ptr;
use std::time::Duration;

/// Waits for a request that is overdue, and sets an exception of class `exception` in its thread. False once
/// the server is over. Called attached, from a thread of its own.
pub fn interrupt_next(server: &Server, exception: &Object) -> bool {
    let Some(interruption) = without_gil(|| server.next_interruption()) else { return false };
    // SAFETY: a class of exceptions. A thread that is no more, or of another interpreter, is not found.
    interruption.carry_out(|thread| unsafe {
        PyThreadState_SetAsyncExc(thread as c_long, exception.as_ptr());
    });
    true
}

/// The application has returned, and this thread's next request must not get an exception that was
/// meant for this one. Called attached.
pub fn end(exchange: &Exchange) {
    exchange.activity().leave_application(
        // SAFETY: this very thread; null clears what was set.
        || unsafe {
            PyThreadState_SetAsyncExc(libc::pthread_self() as c_long, ptr::null_mut());
        },
        // Only without a GIL can this happen between two steps of the other thread.
        || without_gil(|| std::thread::sleep(Duration::from_micros(50))),
    );
}
