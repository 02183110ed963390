//! Arguments and results: Rust values of Python objects, and the other way round.

use crate::attached::Attached;
use crate::c_api::*;
use crate::exception::{Exception, clear_raised};
use crate::object::{Object, PyResult, Raised};
use std::ffi::CStr;

/// A value that an object can be read as. TypeError for objects of another type, OverflowError for
/// numbers that do not fit.
pub trait FromPython<'a, 'py: 'a>: Sized {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self>;
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for &'a Object<'py> {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        Ok(object)
    }
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for &'a str {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        match object.is_text() {
            true => object.as_text(),
            false => Err(type_error(object, "a str")),
        }
    }
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for String {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        <&str>::from_python(object).map(str::to_owned)
    }
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for &'a [u8] {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        object.as_bytes().ok_or_else(|| type_error(object, "bytes"))
    }
}

/// Bytes without a zero, as paths are.
impl<'a, 'py: 'a> FromPython<'a, 'py> for &'a CStr {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        let bytes = <&[u8]>::from_python(object)?;
        if bytes.contains(&0) {
            return Err(Exception::ValueError.raise(object.py(), "embedded null byte"));
        }
        // SAFETY: a bytes object has a zero behind its content, which has none itself.
        unsafe {
            let start = bytes.as_ptr();
            let with_end = std::slice::from_raw_parts(start, bytes.len() + 1);
            Ok(CStr::from_bytes_with_nul_unchecked(with_end))
        }
    }
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for bool {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        object.is_true()
    }
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for i64 {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        object.to_i64()
    }
}

impl<'a, 'py: 'a> FromPython<'a, 'py> for u64 {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        // SAFETY: a live object; TypeError unless it is an int.
        unsafe {
            match PyLong_AsUnsignedLongLong(object.as_ptr()) {
                u64::MAX if !PyErr_Occurred().is_null() => Err(Raised),
                number => Ok(number),
            }
        }
    }
}

macro_rules! narrow_from_python {
    ($($type:ty),*) => {$(
        impl<'a, 'py: 'a> FromPython<'a, 'py> for $type {
            fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
                let number = object.to_i64()?;
                number.try_into().map_err(|_| {
                    let message = format!("{number} is out of range");
                    Exception::OverflowError.raise(object.py(), &message)
                })
            }
        }
    )*};
}

narrow_from_python!(i32, u32, usize);

impl<'a, 'py: 'a> FromPython<'a, 'py> for f64 {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        // SAFETY: a live object; TypeError unless it is a number.
        unsafe {
            let number = PyFloat_AsDouble(object.as_ptr());
            if number == -1.0 && !PyErr_Occurred().is_null() { Err(Raised) } else { Ok(number) }
        }
    }
}

/// None, or a value.
impl<'a, 'py: 'a, T: FromPython<'a, 'py>> FromPython<'a, 'py> for Option<T> {
    fn from_python(object: &'a Object<'py>) -> PyResult<Self> {
        if object.is_none() { Ok(None) } else { T::from_python(object).map(Some) }
    }
}

fn type_error(found: &Object, expected: &str) -> Raised {
    let message = format!("expected {expected}, found {}", found.type_name());
    Exception::TypeError.raise(found.py(), &message)
}

/// The values of a call's positional arguments.
pub trait FromArguments<'a, 'py: 'a>: Sized {
    const COUNT: usize;

    /// `None` if their number is another one.
    fn from_arguments(arguments: &'a [Object<'py>]) -> Option<PyResult<Self>>;
}

impl<'a, 'py: 'a> FromArguments<'a, 'py> for () {
    const COUNT: usize = 0;

    fn from_arguments(arguments: &'a [Object<'py>]) -> Option<PyResult<Self>> {
        arguments.is_empty().then_some(Ok(()))
    }
}

macro_rules! from_arguments {
    ($count:literal: $($name:ident $type:ident),*) => {
        impl<'a, 'py: 'a, $($type: FromPython<'a, 'py>),*> FromArguments<'a, 'py> for ($($type,)*) {
            const COUNT: usize = $count;

            fn from_arguments(arguments: &'a [Object<'py>]) -> Option<PyResult<Self>> {
                let [$($name),*] = arguments else { return None };
                Some((|| Ok(($($type::from_python($name)?,)*)))())
            }
        }
    };
}

from_arguments!(1: a A);
from_arguments!(2: a A, b B);
from_arguments!(3: a A, b B, c C);
from_arguments!(4: a A, b B, c C, d D);
from_arguments!(5: a A, b B, c C, d D, e E);

/// Reads the arguments of a call of the function `name`.
pub fn arguments<'a, 'py, T: FromArguments<'a, 'py>>(
    py: Attached<'py>,
    name: &str,
    arguments: &'a [Object<'py>],
) -> PyResult<T> {
    T::from_arguments(arguments).unwrap_or_else(|| {
        let (count, found) = (T::COUNT, arguments.len());
        let plural = if count == 1 { "" } else { "s" };
        let message = format!("{name}() takes {count} argument{plural} ({found} given)");
        Err(Exception::TypeError.raise(py, &message))
    })
}

/// A value that an object can be made of.
pub trait ToPython {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>>;
}

