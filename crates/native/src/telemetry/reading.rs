//! Fields as dicts.

use headway_measure::Histogram;
use headway_measure::scale::upper_bound_ns;
use headway_python::object::{Object, PyResult, Raised, set_item};
use headway_telemetry::datagram::{self, Datagram};
use headway_telemetry::fields::{Field, Kept, field, id};
use headway_telemetry::histogram::decode;
use headway_telemetry::record::{self, Slot};
use headway_telemetry::{Malformed, Value, counts, seconds_list};
use pyo3_ffi::*;

use super::refuse;

pub fn datagram(datagram: &Datagram) -> PyResult<Object> {
    of_entries(datagram.fields().map(Ok), datagram_row)
}

/// The fields of a tick that are neither a distribution nor a list, and its holds, which no record has.
pub fn single_values(datagram: &Datagram) -> PyResult<Object> {
    let entries = datagram.fields().filter(|(id, value)| match value {
        Value::Row(_) => *id == id::HOLDS,
        Value::Histogram(_) | Value::Counts(_) | Value::SecondsList(_) => false,
        _ => true,
    });
    of_entries(entries.map(Ok), datagram_row)
}

fn datagram_row(row: &[u8]) -> PyResult<Object> {
    of_entries(datagram::entries(row), nested)
}

pub fn record(bytes: &[u8]) -> PyResult<Object> {
    let entries = record::entries(bytes).map_err(refuse)?;
    of_entries(by_number(entries), record_row)
}

fn record_row(row: &[u8]) -> PyResult<Object> {
    of_entries(by_number(record::row_entries(row)), nested)
}

fn by_number<'a>(
    entries: impl Iterator<Item = Result<(&'static Field, Value<'a>), Malformed>>,
) -> impl Iterator<Item = Result<(u16, Value<'a>), Malformed>> {
    entries.map(|entry| entry.map(|(field, value)| (field.id, value)))
}

fn nested(_: &[u8]) -> PyResult<Object> {
    Err(refuse(Malformed("a row in a row".into())))
}

/// A dict of the fields by name. Rows are in lists; so are the values of a setting that has several.
fn of_entries<'a>(
    entries: impl Iterator<Item = Result<(u16, Value<'a>), Malformed>>,
    row: fn(&[u8]) -> PyResult<Object>,
) -> PyResult<Object> {
    // SAFETY: a thread state is attached: Python called.
    let dict = unsafe { Object::from_new(PyDict_New())? };
    let mut last = None;
    for entry in entries {
        let (id, value) = entry.map_err(refuse)?;
        let known = field(id);
        let name = match known {
            Some(field) => string(field.name.as_bytes())?,
            None => string(format!("id{id}").as_bytes())?,
        };
        let value = match value {
            Value::Row(bytes) => {
                append(&dict, &name, row(bytes)?)?;
                continue;
            }
            other => object(other)?,
        };
        // Those of a record come one after the other.
        if last == Some(id) && known.is_some_and(|field| field.kept == Kept::Distinct) {
            append(&dict, &name, value)?;
        } else {
            set_item(&dict, &name, &value)?;
        }
        last = Some(id);
    }
    Ok(dict)
}

/// Adds to the list under `name`; what is there and is no list becomes its first item.
fn append(dict: &Object, name: &Object, value: Object) -> PyResult<()> {
    // SAFETY: live objects; the dict lends what it holds.
    unsafe {
        let present = PyDict_GetItemWithError(dict.as_ptr(), name.as_ptr());
        if present.is_null() && !PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        let list = if !present.is_null() && PyList_Check(present) != 0 {
            Object::from_borrowed(present)
        } else {
            let list = Object::from_new(PyList_New(0))?;
            if !present.is_null() && PyList_Append(list.as_ptr(), present) < 0 {
                return Err(Raised);
            }
            set_item(dict, name, &list)?;
            list
        };
        if PyList_Append(list.as_ptr(), value.as_ptr()) < 0 { Err(Raised) } else { Ok(()) }
    }
}

