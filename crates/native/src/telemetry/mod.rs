//! `_native.telemetry_*`: telemetry's datagrams and records as Python objects, for `headway.telemetry` and for a
//! supervisor that reports the dead.
//!
//! Called with a thread state attached.

mod arriving;
mod reading;
pub mod reporting;
mod writing;

use headway_python::object::{Object, PyResult, Raised, bytes_of, raise};
use headway_telemetry::datagram::{Datagram, Header};
use headway_telemetry::fields::kind;
use headway_telemetry::merge::Sum;
use headway_telemetry::{Malformed, plausible, tick};
use pyo3_ffi::*;
use std::ptr;

use crate::{Methods, method};

static METHODS: Methods<8> = Methods([
    method(
        c"telemetry_arrived",
        arriving::arrived,
        c"telemetry_arrived(socket, wake, patience_ns) -> ([(datagram, credentials, is_cut)], is_woken, refused)\n\
          Waits for a datagram on the descriptor `socket`, or for something to read on `wake`, and takes all that\n\
          come within the patience. credentials are the kernel's (pid, uid) (SO_PASSCRED), or None. refused is the\n\
          number of datagrams that were dropped, since a sender or a user sent more than is allowed in a second.",
    ),
    method(
        c"telemetry_parse",
        parse,
        c"telemetry_parse(datagram) -> (kind, pid, seq, stamp, fields)\n\
          All fields by name, times in seconds, histograms as in a report, rows as lists of dicts; fields without\n\
          a name as 'id1234'. Raises ValueError with one line for anything malformed.",
    ),
    method(
        c"telemetry_receive",
        receive,
        c"telemetry_receive(datagram) -> (kind, pid, seq, stamp, fields, record)\n\
          What a recorder takes of a datagram: of a tick the fields that are one value each, the long holds, and\n\
          the record, which has the rest; of another kind all fields, and None. Raises ValueError for anything\n\
          malformed, and for a tick with more than a process can do in its interval.",
    ),
    method(
        c"telemetry_record",
        record,
        c"telemetry_record(datagram) -> bytes\n\
          What is kept of a tick: records add up. Raises ValueError for anything malformed.",
    ),
    method(
        c"telemetry_merge",
        merge,
        c"telemetry_merge(records) -> bytes\n\
          The sum of a sequence of records, of one process over time or of several processes.",
    ),
    method(
        c"telemetry_read",
        read,
        c"telemetry_read(record) -> dict\n\
          A record's fields by name, as of telemetry_parse(). A setting with several values is a list.",
    ),
    method(
        c"telemetry_encode",
        encode,
        c"telemetry_encode(kind, pid, seq, stamp, fields) -> bytes\n\
          The datagram of a dict as of telemetry_parse(); a histogram is a sequence of (seconds, count).\n\
          Raises ValueError for a name or value that there is not.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

fn refuse(error: Malformed) -> Raised {
    // SAFETY: an exception class of this interpreter.
    unsafe { raise(PyExc_ValueError, &error.0) };
    Raised
}

/// Runs `with` on the one argument, which is bytes.
fn on_bytes(
    arguments: *mut PyObject,
    with: impl FnOnce(&[u8]) -> PyResult<Object>,
) -> *mut PyObject {
    let mut bytes = ptr::null_mut();
    // SAFETY: the format has one place, and CPython checks that it is bytes, which `arguments` keeps alive.
    unsafe {
        if PyArg_ParseTuple(arguments, c"S".as_ptr(), &raw mut bytes) == 0 {
            return ptr::null_mut();
        }
        with(bytes_of(bytes)).map_or(ptr::null_mut(), Object::into_ptr)
    }
}

unsafe extern "C" fn parse(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    on_bytes(arguments, |bytes| {
        let datagram = Datagram::parse(bytes).map_err(refuse)?;
        let Header { kind, pid, seq, stamp_s } = datagram.header;
        let fields = reading::datagram(&datagram)?;
        // SAFETY: formats and arguments agree; `N` takes over the reference.
        unsafe {
            Object::from_new(Py_BuildValue(
                c"(IIIdN)".as_ptr(),
                u32::from(kind),
                pid,
                seq,
                stamp_s,
                fields.into_ptr(),
            ))
        }
    })
}

unsafe extern "C" fn receive(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    on_bytes(arguments, |bytes| {
        let datagram = Datagram::parse(bytes).map_err(refuse)?;
        let Header { kind, pid, seq, stamp_s } = datagram.header;
        let is_tick = kind == kind::REQUEST_METRICS;
        let (fields, record) = if is_tick {
            let record = tick::record(&datagram);
            plausible::check(&record).map_err(refuse)?;
            let record = Object::from_bytes(&record)?;
            (reading::single_values(&datagram)?, record)
        } else {
            // SAFETY: a thread state is attached: Python called.
            (reading::datagram(&datagram)?, unsafe { Object::from_borrowed(Py_None()) })
        };
        // SAFETY: formats and arguments agree; `N` takes over the references.
        unsafe {
            Object::from_new(Py_BuildValue(
                c"(IIIdNN)".as_ptr(),
                u32::from(kind),
                pid,
                seq,
                stamp_s,
                fields.into_ptr(),
                record.into_ptr(),
            ))
        }
    })
}

unsafe extern "C" fn record(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    on_bytes(arguments, |bytes| {
        Object::from_bytes(&tick::record(&Datagram::parse(bytes).map_err(refuse)?))
    })
}

unsafe extern "C" fn read(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    on_bytes(arguments, reading::record)
}

unsafe extern "C" fn merge(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut records = ptr::null_mut();
    // SAFETY: the format has one place, for an object that the tuple keeps alive.
    unsafe {
        if PyArg_ParseTuple(arguments, c"O".as_ptr(), &raw mut records) == 0 {
            return ptr::null_mut();
        }
    }
    merged(records).map_or(ptr::null_mut(), Object::into_ptr)
}

fn merged(records: *mut PyObject) -> PyResult<Object> {
    // SAFETY: `records` is live; the list or tuple holds its items while we read them, and nobody else has it, or
    // the caller does, who is here.
    unsafe {
        let records = Object::from_new(PySequence_Tuple(records))?;
        let mut sum = Sum::default();
        for place in 0..PyTuple_Size(records.as_ptr()) {
            let item = PyTuple_GetItem(records.as_ptr(), place);
            if PyBytes_Check(item) == 0 {
                raise(PyExc_TypeError, "a record is bytes");
                return Err(Raised);
            }
            sum.add(bytes_of(item)).map_err(refuse)?;
        }
        Object::from_bytes(&sum.into_record())
    }
}

unsafe extern "C" fn encode(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut kind, mut pid, mut seq, mut stamp_s) = (0_u32, 0_u32, 0_u32, 0_f64);
    let mut fields = ptr::null_mut();
    // SAFETY: each place has the type that the format says, and CPython checks that the last is a dict.
    let made = unsafe {
        if PyArg_ParseTuple(
            arguments,
            c"IIIdO!".as_ptr(),
            &raw mut kind,
            &raw mut pid,
            &raw mut seq,
            &raw mut stamp_s,
            &raw mut PyDict_Type,
            &raw mut fields,
        ) == 0
        {
            return ptr::null_mut();
        }
        let Ok(kind) = u8::try_from(kind) else {
            raise(PyExc_ValueError, "a kind is below 256");
            return ptr::null_mut();
        };
        writing::datagram(&Header { kind, pid, seq, stamp_s }, fields)
    };
    made.and_then(|bytes| Object::from_bytes(&bytes)).map_or(ptr::null_mut(), Object::into_ptr)
}