macro_rules! numbers_to_python {
    ($($type:ty as $wide:ty: $make:path;)*) => {$(
        impl ToPython for $type {
            fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
                // SAFETY: a new reference, or null with an exception set.
                unsafe { Object::from_new(py, $make(<$wide>::from(*self))) }
            }
        }
    )*};
}

numbers_to_python! {
    i32 as i64: PyLong_FromLongLong;
    i64 as i64: PyLong_FromLongLong;
    u32 as u64: PyLong_FromUnsignedLongLong;
    u64 as u64: PyLong_FromUnsignedLongLong;
    usize as usize: PyLong_FromSize_t;
    f64 as f64: PyFloat_FromDouble;
    bool as std::ffi::c_long: PyBool_FromLong;
}

impl ToPython for str {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        Object::from_text(py, self)
    }
}

impl ToPython for String {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        Object::from_text(py, self)
    }
}

impl<T: ToPython + ?Sized> ToPython for &T {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        (**self).to_python(py)
    }
}

/// None, or the value's object.
impl<T: ToPython> ToPython for Option<T> {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        self.as_ref().map_or_else(|| Ok(Object::none(py)), |value| value.to_python(py))
    }
}

/// A list.
impl<T: ToPython> ToPython for [T] {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        list(py, self, |item| item.to_python(py))
    }
}

impl<T: ToPython> ToPython for Vec<T> {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        self[..].to_python(py)
    }
}

/// A new reference to the same object.
impl ToPython for Object<'_> {
    fn to_python<'py>(&self, py: Attached<'py>) -> PyResult<Object<'py>> {
        // SAFETY: the object is alive, since `self` borrows a token on this very thread.
        unsafe { Ok(Object::from_borrowed(py, self.as_ptr())) }
    }
}

/// A list of what `object` makes of each item.
pub fn list<'py, T>(
    py: Attached<'py>,
    items: impl IntoIterator<Item = T>,
    object: impl Fn(T) -> PyResult<Object<'py>>,
) -> PyResult<Object<'py>> {
    let list = Object::new_list(py)?;
    for item in items {
        list.append(&object(item)?)?;
    }
    Ok(list)
}

pub fn tuple<'py>(py: Attached<'py>, items: &[&dyn ToPython]) -> PyResult<Object<'py>> {
    // SAFETY: a new tuple of so many empty places, each of which gets a reference of its own before
    // anything else sees the tuple.
    unsafe {
        let tuple = Object::from_new(py, PyTuple_New(items.len() as Py_ssize_t))?;
        for (index, item) in items.iter().enumerate() {
            let item = item.to_python(py)?.into_ptr();
            PyTuple_SetItem(tuple.as_ptr(), index as Py_ssize_t, item);
        }
        Ok(tuple)
    }
}

/// A dict with str keys.
pub fn dict<'py>(py: Attached<'py>, items: &[(&str, &dyn ToPython)]) -> PyResult<Object<'py>> {
    let dict = Object::new_dict(py)?;
    for (name, value) in items {
        dict.set_item(&Object::from_text(py, name)?, &value.to_python(py)?)?;
    }
    Ok(dict)
}

/// The items of a `dict`: fields of `$row` under their own names, and names with another value.
#[macro_export]
macro_rules! fields {
    (@ $row:ident $name:ident) => { &$row.$name };
    (@ $row:ident $name:ident $value:expr) => { &$value };
    ($row:ident; $($name:ident $(= $value:expr)?),* $(,)?) => {
        &[$((
            stringify!($name),
            $crate::fields!(@ $row $name $($value)?) as &dyn $crate::convert::ToPython,
        )),*]
    };
}

/// Calls `take` with the bytes of a str in latin-1. Raises TypeError for anything but a str and
/// UnicodeEncodeError for characters beyond latin-1; `what` names the value in the message.
pub fn with_latin1<T>(
    text: &Object,
    what: &str,
    take: impl FnOnce(&[u8]) -> PyResult<T>,
) -> PyResult<T> {
    let py = text.py();
    if !text.is_text() {
        let found = text.type_name();
        return Err(Exception::TypeError.raise(py, &format!("{what} must be a str, not {found}")));
    }
    match text.as_text() {
        Ok(ascii) if ascii.is_ascii() => return take(ascii.as_bytes()),
        Ok(_) => {}
        // Latin-1 says what is wrong with it.
        Err(Raised) => clear_raised(py),
    }
    // SAFETY: a live str.
    let encoded = unsafe { Object::from_new(py, PyUnicode_AsLatin1String(text.as_ptr()))? };
    take(encoded.as_bytes().unwrap_or_default())
}

/// The value of a size argument: an int or an object with `__index__`. `None` for None and for a
/// negative number.
pub fn size(object: &Object, function: &str) -> PyResult<Option<usize>> {
    if object.is_none() {
        return Ok(None);
    }
    // SAFETY: a live object; OverflowError beyond the range.
    unsafe {
        if PyIndex_Check(object.as_ptr()) == 0 {
            let found = object.type_name();
            let message = format!("{function}() takes an int or None, not {found}");
            return Err(Exception::TypeError.raise(object.py(), &message));
        }
        let size = PyNumber_AsSsize_t(object.as_ptr(), PyExc_OverflowError);
        if size == -1 && !PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        Ok(usize::try_from(size).ok())
    }
}
