//! Owned references and errors: the thin safe layer over `pyo3-ffi`.
//!
//! Rule: a thread state of the object's interpreter is attached wherever an [`Object`] is made,
//! used or dropped (the GIL is held, where there is one). The functions here rely on it.

use pyo3_ffi::*;
use std::ffi::CStr;
use std::ptr::{self, NonNull};

/// An owned reference.
pub struct Object(NonNull<PyObject>);

/// A Python exception is set in this thread.
#[derive(Debug)]
pub struct Raised;

pub type PyResult<T> = Result<T, Raised>;

impl Object {
    /// Takes over a new reference, or the error that stands for it.
    ///
    /// # Safety
    /// `pointer` is a reference that nobody else will drop, or null with an exception set.
    pub unsafe fn from_new(pointer: *mut PyObject) -> PyResult<Self> {
        NonNull::new(pointer).map(Self).ok_or(Raised)
    }

    /// A reference of our own to what somebody else holds.
    ///
    /// # Safety
    /// `pointer` is a live object.
    pub unsafe fn from_borrowed(pointer: *mut PyObject) -> Self {
        // SAFETY: a live object, so not null.
        unsafe {
            Py_INCREF(pointer);
            Self(NonNull::new_unchecked(pointer))
        }
    }

    pub fn as_ptr(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// Gives the reference away.
    pub fn into_ptr(self) -> *mut PyObject {
        let pointer = self.as_ptr();
        std::mem::forget(self);
        pointer
    }

    pub fn from_latin1(bytes: &[u8]) -> PyResult<Self> {
        // SAFETY: pointer and length are those of `bytes`; a null `errors` means strict.
        unsafe {
            Self::from_new(PyUnicode_DecodeLatin1(
                bytes.as_ptr().cast(),
                bytes.len() as Py_ssize_t,
                ptr::null(),
            ))
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        // SAFETY: pointer and length are those of `bytes`.
        unsafe {
            Self::from_new(PyBytes_FromStringAndSize(
                bytes.as_ptr().cast(),
                bytes.len() as Py_ssize_t,
            ))
        }
    }

    /// The value of an int; OverflowError beyond 64 bits, TypeError for anything else.
    pub fn to_i64(&self) -> PyResult<i64> {
        // SAFETY: a live object.
        unsafe {
            match PyLong_AsLongLong(self.as_ptr()) {
                -1 if !PyErr_Occurred().is_null() => Err(Raised),
                number => Ok(number),
            }
        }
    }

    /// The text of a str; TypeError for anything else.
    pub fn to_text(&self) -> PyResult<String> {
        // SAFETY: a live object; the UTF-8 form lives in it.
        unsafe {
            let mut length = 0;
            let utf8 = PyUnicode_AsUTF8AndSize(self.as_ptr(), &mut length);
            if utf8.is_null() {
                return Err(Raised);
            }
            let bytes = std::slice::from_raw_parts(utf8.cast::<u8>(), length as usize);
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }

    /// An interned string, for keys.
    pub fn interned(text: &CStr) -> PyResult<Self> {
        // SAFETY: a string that ends with zero.
        unsafe { Self::from_new(PyUnicode_InternFromString(text.as_ptr())) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the reference is ours; a thread state is attached (the rule above).
        unsafe { Py_DECREF(self.0.as_ptr()) }
    }
}

/// `dict[key] = value`.
pub fn set_item(dict: &Object, key: &Object, value: &Object) -> PyResult<()> {
    // SAFETY: live objects; the first is a dict wherever this is called.
    match unsafe { PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Raised),
    }
}

/// `dict.get(key)`, as a reference of the caller's: where there is no GIL, another thread may take
/// a borrowed value out of the dict, and free it, before the caller holds it.
pub fn get_item(dict: &Object, key: &Object) -> PyResult<Option<Object>> {
    let mut value = ptr::null_mut();
    // SAFETY: live objects; SystemError if the first is no dict. The value is a new reference, or
    // null.
    unsafe {
        match compat::PyDict_GetItemRef(dict.as_ptr(), key.as_ptr(), &mut value) {
            0 => Ok(None),
            _ => Object::from_new(value).map(Some),
        }
    }
}

/// Sets an exception of type `class` with `message`.
///
/// # Safety
/// `class` is a live exception class, such as a `PyExc_…` of this interpreter.
pub unsafe fn raise(class: *mut PyObject, message: &str) -> Raised {
    // SAFETY: as the caller promises; the message's pointer and length are valid.
    unsafe {
        let text =
            PyUnicode_DecodeUTF8(message.as_ptr().cast(), message.len() as Py_ssize_t, ptr::null());
        if !text.is_null() {
            PyErr_SetObject(class, text);
            Py_DECREF(text);
        }
    }
    Raised
}

/// The name of an object's type, for messages.
///
/// # Safety
/// `object` is a live object.
pub unsafe fn type_name(object: *mut PyObject) -> String {
    // SAFETY: a live object has a type, and a type has a name that ends with zero.
    unsafe { CStr::from_ptr((*Py_TYPE(object)).tp_name).to_string_lossy().into_owned() }
}

/// Calls `take` with the bytes of a str in latin-1. Raises TypeError for anything but a str and
/// UnicodeEncodeError for characters beyond latin-1; `what` names the value in the message.
///
/// # Safety
/// `text` is a live object.
pub unsafe fn with_latin1<T>(
    text: *mut PyObject,
    what: &str,
    take: impl FnOnce(&[u8]) -> PyResult<T>,
) -> PyResult<T> {
    // SAFETY: `text` is live, and a str where its UTF-8 form is asked for. That form lives in the
    // str, the latin-1 bytes in `encoded`; both outlive the call of `take`.
    unsafe {
        if PyUnicode_Check(text) == 0 {
            let found = type_name(text);
            return Err(raise(PyExc_TypeError, &format!("{what} must be a str, not {found}")));
        }
        let mut length = 0;
        let utf8 = PyUnicode_AsUTF8AndSize(text, &mut length);
        if utf8.is_null() {
            PyErr_Clear();
        } else {
            let bytes = std::slice::from_raw_parts(utf8.cast::<u8>(), length as usize);
            if bytes.is_ascii() {
                return take(bytes);
            }
        }
        let encoded = Object::from_new(PyUnicode_AsLatin1String(text))?;
        take(bytes_of(encoded.as_ptr()))
    }
}

/// The content of a bytes object.
///
/// # Safety
/// `bytes` is a live bytes object and outlives the slice.
pub unsafe fn bytes_of<'a>(bytes: *mut PyObject) -> &'a [u8] {
    // SAFETY: as the caller promises; bytes objects do not change.
    unsafe {
        let length = PyBytes_Size(bytes) as usize;
        std::slice::from_raw_parts(PyBytes_AsString(bytes).cast::<u8>(), length)
    }
}

/// Takes the exception that is set out of the thread, with its traceback.
pub fn take_raised() -> Option<Object> {
    #[cfg(Py_3_12)]
    // SAFETY: returns a new reference, or null if nothing is set.
    unsafe {
        Object::from_new(PyErr_GetRaisedException()).ok()
    }
    #[cfg(not(Py_3_12))]
    // SAFETY: the three are owned by us after the fetch; each may be null.
    unsafe {
        let (mut class, mut value, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        PyErr_Fetch(&mut class, &mut value, &mut traceback);
        PyErr_NormalizeException(&mut class, &mut value, &mut traceback);
        if !value.is_null() && !traceback.is_null() {
            PyException_SetTraceback(value, traceback);
        }
        Py_XDECREF(class);
        Py_XDECREF(traceback);
        Object::from_new(value).ok()
    }
}

/// Runs `wait` with the GIL dropped (the thread state detached), and takes it again.
pub fn without_gil<T>(wait: impl FnOnce() -> T) -> T {
    // SAFETY: a thread state is attached, and `wait` touches nothing of Python (the callers').
    unsafe {
        let state = PyEval_SaveThread();
        let result = wait();
        PyEval_RestoreThread(state);
        result
    }
}
