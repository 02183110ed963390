//! The C API, for every crate: no other file names `pyo3_ffi` (`tests/test_borders.py`).
//!
//! Up to 3.13.7 CPython ends a daemon thread that takes the GIL during finalization with
//! `pthread_exit`, which unwinds the thread's stack; so does a `pthread_exit` of the program's own
//! below a Rust frame. A Rust frame that does not expect this aborts the process. Almost every
//! function can take the GIL, because it can run Python code, by a finalizer if nothing else. So
//! all are imported as `"C-unwind"`, and a guard around each call stops the unwinding before it
//! reaches another frame: the thread hangs, as CPython from 3.13.8 on makes it.
//!
//! An import of the same symbol as `"C"` anywhere in the module would let the compiler drop the
//! guards.

#[cfg(Py_3_12)]
pub use pyo3_ffi::{
    _PyInterpreterConfig_INIT, _PyInterpreterConfig_LEGACY_INIT,
    Py_MOD_PER_INTERPRETER_GIL_SUPPORTED, Py_mod_multiple_interpreters, PyInterpreterConfig,
    PyStatus,
};
pub use pyo3_ffi::{
    METH_FASTCALL, METH_NOARGS, METH_O, Py_EQ, Py_READONLY, Py_T_OBJECT_EX, Py_T_PYSSIZET,
    Py_TPFLAGS_DEFAULT, Py_TPFLAGS_DISALLOW_INSTANTIATION, Py_TPFLAGS_HAVE_GC, Py_mod_exec,
    Py_mp_length, Py_sq_length, Py_ssize_t, Py_tp_clear, Py_tp_dealloc, Py_tp_doc, Py_tp_iter,
    Py_tp_iternext, Py_tp_members, Py_tp_methods, Py_tp_new, Py_tp_traverse, PyASCIIObject,
    PyBytesObject, PyCFunction, PyCFunctionFast, PyCapsule_Destructor, PyCode_Type, PyCodeObject,
    PyExc_AssertionError, PyExc_AttributeError, PyExc_ConnectionResetError, PyExc_IndexError,
    PyExc_KeyError, PyExc_MemoryError, PyExc_OSError, PyExc_OverflowError, PyExc_RuntimeError,
    PyExc_SystemError, PyExc_TimeoutError, PyExc_TypeError, PyExc_ValueError, PyFrameObject,
    PyInterpreterState, PyLong_Type, PyMemberDef, PyMethodDef, PyMethodDefPointer, PyModuleDef,
    PyModuleDef_HEAD_INIT, PyModuleDef_Slot, PyObject, PyThreadState, PyTupleObject, PyType_Slot,
    PyType_Spec, PyTypeObject, visitproc,
};
/// They read or write a field and call nothing.
pub use pyo3_ffi::{
    Py_INCREF, Py_IsNone, Py_None, Py_REFCNT, Py_TYPE, PyBytes_Check, PyCFunction_Check,
    PyDict_Check, PyExceptionClass_Check, PyExceptionInstance_Check, PyIndex_Check, PyList_Check,
    PyList_CheckExact, PyLong_Check, PyModule_Check, PyTraceBack_Check, PyTuple_Check,
    PyTuple_CheckExact, PyUnicode_Check, PyUnicode_CheckExact, compat::PyThreadState_GetUnchecked,
};
#[cfg(Py_3_13)]
pub use pyo3_ffi::{Py_IsFinalizing, Py_MOD_GIL_NOT_USED, Py_Version, Py_mod_gil};
use std::ffi::{c_char, c_double, c_int, c_long, c_longlong, c_ulonglong, c_void};
use std::mem::forget;

/// # Safety
/// No preconditions. It reads a variable.
#[cfg(not(Py_3_13))]
#[allow(non_snake_case)]
pub unsafe fn Py_IsFinalizing() -> c_int {
    unsafe extern "C" {
        // Exported by 3.10 to 3.12 (Include/cpython/pylifecycle.h).
        safe fn _Py_IsFinalizing() -> c_int;
    }
    _Py_IsFinalizing()
}

/// Dropped only by an unwinding that began below the call of a function of CPython. Hangs the
/// thread, without the GIL.
struct HangThread;

