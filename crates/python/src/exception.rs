//! Exceptions: raising, taking, clearing.

use crate::attached::Attached;
use crate::c_api::*;
use crate::object::{Object, Raised};
use std::ptr;

/// Built-in exception classes.
#[derive(Clone, Copy)]
pub enum Exception {
    AssertionError,
    AttributeError,
    ConnectionResetError,
    IndexError,
    KeyError,
    MemoryError,
    OSError,
    OverflowError,
    RuntimeError,
    SystemError,
    TimeoutError,
    TypeError,
    ValueError,
}

impl Exception {
    fn class(self) -> *mut PyObject {
        // SAFETY: CPython sets these before it runs any code and never again.
        unsafe {
            match self {
                Self::AssertionError => PyExc_AssertionError,
                Self::AttributeError => PyExc_AttributeError,
                Self::ConnectionResetError => PyExc_ConnectionResetError,
                Self::IndexError => PyExc_IndexError,
                Self::KeyError => PyExc_KeyError,
                Self::MemoryError => PyExc_MemoryError,
                Self::OSError => PyExc_OSError,
                Self::OverflowError => PyExc_OverflowError,
                Self::RuntimeError => PyExc_RuntimeError,
                Self::SystemError => PyExc_SystemError,
                Self::TimeoutError => PyExc_TimeoutError,
                Self::TypeError => PyExc_TypeError,
                Self::ValueError => PyExc_ValueError,
            }
        }
    }

    /// Raises the exception with `message`.
    #[cold]
    pub fn raise(self, py: Attached, message: &str) -> Raised {
        match Object::from_text(py, message) {
            Ok(text) => self.raise_value(&text),
            Err(Raised) => Raised,
        }
    }

    /// Raises the exception with any value: a tuple gives the arguments of the class.
    pub fn raise_value(self, value: &Object) -> Raised {
        // SAFETY: a built-in class and a live object.
        unsafe { PyErr_SetObject(self.class(), value.as_ptr()) };
        Raised
    }

    /// Whether the exception that is set is an instance of this class.
    pub fn is_raised(self, _: Attached) -> bool {
        // SAFETY: a thread state is attached; false if no exception is set.
        unsafe { !PyErr_Occurred().is_null() && PyErr_ExceptionMatches(self.class()) != 0 }
    }
}

/// Raises the OSError of an errno, with its message and subclass.
pub fn raise_errno(_: Attached, errno: i32) -> Raised {
    // SAFETY: errno is the thread's own; a thread state is attached.
    unsafe {
        *libc_errno() = errno;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    Raised
}

fn libc_errno() -> *mut i32 {
    unsafe extern "C" {
        safe fn __errno_location() -> *mut i32;
    }
    __errno_location()
}

/// Raises an exception again that `sys.exc_info()` described.
pub fn raise_exc_info(exc_info: &Object) -> Raised {
    let py = exc_info.py();
    let Some([class, value, traceback]) = exc_info.as_tuple() else {
        return Exception::TypeError.raise(py, "exc_info must be a (type, value, traceback) tuple");
    };
    // SAFETY: live objects, whose types are checked before they are used as such.
    unsafe {
        if PyExceptionClass_Check(class.as_ptr()) == 0 {
            return Exception::TypeError
                .raise(py, "exc_info does not begin with an exception class");
        }
        if PyExceptionInstance_Check(value.as_ptr()) != 0
            && PyTraceBack_Check(traceback.as_ptr()) != 0
        {
            PyException_SetTraceback(value.as_ptr(), traceback.as_ptr());
        }
        PyErr_SetObject(class.as_ptr(), value.as_ptr());
    }
    Raised
}

/// Forgets the exception that is set, if there is one.
pub fn clear_raised(_: Attached) {
    // SAFETY: a thread state is attached.
    unsafe { PyErr_Clear() }
}

/// Takes the exception that is set out of the thread, with its traceback.
pub fn take_raised(py: Attached<'_>) -> Option<Object<'_>> {
    #[cfg(Py_3_12)]
    // SAFETY: a new reference, or null if nothing is set.
    unsafe {
        Object::from_new(py, PyErr_GetRaisedException()).ok()
    }
    #[cfg(not(Py_3_12))]
    // SAFETY: PyErr_Fetch gives the three references away; each may be null.
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
        Object::from_new(py, value).ok()
    }
}

/// Takes the exception that is set as text, which may go to another interpreter.
pub fn take_raised_as_text(py: Attached) -> String {
    let Some(exception) = take_raised(py) else { return String::new() };
    let text = exception
        .to_str()
        .and_then(|text| Ok(format!("{}: {}", exception.type_name(), text.as_text()?)));
    text.unwrap_or_else(|Raised| {
        clear_raised(py);
        "an exception that cannot be shown".into()
    })
}

/// Hands the exception that is set to `sys.unraisablehook`. `object` is where it was raised.
pub fn write_unraisable(_: Attached, object: Option<&Object>) {
    // SAFETY: null or a live object; a thread state is attached.
    unsafe { PyErr_WriteUnraisable(object.map_or(ptr::null_mut(), Object::as_ptr)) }
}

/// Runs the Python handlers of signals that arrived.
pub fn check_signals(_: Attached) -> Result<(), Raised> {
    // SAFETY: a thread state is attached.
    match unsafe { PyErr_CheckSignals() } {
        0 => Ok(()),
        _ => Err(Raised),
    }
}

/// Sets an exception that another thread raises as soon as it runs Python code, or with `None`
/// takes it back. A thread that has no state in this interpreter is not found, and nothing happens.
pub fn set_exception_in_thread(_: Attached, thread: u64, class: Option<&Object>) {
    let class = class.map_or(ptr::null_mut(), Object::as_ptr);
    // SAFETY: a thread state is attached; null or a live object.
    unsafe { PyThreadState_SetAsyncExc(thread as _, class) };
}
