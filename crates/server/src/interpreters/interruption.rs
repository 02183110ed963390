//! interrupt-timeout: an exception in the thread whose request runs too long.
//!
//! CPython raises it as soon as that thread runs Python again, so never in a call that does not return.

use crate::interpreters::server::Server;
use crate::limits::Interruption;
use crate::request::Exchange;
use crate::wsgi::adapter::Adapter;
use headway_python::object::without_gil;
use pyo3_ffi::*;
use std::ffi::c_long;
use std::ptr;
use std::time::Duration;

/// Waits for a request that is overdue, and sets an exception in its thread. False once the server is
/// over. Called attached, from a thread of its own.
pub fn interrupt_next(server: &Server) -> bool {
    // In a sub-interpreter without being attached to the caller's first: up to CPython 3.12 who waits
    // for a GIL that interpreters share asks only threads of its own interpreter to drop it.
    let in_callers = without_gil(|| {
        let interruption = server.next_interruption()?;
        let interpreter = server.groups().interpreter(interruption.holder());
        Some(interpreter.and_then(|interpreter| {
            if interpreter.is_of_callers() {
                return interpreter.adapter().map(|adapter| (interruption, adapter));
            }
            interpreter.visit(|adapter| carry_out(&interruption, adapter));
            None
        }))
    });
    let Some(in_callers) = in_callers else { return false };
    if let Some((interruption, adapter)) = in_callers {
        carry_out(&interruption, &adapter);
    }
    true
}

/// Called attached to the adapter's interpreter, before the thread's word says that it is being
/// interrupted and until it says that it was: the thread cannot come upon the exception in between, but
/// where there is no GIL.
fn carry_out(interruption: &Interruption, adapter: &Adapter) {
    interruption.carry_out(|thread| {
        let exception = adapter.interruption().as_ptr();
        // SAFETY: attached to the adapter's interpreter. A thread that is not there is not found.
        unsafe { PyThreadState_SetAsyncExc(thread as c_long, exception) };
    });
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
