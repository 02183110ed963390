//! Values of an environ: strs that decode bytes as latin-1 (PEP 3333, "Unicode Issues").

use crate::http::digits::push_decimal;
use headway_python::attached::Attached;
use headway_python::object::{Object, PyResult, Raised};
use headway_python::stored::Stored;

pub fn set_latin1(environ: &Object, key: &Stored, value: &[u8]) -> PyResult<()> {
    let py = environ.py();
    environ.set_item(key.get(py), &Object::from_latin1(py, value)?)
}

pub fn set_decimal(environ: &Object, key: &Stored, number: u64) -> PyResult<()> {
    let mut digits = Vec::with_capacity(20);
    push_decimal(&mut digits, number);
    set_latin1(environ, key, &digits)
}

/// The last str, with the bytes from which it was made.
#[derive(Default)]
pub struct Remembered(Option<(Box<[u8]>, Stored)>);

impl Remembered {
    /// The str for the bytes. If the bytes are the same as last time, returns the same object.
    pub fn text<'py>(&mut self, py: Attached<'py>, bytes: &[u8]) -> PyResult<&Object<'py>> {
        if self.0.as_ref().is_none_or(|(last, _)| &last[..] != bytes) {
            self.0 = Some((bytes.into(), Stored::new(Object::from_latin1(py, bytes)?)));
        }
        self.0.as_ref().map(|(_, text)| text.get(py)).ok_or(Raised)
    }
}
