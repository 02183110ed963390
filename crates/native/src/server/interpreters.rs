//! `_native.interpreter_*`: interpreters that requests are run in, each a capsule.

use headway_python::object::{Object, PyResult, Raised, bytes_of, raise};
use headway_server::interpreters::interpreter::{Interpreter, take_raised_as_text};
use headway_server::wsgi::adapter::{Adapter, Entry};
use pyo3_ffi::*;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use super::options::items;
use crate::{Methods, method};

const CAPSULE_NAME: &CStr = c"headway._native.interpreter";
/// What runs first in a sub-interpreter.
const ENTRANCE: (&CStr, &CStr) = (c"headway.server.sub_interpreter", c"enter");

static METHODS: Methods<5> = Methods([
    method(
        c"interpreter_of_caller",
        of_caller,
        c"interpreter_of_caller(application, report, environs, interruption) -> interpreter\n\
          The one that calls. report(exception, request) tells what an application raised, environs()\n\
          makes a list with the part of the environ that never changes, a dict for each listener,\n\
          interruption is a class of exceptions.",
    ),
    method(
        c"interpreter_create",
        create,
        c"interpreter_create(own_gil, threads) -> interpreter\n\
          A new sub-interpreter, for so many worker threads. RuntimeError says why there is none.\n\
          Whoever creates interpreters must be one thread, which also enters and ends them.",
    ),
    method(
        c"interpreter_enter",
        enter,
        c"interpreter_enter(interpreter, path, task) -> str or None\n\
          In the sub-interpreter: sets sys.path and calls headway.server.sub_interpreter.enter(task),\n\
          which returns what interpreter_of_caller takes, or a str that says what is in the way.",
    ),
    method(
        c"interpreter_end",
        end,
        c"interpreter_end(interpreter) -> int\n\
          Ends an interpreter that is retired, with its atexit handlers. If threads of the application\n\
          are left it stays as it is; returns how many.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

unsafe extern "C" fn of_caller(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with a live tuple of arguments.
    unsafe {
        let arguments = Object::from_borrowed(arguments);
        let made = items(&arguments).and_then(adapter_of).map(Interpreter::of_callers);
        to_capsule(made)
    }
}

unsafe extern "C" fn create(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut own_gil, mut threads): (c_int, c_int) = (0, 0);
    // SAFETY: the format matches the places that follow it.
    unsafe {
        let format = c"pi:interpreter_create".as_ptr();
        if PyArg_ParseTuple(arguments, format, &raw mut own_gil, &raw mut threads) == 0 {
            return ptr::null_mut();
        }
        let created = Interpreter::create(own_gil != 0, threads.max(0) as usize);
        to_capsule(created.map_err(|reason| raise(PyExc_RuntimeError, &reason)))
    }
}

unsafe extern "C" fn enter(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut capsule, mut path) = (ptr::null_mut(), ptr::null_mut());
    let mut task: *const c_char = ptr::null();
    // SAFETY: the format matches the places that follow it; the tuple keeps all of them alive. What is
    // inside and what is outside of the interpreter share text only.
    unsafe {
        let format = c"OOs:interpreter_enter".as_ptr();
        let parsed =
            PyArg_ParseTuple(arguments, format, &raw mut capsule, &raw mut path, &raw mut task);
        if parsed == 0 {
            return ptr::null_mut();
        }
        let entered = interpreter_in(capsule).and_then(|interpreter| {
            let path = items(&Object::from_borrowed(path))?;
            let path = path.iter().map(encode_path).collect::<PyResult<Vec<_>>>()?;
            let task = CStr::from_ptr(task);
            let inside = || match prepare(&path, task) {
                Ok(Ok(adapter)) => {
                    interpreter.settle(adapter);
                    None
                }
                Ok(Err(reason)) => Some(reason),
                Err(Raised) => Some(take_raised_as_text()),
            };
            interpreter.enter(inside).ok_or_else(no_sub_interpreter)
        });
        match entered {
            Ok(None) => Object::from_borrowed(Py_None()).into_ptr(),
            Ok(Some(reason)) => PyUnicode_DecodeUTF8(
                reason.as_ptr().cast(),
                reason.len() as Py_ssize_t,
                ptr::null(),
            ),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// The bytes of a path, which need not be text.
fn encode_path(path: &Object) -> PyResult<Vec<u8>> {
    // SAFETY: a live object; the bytes live until they are copied.
    unsafe {
        let bytes = Object::from_new(PyUnicode_EncodeFSDefault(path.as_ptr()))?;
        Ok(bytes_of(bytes.as_ptr()).to_vec())
    }
}

/// Inside: has Python load the application.
fn prepare(path: &[Vec<u8>], task: &CStr) -> PyResult<Result<Adapter, String>> {
    // SAFETY: live objects of the interpreter that is attached; lengths are those of the texts.
    unsafe {
        let list = Object::from_new(PyList_New(0))?;
        for directory in path {
            let length = directory.len() as Py_ssize_t;
            let text = PyUnicode_DecodeFSDefaultAndSize(directory.as_ptr().cast(), length);
            if PyList_Append(list.as_ptr(), Object::from_new(text)?.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        if PySys_SetObject(c"path".as_ptr(), list.as_ptr()) < 0 {
            return Err(Raised);
        }
        let (module, function) = ENTRANCE;
        let module = Object::from_new(PyImport_ImportModule(module.as_ptr()))?;
        let function = PyObject_GetAttrString(module.as_ptr(), function.as_ptr());
        let function = Object::from_new(function)?;
        let task = Object::from_new(PyUnicode_FromString(task.as_ptr()))?;
        let arguments = [task.as_ptr()];
        let result = Object::from_new(PyObject_Vectorcall(
            function.as_ptr(),
            arguments.as_ptr(),
            arguments.len(),
            ptr::null_mut(),
        ))?;
        if PyUnicode_Check(result.as_ptr()) != 0 {
            return Ok(Err(result.to_text()?));
        }
        adapter_of(items(&result)?).map(Ok)
    }
}

fn adapter_of(entry: Vec<Object>) -> PyResult<Adapter> {
    match <[Object; 4]>::try_from(entry) {
        Ok([application, report, environs, interruption]) => {
            Adapter::new(Entry { application, report, environs, interruption })
        }
        // SAFETY: an exception class of this interpreter.
        Err(_) => Err(unsafe {
            raise(PyExc_TypeError, "wanted: application, report, environs, interruption")
        }),
    }
}

unsafe extern "C" fn end(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut capsule = ptr::null_mut();
    // SAFETY: the format matches the place that follows it; the tuple keeps the capsule alive.
    unsafe {
        if PyArg_ParseTuple(arguments, c"O:interpreter_end".as_ptr(), &raw mut capsule) == 0 {
            return ptr::null_mut();
        }
        match interpreter_in(capsule) {
            Ok(interpreter) => PyLong_FromSize_t(interpreter.end().err().unwrap_or(0)),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

fn no_sub_interpreter() -> Raised {
    // SAFETY: an exception class of this interpreter.
    unsafe { raise(PyExc_ValueError, "not a sub-interpreter, or one that has ended") }
}

/// # Safety
/// A thread state is attached.
unsafe fn to_capsule(interpreter: PyResult<Interpreter>) -> *mut PyObject {
    match interpreter {
        Ok(interpreter) => {
            let pointer = Arc::into_raw(Arc::new(interpreter)).cast_mut();
            // SAFETY: the capsule owns the reference.
            unsafe { PyCapsule_New(pointer.cast(), CAPSULE_NAME.as_ptr(), Some(drop_interpreter)) }
        }
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
/// `capsule` is a live object.
pub unsafe fn interpreter_in(capsule: *mut PyObject) -> PyResult<Arc<Interpreter>> {
    // SAFETY: a capsule of this name holds a reference until it is dropped; for anything else an
    // exception is set and the pointer is null.
    unsafe {
        let pointer = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<Interpreter>();
        if pointer.is_null() {
            return Err(Raised);
        }
        Arc::increment_strong_count(pointer);
        Ok(Arc::from_raw(pointer))
    }
}

/// The capsule's destructor.
unsafe extern "C" fn drop_interpreter(capsule: *mut PyObject) {
    // SAFETY: made by `to_capsule` and dropped once.
    unsafe {
        let pointer = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        drop(Arc::from_raw(pointer.cast::<Interpreter>()));
    }
}
