//! What was served, path by path, as Python sees it. Times are nanoseconds.

use headway_python::object::{Object, PyResult, Raised};
use headway_server::interpreters::server::Server;
use headway_server::stats::paths::percentile_ns;
use pyo3_ffi::*;

/// The rows that `server_requests` documents.
pub fn request_rows(server: &Server) -> PyResult<Object> {
    let tables = server.requests();
    // SAFETY: the list is new and ours; the tuple's items are new references that it takes over,
    // and `Py_BuildValue` gives them back if it fails.
    unsafe {
        let list = Object::from_new(PyList_New(0))?;
        for (path, row, place) in tables.rows() {
            let known = row.gil_wait_count > 0;
            let wait = |share| percentile_ns(&row.gil_wait, share).filter(|_| known);
            let total_ns = row.gil_wait.read().sum_ns;
            let tuple = Object::from_new(Py_BuildValue(
                c"(nNKKNNNNNKK)".as_ptr(),
                place as Py_ssize_t,
                Object::from_latin1(path)?.into_ptr(),
                row.requests,
                row.errors,
                number_or_none(percentile_ns(&row.response, 0.5))?.into_ptr(),
                number_or_none(percentile_ns(&row.response, 0.99))?.into_ptr(),
                number_or_none(wait(0.5))?.into_ptr(),
                number_or_none(wait(0.99))?.into_ptr(),
                number_or_none(known.then_some(total_ns))?.into_ptr(),
                row.application_ns,
                row.cpu_ns,
            ))?;
            if PyList_Append(list.as_ptr(), tuple.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        Ok(list)
    }
}

fn number_or_none(number: Option<u64>) -> PyResult<Object> {
    // SAFETY: a new reference, or a live object.
    unsafe {
        match number {
            Some(number) => Object::from_new(PyLong_FromUnsignedLongLong(number)),
            None => Ok(Object::from_borrowed(Py_None())),
        }
    }
}
