//! `_native.parse_toml`: a TOML document as Python objects that know the line they stand on, which
//! `tomllib` does not tell (and Python 3.10 has none).
//!
//! Knows nothing of what the keys mean; `headway.server.toml_file` does.

use headway_python::object::{Object, PyResult, Raised, set_item};
use pyo3_ffi::*;
use std::ops::Range;
use std::ptr;
use toml::de::{DeTable, DeValue};

use crate::{Methods, method, text_argument};

static METHODS: Methods<2> = Methods([
    method(
        c"parse_toml",
        parse_toml,
        c"parse_toml(text) -> dict of nodes, in the order of the text\n\
          A node is (line, text as written, value), where value is a str, int, float, bool, list of\n\
          nodes, dict of nodes, or None for a date and an integer beyond 64 bits. Raises ValueError\n\
          with (line, text where it is, message).",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn parse_toml(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: a call of CPython's, whose arguments outlive it.
    let Some(text) = (unsafe { text_argument(arguments, c"U:parse_toml") }) else {
        return ptr::null_mut();
    };
    Document(text).parse().map_or(ptr::null_mut(), Object::into_ptr)
}

struct Document<'a>(&'a str);

impl Document<'_> {
    fn parse(&self) -> PyResult<Object> {
        match DeTable::parse(self.0) {
            Ok(table) => self.table(table.get_ref()),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                let line = number(self.line(span.start))?;
                let found = string(self.0.get(span).unwrap_or_default())?;
                // The library explains over several lines.
                let message = string(&error.message().trim().replace('\n', ", "))?;
                let reason = triple(&line, &found, &message)?;
                // SAFETY: an exception class of this interpreter, and a live object.
                unsafe { PyErr_SetObject(PyExc_ValueError, reason.as_ptr()) };
                Err(Raised)
            }
        }
    }

    fn table(&self, table: &DeTable) -> PyResult<Object> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        // SAFETY: a thread state is attached: Python called.
        let dict = unsafe { Object::from_new(PyDict_New())? };
        for (key, value) in entries {
            let node = self.node(key.span().start, value.span(), value.get_ref())?;
            set_item(&dict, &string(key.get_ref())?, &node)?;
        }
        Ok(dict)
    }

    fn node(&self, start: usize, written: Range<usize>, value: &DeValue) -> PyResult<Object> {
        let text = self.0.get(written).unwrap_or_default();
        triple(&number(self.line(start))?, &string(text)?, &self.value(value)?)
    }

    fn value(&self, value: &DeValue) -> PyResult<Object> {
        // SAFETY: a thread state is attached; what is made here is handed over as it is made.
        unsafe {
            match value {
                DeValue::String(text) => string(text),
                DeValue::Integer(digits) => {
                    match i64::from_str_radix(digits.as_str(), digits.radix()) {
                        Ok(value) => number(value),
                        Err(_) => Ok(Object::from_borrowed(Py_None())),
                    }
                }
                DeValue::Float(digits) => match digits.as_str().parse() {
                    Ok(value) => Object::from_new(PyFloat_FromDouble(value)),
                    Err(_) => Ok(Object::from_borrowed(Py_None())),
                },
                DeValue::Boolean(value) => Object::from_new(PyBool_FromLong((*value).into())),
                DeValue::Datetime(_) => Ok(Object::from_borrowed(Py_None())),
                DeValue::Array(items) => {
                    let list = Object::from_new(PyList_New(0))?;
                    for item in items.iter() {
                        let node = self.node(item.span().start, item.span(), item.get_ref())?;
                        if PyList_Append(list.as_ptr(), node.as_ptr()) < 0 {
                            return Err(Raised);
                        }
                    }
                    Ok(list)
                }
                DeValue::Table(table) => self.table(table),
            }
        }
    }

    /// The line, counted from 1, on which the byte at `offset` stands.
    fn line(&self, offset: usize) -> i64 {
        let before = self.0.as_bytes().get(..offset).unwrap_or(self.0.as_bytes());
        before.iter().filter(|&&byte| byte == b'\n').count() as i64 + 1
    }
}

fn string(text: &str) -> PyResult<Object> {
    // SAFETY: pointer and length are those of `text`.
    unsafe {
        Object::from_new(PyUnicode_FromStringAndSize(
            text.as_ptr().cast(),
            text.len() as Py_ssize_t,
        ))
    }
}

fn number(value: i64) -> PyResult<Object> {
    // SAFETY: a thread state is attached: Python called.
    unsafe { Object::from_new(PyLong_FromLongLong(value)) }
}

fn triple(first: &Object, second: &Object, third: &Object) -> PyResult<Object> {
    // SAFETY: live objects; the tuple takes references of its own.
    unsafe { Object::from_new(PyTuple_Pack(3, first.as_ptr(), second.as_ptr(), third.as_ptr())) }
}
