//! interrupt-timeout: an exception in the thread whose request runs too long.
//!
//! CPython raises it as soon as that thread runs Python again, so never in a call that does not return.

use super::adapter::Adapter;
use super::object::without_gil;
use super::server::Server;
use crate::worker::Exchange;
use pyo3_ffi::*;
use std::ffi::c_long;
use std::ptr;
use std::time::Duration;

/// Waits for a request that is overdue, and sets an exception in its thread. False once the server is
/// over. Called attached, from a thread of its own.
pub fn interrupt_next(server: &Server) -> bool {
    let Some(interruption) = without_gil(|| server.next_interruption()) else { return false };
    let Some(interpreter) = server.groups().tenant(interruption.place()) else { return true };
    // Attached before the thread's word says that it is being interrupted and until it says that it was:
    // the thread cannot come upon the exception in between, but where there is no GIL.
    let set = |adapter: &Adapter| {
        interruption.carry_out(|thread| {
            let exception = adapter.interruption().as_ptr();
            // SAFETY: attached to the adapter's interpreter. A thread that is not there is not found.
            unsafe { PyThreadState_SetAsyncExc(thread as c_long, exception) };
        });
    };
    if !interpreter.is_of_callers() {
        without_gil(|| interpreter.visit(set));
    } else if let Some(adapter) = interpreter.adapter() {
        set(&adapter);
    }
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