fn object(value: Value) -> PyResult<Object> {
    match value {
        Value::Count(number) => count(number),
        Value::Integer(number) => integer(number),
        Value::Seconds(ns) => float(ns as f64 / 1e9),
        Value::Number(number) => float(number),
        Value::Text(bytes) => string(bytes),
        Value::Counts(bytes) => list(counts(bytes), |item| integer(i64::from(item))),
        Value::SecondsList(bytes) => list(seconds_list(bytes), float),
        Value::Histogram(bytes) => histogram(&decode(bytes).map_err(refuse)?),
        Value::Slots(bytes) => list(record::parse_slots(bytes).map_err(refuse)?, slot),
        Value::Row(_) => Err(refuse(Malformed("a row where none may be".into()))),
    }
}

fn slot(slot: Slot) -> PyResult<Object> {
    let us = |us: u64| us as f64 / 1e6;
    dict([
        ("completed", count(slot.completed)?),
        ("busy", float(us(slot.busy_us))?),
        ("cpu", float(us(slot.cpu_us))?),
        ("longest", float(us(slot.longest_us))?),
    ])
}

/// A distribution as in a report's HIST: what an empty one does not know is None.
fn histogram(histogram: &Histogram) -> PyResult<Object> {
    let seconds = |ns: Option<u64>| match ns {
        Some(ns) => float(ns as f64 / 1e9),
        // SAFETY: a thread state is attached: Python called.
        None => Ok(unsafe { Object::from_borrowed(Py_None()) }),
    };
    let filled = |ns: u64| (!histogram.is_empty()).then_some(ns);
    let buckets = list(&histogram.counts, |(bucket, number)| {
        // The last bucket has no bound but what was found in it.
        let bound_ns = match upper_bound_ns(usize::from(*bucket)) {
            u64::MAX => histogram.max_ns,
            bound_ns => bound_ns,
        };
        let pair = [float(bound_ns as f64 / 1e9)?, count(*number)?];
        list(pair, Ok)
    })?;
    dict([
        ("count", count(histogram.count())?),
        ("sum", float(histogram.sum_ns as f64 / 1e9)?),
        ("min", seconds(filled(histogram.min_ns))?),
        ("max", seconds(filled(histogram.max_ns))?),
        ("p50", seconds(histogram.percentile_ns(0.5))?),
        ("p90", seconds(histogram.percentile_ns(0.9))?),
        ("p95", seconds(histogram.percentile_ns(0.95))?),
        ("p99", seconds(histogram.percentile_ns(0.99))?),
        ("p999", seconds(histogram.percentile_ns(0.999))?),
        ("buckets", buckets),
    ])
}

fn dict<const N: usize>(items: [(&str, Object); N]) -> PyResult<Object> {
    // SAFETY: a thread state is attached: Python called.
    let dict = unsafe { Object::from_new(PyDict_New())? };
    for (name, value) in items {
        set_item(&dict, &string(name.as_bytes())?, &value)?;
    }
    Ok(dict)
}

fn list<T>(
    items: impl IntoIterator<Item = T>,
    object: impl Fn(T) -> PyResult<Object>,
) -> PyResult<Object> {
    // SAFETY: a thread state is attached; the list takes a reference of its own.
    unsafe {
        let list = Object::from_new(PyList_New(0))?;
        for item in items {
            if PyList_Append(list.as_ptr(), object(item)?.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        Ok(list)
    }
}

/// What is no UTF-8 is replaced.
fn string(bytes: &[u8]) -> PyResult<Object> {
    // SAFETY: pointer and length are those of `bytes`; the error handler's name ends with zero.
    unsafe {
        Object::from_new(PyUnicode_DecodeUTF8(
            bytes.as_ptr().cast(),
            bytes.len() as Py_ssize_t,
            c"replace".as_ptr(),
        ))
    }
}

fn count(number: u64) -> PyResult<Object> {
    // SAFETY: a thread state is attached: Python called.
    unsafe { Object::from_new(PyLong_FromUnsignedLongLong(number)) }
}

fn integer(number: i64) -> PyResult<Object> {
    // SAFETY: a thread state is attached: Python called.
    unsafe { Object::from_new(PyLong_FromLongLong(number)) }
}

fn float(number: f64) -> PyResult<Object> {
    // SAFETY: a thread state is attached: Python called.
    unsafe { Object::from_new(PyFloat_FromDouble(number)) }
}
