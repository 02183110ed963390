//! Dicts as datagrams.

use headway_measure::Histogram;
use headway_measure::scale::bucket;
use headway_python::object::{Object, PyResult, Raised};
use headway_telemetry::datagram::{Datagram, Header, Writer};
use headway_telemetry::fields::{Field, Type, field_named};
use headway_telemetry::{Malformed, nanoseconds};
use pyo3_ffi::*;
use std::ptr;

use super::refuse;

/// The datagram of a dict by field names.
///
/// # Safety
/// `fields` is a live dict.
pub unsafe fn datagram(header: &Header, fields: *mut PyObject) -> PyResult<Vec<u8>> {
    let mut writer = Writer::default();
    writer.begin(header);
    // SAFETY: the caller's.
    unsafe { write_dict(&mut writer, fields)? };
    // Whoever reads it looks at it as closely.
    Datagram::parse(writer.bytes()).map_err(refuse)?;
    Ok(writer.bytes().to_vec())
}

/// # Safety
/// `fields` is a live dict that nobody changes meanwhile.
unsafe fn write_dict(writer: &mut Writer, fields: *mut PyObject) -> PyResult<()> {
    // A copy, since reading a value may run code of its class.
    // SAFETY: the caller's; the copy lends its items for as long as it lives.
    unsafe {
        let fields = Object::from_new(PyDict_Copy(fields))?;
        let (mut place, mut name, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        while PyDict_Next(fields.as_ptr(), &mut place, &mut name, &mut value) != 0 {
            let name = text(name)?;
            let Some(field) = field_named(name) else {
                return Err(refuse(Malformed(format!("there is no field {name:?}"))));
            };
            write(writer, field, value)?;
        }
    }
    Ok(())
}

/// # Safety
/// `value` is a live object.
unsafe fn write(writer: &mut Writer, field: &Field, value: *mut PyObject) -> PyResult<()> {
    let id = field.id;
    // SAFETY: the caller's; each reading below raises where the value is of another type.
    unsafe {
        match field.kind {
            Type::Count => writer.count(id, count(value)?),
            Type::Integer => writer.integer(id, integer(value)?),
            Type::Seconds | Type::Number => writer.number(id, float(value)?),
            Type::Text => writer.text(id, text(value)?),
            Type::Counts => {
                let items = each(value, |item| integer(item))?;
                let items = items.into_iter().map(|item| item.clamp(0, i32::MAX.into()) as i32);
                writer.counts(id, items.collect::<Vec<_>>().into_iter());
            }
            Type::SecondsList => {
                writer.seconds_list(id, each(value, |item| float(item))?.into_iter())
            }
            Type::Histogram => writer.histogram(id, &histogram(value)?),
            Type::Row => {
                for row in each(value, |row| Ok(Object::from_borrowed(row)))? {
                    write_row(writer, field, &row)?;
                }
            }
            Type::Slots => {
                return Err(refuse(Malformed(format!("{} is in records only", field.name))));
            }
        }
    }
    Ok(())
}

fn write_row(writer: &mut Writer, field: &Field, row: &Object) -> PyResult<()> {
    // SAFETY: a live object; only a dict is read.
    unsafe {
        if PyDict_Check(row.as_ptr()) == 0 {
            return Err(refuse(Malformed(format!("a row of {} is a dict", field.name))));
        }
        let mut written = Ok(());
        let fits = writer.row(field.id, |writer| written = write_dict(writer, row.as_ptr()));
        written?;
        if fits { Ok(()) } else { Err(refuse(Malformed(format!("{} are too many", field.name)))) }
    }
}

/// # Safety
/// `value` is a live object.
unsafe fn histogram(value: *mut PyObject) -> PyResult<Histogram> {
    let mut histogram = Histogram::default();
    // SAFETY: the caller's.
    for pair in unsafe { each(value, |pair| each(pair, |number| float(number)))? } {
        let [seconds, number] = pair[..] else {
            return Err(refuse(Malformed("a histogram is pairs of seconds and count".into())));
        };
        let (ns, count) = (nanoseconds(seconds.max(0.0)) as u64, number.max(0.0) as u64);
        if count != 0 {
            histogram.merge(&Histogram {
                sum_ns: ns.saturating_mul(count),
                min_ns: ns,
                max_ns: ns,
                counts: vec![(bucket(ns) as u16, count)],
            });
        }
    }
    Ok(histogram)
}

/// What `read` makes of each item of a sequence.
///
/// # Safety
/// `value` is a live object.
unsafe fn each<T>(
    value: *mut PyObject,
    read: impl Fn(*mut PyObject) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    // SAFETY: the caller's; the tuple keeps its items.
    unsafe {
        let items = Object::from_new(PySequence_Tuple(value))?;
        (0..PyTuple_Size(items.as_ptr()))
            .map(|place| read(PyTuple_GetItem(items.as_ptr(), place)))
            .collect()
    }
}

/// # Safety
/// `value` is a live object.
unsafe fn float(value: *mut PyObject) -> PyResult<f64> {
    // SAFETY: the caller's.
    unsafe {
        let number = PyFloat_AsDouble(value);
        if number == -1.0 && !PyErr_Occurred().is_null() { Err(Raised) } else { Ok(number) }
    }
}

/// # Safety
/// `value` is a live object.
unsafe fn integer(value: *mut PyObject) -> PyResult<i64> {
    // SAFETY: the caller's.
    unsafe {
        let number = PyLong_AsLongLong(value);
        if number == -1 && !PyErr_Occurred().is_null() { Err(Raised) } else { Ok(number) }
    }
}

/// # Safety
/// `value` is a live object.
unsafe fn count(value: *mut PyObject) -> PyResult<u64> {
    // SAFETY: the caller's; only an int is asked.
    unsafe {
        if PyLong_Check(value) == 0 {
            return Err(refuse(Malformed("a count is an int".into())));
        }
        let number = PyLong_AsUnsignedLongLong(value);
        if number == u64::MAX && !PyErr_Occurred().is_null() { Err(Raised) } else { Ok(number) }
    }
}

/// The UTF-8 of a str, which lives as long as that.
///
/// # Safety
/// `value` is a live object.
unsafe fn text<'a>(value: *mut PyObject) -> PyResult<&'a str> {
    // SAFETY: the caller's; only a str is asked, and CPython says that its bytes are UTF-8.
    unsafe {
        if PyUnicode_Check(value) == 0 {
            return Err(refuse(Malformed("a name or text is a str".into())));
        }
        let mut length = 0;
        let utf8 = PyUnicode_AsUTF8AndSize(value, &mut length);
        if utf8.is_null() {
            return Err(Raised);
        }
        let bytes = std::slice::from_raw_parts(utf8.cast::<u8>(), length as usize);
        Ok(std::str::from_utf8_unchecked(bytes))
    }
}
