//! `_native.parse_toml`: a TOML document as Python objects with their line, which `tomllib` does
//! not report (and Python 3.10 has no `tomllib`).
//!
//! Only `headway.server.config.toml_file` interprets the keys.

use headway_python::attached::Attached;
use headway_python::convert::{ToPython, arguments, dict, list, tuple};
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, function};
use headway_python::object::{Object, PyResult};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

pub static FUNCTIONS: Methods<2> = Methods::new([
    function(
        c"parse_toml",
        parse_toml,
        c"parse_toml(text: str) -> dict of nodes, in the order of the text\n\
          \n\
          A node is (line, text as written, value), where value is a str, int, float, bool, list\n\
          of nodes, dict of nodes, or None for a date and an integer beyond 64 bits. Raises\n\
          ValueError with (line, text at the error, message).",
    ),
    END,
]);

fn parse_toml<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (text,): (&str,) = arguments(py, "parse_toml", given)?;
    Document { py, text }.parse()
}

struct Document<'a, 'py> {
    py: Attached<'py>,
    text: &'a str,
}

impl<'py> Document<'_, 'py> {
    fn parse(&self) -> PyResult<Object<'py>> {
        match DeTable::parse(self.text) {
            Ok(table) => self.table(table.get_ref()),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                let line = self.line(span.start);
                let found = self.text.get(span).unwrap_or_default();
                // The library's messages have several lines.
                let message = error.message().trim().replace('\n', ", ");
                let reason = tuple(self.py, &[&line, &found, &message])?;
                Err(Exception::ValueError.raise_value(&reason))
            }
        }
    }

    fn table(&self, table: &DeTable) -> PyResult<Object<'py>> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let dict = dict(self.py, &[])?;
        for (key, value) in entries {
            let node = self.node(key.span().start, value.span(), value.get_ref())?;
            dict.set_item(&Object::from_text(self.py, key.get_ref())?, &node)?;
        }
        Ok(dict)
    }

    fn node(&self, start: usize, written: Range<usize>, value: &DeValue) -> PyResult<Object<'py>> {
        let text = self.text.get(written).unwrap_or_default();
        tuple(self.py, &[&self.line(start), &text, &self.value(value)?])
    }

    fn value(&self, value: &DeValue) -> PyResult<Object<'py>> {
        match value {
            DeValue::String(text) => text.to_python(self.py),
            DeValue::Integer(digits) => {
                i64::from_str_radix(digits.as_str(), digits.radix()).ok().to_python(self.py)
            }
            DeValue::Float(digits) => digits.as_str().parse::<f64>().ok().to_python(self.py),
            DeValue::Boolean(value) => value.to_python(self.py),
            DeValue::Datetime(_) => Ok(Object::none(self.py)),
            DeValue::Array(items) => list(self.py, items.iter(), |item| {
                self.node(item.span().start, item.span(), item.get_ref())
            }),
            DeValue::Table(table) => self.table(table),
        }
    }

    /// Returns the line, counted from 1, of the byte at `offset`.
    fn line(&self, offset: usize) -> i64 {
        let before = self.text.as_bytes().get(..offset).unwrap_or(self.text.as_bytes());
        before.iter().filter(|&&byte| byte == b'\n').count() as i64 + 1
    }
}