impl Drop for HangThread {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        unsafe extern "C" {
            safe fn pause() -> c_int;
        }
        // SAFETY: reads two variables. Up to 3.11 the first one is the state of the thread that
        // has the GIL, whichever that is. CPython ends a thread that has no state attached; a
        // program can do so at any time.
        unsafe {
            let attached = PyThreadState_GetUnchecked();
            if !attached.is_null() && attached == PyGILState_GetThisThreadState() {
                PyEval_SaveThread();
            }
        }
        loop {
            pause();
        }
    }
}

#[inline(always)]
fn guard<T>(call: impl FnOnce() -> T) -> T {
    let guard = HangThread;
    let result = call();
    forget(guard);
    result
}

/// Imports functions of CPython and guards them. The compiler compares each signature with the one
/// of `pyo3_ffi`.
macro_rules! guarded {
    ($($(#[$if:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            $(#[$if])*
            #[inline]
            #[allow(non_snake_case, clippy::missing_safety_doc)]
            pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
                const _: unsafe extern "C" fn($($type),*) $(-> $result)? = pyo3_ffi::$name;
                unsafe extern "C-unwind" {
                    fn $name($($argument: $type),*) $(-> $result)?;
                }
                // SAFETY: the caller's, as the C API documents the function.
                guard(|| unsafe { $name($($argument),*) })
            }
        )*
    };
}

