//! The counters of requests, path by path, as Python objects. Times are nanoseconds.

use crate::report::histogram_dict;
use headway_python::attached::Attached;
use headway_python::convert::{list, tuple};
use headway_python::object::{Object, PyResult};
use headway_server::{Server, percentile_ns};

/// Returns the rows that `server_block` documents.
pub fn block_rows<'py>(py: Attached<'py>, server: &Server) -> PyResult<Object<'py>> {
    let tables = server.stats().block();
    list(py, tables.rows(), |(path, row, _)| {
        let path = Object::from_latin1(py, path)?;
        let response = histogram_dict(py, &row.response.read())?;
        tuple(py, &[&path, &row.errors, &row.cpu_ns, &response])
    })
}

/// Returns the rows that `server_requests` documents.
pub fn request_rows<'py>(py: Attached<'py>, server: &Server) -> PyResult<Object<'py>> {
    let tables = server.requests();
    list(py, tables.rows(), |(path, row, slot)| {
        let known = row.gil_wait_count > 0;
        let wait = |share| percentile_ns(&row.gil_wait, share).filter(|_| known);
        let total_ns = row.gil_wait.read().sum_ns;
        tuple(
            py,
            &[
                &slot,
                &Object::from_latin1(py, path)?,
                &row.requests,
                &row.errors,
                &percentile_ns(&row.response, 0.5),
                &percentile_ns(&row.response, 0.99),
                &wait(0.5),
                &wait(0.99),
                &known.then_some(total_ns),
                &row.application_ns,
                &row.cpu_ns,
            ],
        )
    })
}
