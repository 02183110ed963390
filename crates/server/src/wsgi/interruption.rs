//! The exception that ends a request which exceeds interrupt-timeout.
//!
//! CPython raises it as soon as the thread runs Python code again, so never in a call that does not
//! return.

use crate::limits::Interruption;
use crate::request::RequestContext;
use headway_python::attached::Attached;
use headway_python::exception::set_exception_in_thread;
use headway_python::stored::Stored;
use headway_threads::c_library::number_of_this_thread;
use std::time::Duration;

/// Sets an exception of `class` in the thread of the request.
///
/// The GIL is held before the thread's status says that it is being interrupted and until it says
/// that it was, so that the thread cannot raise the exception in between. Without a GIL it can.
pub fn interrupt(py: Attached, interruption: &Interruption, class: &Stored) {
    interruption.carry_out(|thread| set_exception_in_thread(py, thread, Some(class.get(py))));
}

/// Takes back an exception that was set and not raised: the application has returned, and the
/// thread's next request must not get it.
pub fn end(py: Attached, context: &RequestContext) {
    context.worker_status().leave_application(
        || set_exception_in_thread(py, number_of_this_thread(), None),
        // Without a GIL only, the other thread may be between two steps.
        || py.detach(|| std::thread::sleep(Duration::from_micros(50))),
    );
}