guarded! {
    fn Py_AddPendingCall(
        function: Option<extern "C" fn(argument: *mut c_void) -> c_int>,
        argument: *mut c_void
    ) -> c_int;
    fn PyBool_FromLong(value: c_long) -> *mut PyObject;
    fn PyBytes_AsString(bytes: *mut PyObject) -> *mut c_char;
    fn PyBytes_FromStringAndSize(start: *const c_char, size: Py_ssize_t) -> *mut PyObject;
    fn PyBytes_Size(bytes: *mut PyObject) -> Py_ssize_t;
    fn PyCFunction_GetFunction(function: *mut PyObject) -> Option<PyCFunction>;
    fn PyCFunction_GetSelf(function: *mut PyObject) -> *mut PyObject;
    fn PyCMethod_New(
        method: *mut PyMethodDef,
        this: *mut PyObject,
        module: *mut PyObject,
        class: *mut PyTypeObject
    ) -> *mut PyObject;
    fn PyCapsule_GetPointer(capsule: *mut PyObject, name: *const c_char) -> *mut c_void;
    fn PyCapsule_New(
        pointer: *mut c_void,
        name: *const c_char,
        destructor: Option<PyCapsule_Destructor>
    ) -> *mut PyObject;
    fn PyDict_Clear(dict: *mut PyObject);
    fn PyDict_Contains(dict: *mut PyObject, key: *mut PyObject) -> c_int;
    fn PyDict_Copy(dict: *mut PyObject) -> *mut PyObject;
    fn PyDict_DelItem(dict: *mut PyObject, key: *mut PyObject) -> c_int;
    #[cfg(Py_3_13)]
    fn PyDict_GetItemRef(
        dict: *mut PyObject,
        key: *mut PyObject,
        value: *mut *mut PyObject
    ) -> c_int;
    #[cfg(not(Py_3_13))]
    fn PyDict_GetItemWithError(dict: *mut PyObject, key: *mut PyObject) -> *mut PyObject;
    fn PyDict_Items(dict: *mut PyObject) -> *mut PyObject;
    fn PyDict_New() -> *mut PyObject;
    fn PyDict_SetItem(dict: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int;
    fn PyDict_Size(dict: *mut PyObject) -> Py_ssize_t;
    fn PyErr_CheckSignals() -> c_int;
    fn PyErr_Clear();
    fn PyErr_ExceptionMatches(class: *mut PyObject) -> c_int;
    #[cfg(not(Py_3_12))]
    fn PyErr_Fetch(
        class: *mut *mut PyObject,
        value: *mut *mut PyObject,
        traceback: *mut *mut PyObject
    );
    #[cfg(Py_3_12)]
    fn PyErr_GetRaisedException() -> *mut PyObject;
    #[cfg(not(Py_3_12))]
    fn PyErr_NormalizeException(
        class: *mut *mut PyObject,
        value: *mut *mut PyObject,
        traceback: *mut *mut PyObject
    );
    fn PyErr_Occurred() -> *mut PyObject;
    fn PyErr_SetFromErrno(class: *mut PyObject) -> *mut PyObject;
    fn PyErr_SetObject(class: *mut PyObject, value: *mut PyObject);
    fn PyErr_WriteUnraisable(object: *mut PyObject);
    fn PyEval_GetFrame() -> *mut PyFrameObject;
    fn PyEval_RestoreThread(state: *mut PyThreadState);
    fn PyEval_SaveThread() -> *mut PyThreadState;
    fn PyException_SetTraceback(exception: *mut PyObject, traceback: *mut PyObject) -> c_int;
    fn PyFloat_AsDouble(object: *mut PyObject) -> c_double;
    fn PyFloat_FromDouble(value: c_double) -> *mut PyObject;
    fn PyFrame_GetBack(frame: *mut PyFrameObject) -> *mut PyFrameObject;
    fn PyFrame_GetCode(frame: *mut PyFrameObject) -> *mut PyCodeObject;
    #[cfg(Py_3_11)]
    fn PyFrame_GetLasti(frame: *mut PyFrameObject) -> c_int;
    fn PyFrame_GetLineNumber(frame: *mut PyFrameObject) -> c_int;
    fn PyGILState_GetThisThreadState() -> *mut PyThreadState;
    fn PyImport_ImportModule(name: *const c_char) -> *mut PyObject;
    fn PyInterpreterState_Get() -> *mut PyInterpreterState;
    fn PyInterpreterState_GetID(interpreter: *mut PyInterpreterState) -> i64;
    fn PyInterpreterState_Head() -> *mut PyInterpreterState;
    fn PyInterpreterState_Main() -> *mut PyInterpreterState;
    fn PyInterpreterState_Next(interpreter: *mut PyInterpreterState) -> *mut PyInterpreterState;
    fn PyInterpreterState_ThreadHead(interpreter: *mut PyInterpreterState) -> *mut PyThreadState;
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    fn PyList_Append(list: *mut PyObject, item: *mut PyObject) -> c_int;
    #[cfg(not(Py_3_13))]
    fn PyList_GetItem(list: *mut PyObject, index: Py_ssize_t) -> *mut PyObject;
    #[cfg(Py_3_13)]
    fn PyList_GetItemRef(list: *mut PyObject, index: Py_ssize_t) -> *mut PyObject;
    fn PyList_New(size: Py_ssize_t) -> *mut PyObject;
    fn PyList_Size(list: *mut PyObject) -> Py_ssize_t;
    fn PyLong_AsLongLong(object: *mut PyObject) -> c_longlong;
    fn PyLong_AsUnsignedLongLong(object: *mut PyObject) -> c_ulonglong;
    fn PyLong_FromLongLong(value: c_longlong) -> *mut PyObject;
    fn PyLong_FromSize_t(value: usize) -> *mut PyObject;
    fn PyLong_FromUnsignedLongLong(value: c_ulonglong) -> *mut PyObject;
    fn PyModuleDef_Init(definition: *mut PyModuleDef) -> *mut PyObject;
    fn PyModule_AddFunctions(module: *mut PyObject, functions: *mut PyMethodDef) -> c_int;
    fn PyModule_GetDef(module: *mut PyObject) -> *mut PyModuleDef;
    fn PyModule_GetDict(module: *mut PyObject) -> *mut PyObject;
    fn PyModule_GetState(module: *mut PyObject) -> *mut c_void;
    fn PyNumber_AsSsize_t(object: *mut PyObject, overflow: *mut PyObject) -> Py_ssize_t;
    fn PyObject_GC_UnTrack(object: *mut c_void);
    fn PyObject_GetAttr(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    fn PyObject_GetAttrString(object: *mut PyObject, name: *const c_char) -> *mut PyObject;
    fn PyObject_GetIter(object: *mut PyObject) -> *mut PyObject;
    fn PyObject_IsTrue(object: *mut PyObject) -> c_int;
    fn PyObject_RichCompareBool(left: *mut PyObject, right: *mut PyObject, op: c_int) -> c_int;
    fn PyObject_SetAttrString(
        object: *mut PyObject,
        name: *const c_char,
        value: *mut PyObject
    ) -> c_int;
    fn PyObject_Size(object: *mut PyObject) -> Py_ssize_t;
    fn PyObject_Str(object: *mut PyObject) -> *mut PyObject;
    #[cfg(Py_3_11)]
    fn PyObject_Vectorcall(
        function: *mut PyObject,
        arguments: *const *mut PyObject,
        count: usize,
        keywords: *mut PyObject
    ) -> *mut PyObject;
    #[cfg(not(Py_3_11))]
    fn PyObject_VectorcallDict(
        function: *mut PyObject,
        arguments: *const *mut PyObject,
        count: usize,
        keywords: *mut PyObject
    ) -> *mut PyObject;
    fn PySequence_GetItem(sequence: *mut PyObject, index: Py_ssize_t) -> *mut PyObject;
    fn PySequence_Tuple(object: *mut PyObject) -> *mut PyObject;
    #[cfg(Py_3_12)]
    fn PyStatus_Exception(status: PyStatus) -> c_int;
    fn PySys_GetObject(name: *const c_char) -> *mut PyObject;
    fn PyThreadState_Clear(state: *mut PyThreadState);
    fn PyThreadState_DeleteCurrent();
    fn PyThreadState_Get() -> *mut PyThreadState;
    fn PyThreadState_GetInterpreter(state: *mut PyThreadState) -> *mut PyInterpreterState;
    fn PyThreadState_New(interpreter: *mut PyInterpreterState) -> *mut PyThreadState;
    fn PyThreadState_Next(state: *mut PyThreadState) -> *mut PyThreadState;
    fn PyThreadState_SetAsyncExc(thread: c_long, class: *mut PyObject) -> c_int;
    fn PyThreadState_Swap(state: *mut PyThreadState) -> *mut PyThreadState;
    fn PyTuple_New(size: Py_ssize_t) -> *mut PyObject;
    fn PyTuple_SetItem(tuple: *mut PyObject, index: Py_ssize_t, item: *mut PyObject) -> c_int;
    fn PyTuple_Size(tuple: *mut PyObject) -> Py_ssize_t;
    fn PyType_FromSpec(spec: *mut PyType_Spec) -> *mut PyObject;
    fn PyType_GenericAlloc(class: *mut PyTypeObject, items: Py_ssize_t) -> *mut PyObject;
    fn PyType_GetSlot(class: *mut PyTypeObject, slot: c_int) -> *mut c_void;
    fn PyUnicode_AsLatin1String(text: *mut PyObject) -> *mut PyObject;
    fn PyUnicode_AsUTF8AndSize(text: *mut PyObject, size: *mut Py_ssize_t) -> *const c_char;
    fn PyUnicode_DecodeFSDefaultAndSize(start: *const c_char, size: Py_ssize_t) -> *mut PyObject;
    fn PyUnicode_DecodeLatin1(
        start: *const c_char,
        size: Py_ssize_t,
        errors: *const c_char
    ) -> *mut PyObject;
    fn PyUnicode_DecodeUTF8(
        start: *const c_char,
        size: Py_ssize_t,
        errors: *const c_char
    ) -> *mut PyObject;
    fn PyUnicode_EncodeFSDefault(text: *mut PyObject) -> *mut PyObject;
    fn PyUnicode_FromStringAndSize(start: *const c_char, size: Py_ssize_t) -> *mut PyObject;
    fn PyUnicode_InternFromString(text: *const c_char) -> *mut PyObject;
    fn Py_DecRef(object: *mut PyObject);
    fn Py_EndInterpreter(state: *mut PyThreadState);
    fn Py_GetVersion() -> *const c_char;
    fn Py_IncRef(object: *mut PyObject);
    fn Py_InitializeEx(handlers: c_int);
    #[cfg(not(Py_3_12))]
    fn Py_NewInterpreter() -> *mut PyThreadState;
    #[cfg(Py_3_12)]
    fn Py_NewInterpreterFromConfig(
        state: *mut *mut PyThreadState,
        config: *const PyInterpreterConfig
    ) -> PyStatus;
}

/// # Safety
/// As of the macro of CPython.
#[allow(non_snake_case)]
#[inline]
pub unsafe fn Py_DECREF(object: *mut PyObject) {
    // SAFETY: the caller's. `pyo3_ffi` frees an object without a guard, so the last reference is
    // given back by a function.
    unsafe {
        if cfg!(Py_GIL_DISABLED) || Py_REFCNT(object) == 1 {
            Py_DecRef(object);
        } else {
            pyo3_ffi::Py_DECREF(object);
        }
    }
}

/// # Safety
/// As of the macro of CPython.
#[allow(non_snake_case)]
#[inline]
pub unsafe fn Py_XDECREF(object: *mut PyObject) {
    if !object.is_null() {
        // SAFETY: the caller's.
        unsafe { Py_DECREF(object) }
    }
}

/// # Safety
/// As of CPython's function, which 3.13 introduced.
#[cfg(not(Py_3_13))]
#[allow(non_snake_case)]
pub unsafe fn PyDict_GetItemRef(
    dict: *mut PyObject,
    key: *mut PyObject,
    value: *mut *mut PyObject,
) -> c_int {
    // SAFETY: the caller's; the dict keeps a borrowed reference alive while the GIL is held.
    unsafe {
        *value = PyDict_GetItemWithError(dict, key);
        if !(*value).is_null() {
            Py_INCREF(*value);
            return 1;
        }
        if PyErr_Occurred().is_null() { 0 } else { -1 }
    }
}

/// # Safety
/// As of CPython's function, which 3.13 introduced.
#[cfg(not(Py_3_13))]
#[allow(non_snake_case)]
pub unsafe fn PyList_GetItemRef(list: *mut PyObject, index: Py_ssize_t) -> *mut PyObject {
    // SAFETY: the caller's; the list keeps a borrowed reference alive while the GIL is held.
    unsafe {
        let item = PyList_GetItem(list, index);
        if !item.is_null() {
            Py_INCREF(item);
        }
        item
    }
}

/// # Safety
/// CPython 3.11 and later export it as a function.
#[cfg(not(Py_3_11))]
#[allow(non_snake_case)]
pub unsafe fn PyObject_Vectorcall(
    function: *mut PyObject,
    arguments: *const *mut PyObject,
    count: usize,
    no_keywords: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the caller's; without keywords the two functions are the same.
    unsafe { PyObject_VectorcallDict(function, arguments, count, no_keywords) }
}

/// For a format of an object and a number.
///
/// # Safety
/// As of CPython's function.
#[allow(non_snake_case)]
pub unsafe fn PyArg_ParseTupleAndKeywords(
    arguments: *mut PyObject,
    keywords: *mut PyObject,
    format: *const c_char,
    names: *const *const c_char,
    object: *mut *mut PyObject,
    number: *mut Py_ssize_t,
) -> c_int {
    unsafe extern "C-unwind" {
        fn PyArg_ParseTupleAndKeywords(
            arguments: *mut PyObject,
            keywords: *mut PyObject,
            format: *const c_char,
            names: *const *const c_char,
            ...
        ) -> c_int;
    }
    // SAFETY: the caller's.
    guard(|| unsafe {
        PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, object, number)
    })
}

/// From CPython 3.12 on (Include/cpython/objimpl.h); `pyo3_ffi` does not declare it.
///
/// # Safety
/// As of CPython's function.
#[cfg(Py_GIL_DISABLED)]
#[allow(non_snake_case)]
pub unsafe fn PyUnstable_GC_VisitObjects(
    visitor: unsafe extern "C" fn(*mut PyObject, *mut c_void) -> c_int,
    argument: *mut c_void,
) {
    unsafe extern "C-unwind" {
        fn PyUnstable_GC_VisitObjects(
            visitor: unsafe extern "C" fn(*mut PyObject, *mut c_void) -> c_int,
            argument: *mut c_void,
        );
    }
    // SAFETY: the caller's.
    guard(|| unsafe { PyUnstable_GC_VisitObjects(visitor, argument) })
}
