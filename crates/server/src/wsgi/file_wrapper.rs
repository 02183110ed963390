//! `wsgi.file_wrapper` (PEP 3333, "Optional Platform-Specific File Handling"): wsgiref's
//! FileWrapper, and what the server needs to send the file behind it without reading it.
//!
//! A file counts only if its bytes are what `read` would return: gzip's and Django's file objects
//! have a `fileno` too, and the former's bytes are others. So `read` must be the built-in method
//! of a file that `open` made. Everything else is read block by block.

use crate::net::sendfile::FileBody;
use crate::wsgi::handle::{Methods, to_pointer};
use headway_python::object::{Object, PyResult, Raised, raise};
use pyo3_ffi::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::ptr;

const DEFAULT_BLOCK_BYTES: Py_ssize_t = 8_192;

/// The object's memory. Written by `new`, and cleared by the garbage collector.
#[repr(C)]
struct WrapperObject {
    base: PyObject,
    filelike: *mut PyObject,
    block_bytes: Py_ssize_t,
}

static METHODS: Methods<2> = Methods([
    PyMethodDef {
        ml_name: c"close".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunction: close },
        ml_flags: METH_NOARGS,
        ml_doc: c"close(): closes the file, if it can be closed.".as_ptr(),
    },
    PyMethodDef::zeroed(),
]);

struct Members([PyMemberDef; 3]);

// SAFETY: constant data; CPython reads it only.
unsafe impl Sync for Members {}

/// Under wsgiref's names.
static MEMBERS: Members = Members([
    member(c"filelike", Py_T_OBJECT_EX, offset_of!(WrapperObject, filelike)),
    member(c"blksize", Py_T_PYSSIZET, offset_of!(WrapperObject, block_bytes)),
    PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
]);

const fn member(name: &'static CStr, type_code: c_int, offset: usize) -> PyMemberDef {
    let offset = offset as Py_ssize_t;
    PyMemberDef { name: name.as_ptr(), type_code, offset, flags: Py_READONLY, doc: ptr::null() }
}

/// What one server knows of file wrappers: its own type, and the types of files.
pub struct FileWrappers {
    class: Object,
    raw_file: Object,
    buffered_reader: Object,
    buffered_random: Object,
}

impl FileWrappers {
    pub fn new() -> PyResult<Self> {
        // SAFETY: a name that ends with zero, then a live module.
        unsafe {
            let io = Object::from_new(PyImport_ImportModule(c"io".as_ptr()))?;
            Ok(Self {
                class: make_type()?,
                raw_file: attribute(&io, c"FileIO")?,
                buffered_reader: attribute(&io, c"BufferedReader")?,
                buffered_random: attribute(&io, c"BufferedRandom")?,
            })
        }
    }

    /// For the environ.
    pub fn class(&self) -> &Object {
        &self.class
    }

    pub fn is_wrapper(&self, object: &Object) -> bool {
        has_type(object, &self.class)
    }

    /// The file behind `wrapper` from where its next `read` would begin. `None` if there is no
    /// such file, for whatever reason: then reading it will tell.
    pub fn open_file(&self, wrapper: &Object) -> Option<FileBody> {
        debug_assert!(self.is_wrapper(wrapper));
        // SAFETY: an exact wrapper. The descriptor is only duplicated, and whether it was the
        // file's is checked after that.
        unsafe {
            let filelike = (*wrapper.as_ptr().cast::<WrapperObject>()).filelike;
            let filelike = (!filelike.is_null()).then(|| Object::from_borrowed(filelike))?;
            let opened = self.file_of(&filelike).and_then(|file| match file {
                Some(file) => {
                    let offset = number(&file, c"tell")?;
                    let fd = number(&file, c"fileno")?;
                    let Ok(raw) = c_int::try_from(fd) else { return Ok(None) };
                    let offset = u64::try_from(offset).unwrap_or(u64::MAX);
                    if raw < 0 {
                        return Ok(None);
                    }
                    let body = FileBody::from_offset(BorrowedFd::borrow_raw(raw), offset);
                    // Without a GIL another thread may have closed the file before its descriptor
                    // was duplicated, and opened another one with this number. `close` takes the
                    // number from the file before it closes the descriptor, and `fileno` of a
                    // closed file raises: a file that has the number still had it just before.
                    let is_unchanged = number(&file, c"fileno")? == fd;
                    Ok(body.unwrap_or(None).filter(|_| is_unchanged))
                }
                None => Ok(None),
            });
            opened.unwrap_or_else(|Raised| {
                PyErr_Clear();
                None
            })
        }
    }

    /// The file whose method `filelike.read` is. What it has not written yet is written.
    fn file_of(&self, filelike: &Object) -> PyResult<Option<Object>> {
        // SAFETY: live objects throughout; the self of a built-in function is borrowed, and may be
        // null if it has none.
        unsafe {
            let read = attribute(filelike, c"read")?;
            if PyCFunction_Check(read.as_ptr()) == 0 {
                return Ok(None);
            }
            let owner = PyCFunction_GetSelf(read.as_ptr());
            if owner.is_null() {
                return Ok(None);
            }
            let file = Object::from_borrowed(owner);
            let is_raw = has_type(&file, &self.raw_file);
            let is_random = has_type(&file, &self.buffered_random);
            if !is_raw && !is_random && !has_type(&file, &self.buffered_reader) {
                return Ok(None);
            }
            if !is_raw && !has_type(&attribute(&file, c"raw")?, &self.raw_file) {
                return Ok(None);
            }
            // `read` may be another method under that name.
            let own = attribute(&file, c"read")?;
            match PyObject_RichCompareBool(read.as_ptr(), own.as_ptr(), Py_EQ) {
                1 => {}
                0 => return Ok(None),
                _ => return Err(Raised),
            }
            if is_random {
                call(&file, c"flush")?;
            }
            Ok(Some(file))
        }
    }
}

fn has_type(object: &Object, class: &Object) -> bool {
    // SAFETY: a live object.
    unsafe { ptr::eq(Py_TYPE(object.as_ptr()), class.as_ptr().cast()) }
}

fn attribute(object: &Object, name: &CStr) -> PyResult<Object> {
    // SAFETY: a live object and a name that ends with zero.
    unsafe { Object::from_new(PyObject_GetAttrString(object.as_ptr(), name.as_ptr())) }
}

fn call(object: &Object, method: &CStr) -> PyResult<Object> {
    let method = attribute(object, method)?;
    // SAFETY: a live object.
    unsafe { Object::from_new(PyObject_CallNoArgs(method.as_ptr())) }
}

fn number(object: &Object, method: &CStr) -> PyResult<i64> {
    call(object, method)?.to_i64()
}

/// Makes the type, for one interpreter. It cannot be subclassed: a subclass could iterate in its
/// own way.
fn make_type() -> PyResult<Object> {
    const DOC: &CStr = c"FileWrapper(filelike, blksize=8192): a file as the body of a response.";
    let mut slots = [
        PyType_Slot { slot: Py_tp_new, pfunc: new as *mut c_void },
        PyType_Slot { slot: Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        PyType_Slot { slot: Py_tp_traverse, pfunc: traverse as *mut c_void },
        PyType_Slot { slot: Py_tp_clear, pfunc: clear as *mut c_void },
        PyType_Slot { slot: Py_tp_iter, pfunc: iterate as *mut c_void },
        PyType_Slot { slot: Py_tp_iternext, pfunc: next_block as *mut c_void },
        PyType_Slot { slot: Py_tp_methods, pfunc: METHODS.0.as_ptr() as *mut c_void },
        PyType_Slot { slot: Py_tp_members, pfunc: MEMBERS.0.as_ptr() as *mut c_void },
        PyType_Slot { slot: Py_tp_doc, pfunc: DOC.as_ptr() as *mut c_void },
        PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    let mut spec = PyType_Spec {
        name: c"headway.server.FileWrapper".as_ptr(),
        basicsize: size_of::<WrapperObject>() as c_int,
        itemsize: 0,
        flags: (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec and its slots live through the call, which copies them; the tables are
    // static.
    unsafe { Object::from_new(PyType_FromSpec(&mut spec)) }
}

unsafe extern "C" fn new(
    class: *mut PyTypeObject,
    arguments: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let mut names: [*const c_char; 3] = [c"filelike".as_ptr(), c"blksize".as_ptr(), ptr::null()];
    let mut filelike = ptr::null_mut();
    let mut block_bytes = DEFAULT_BLOCK_BYTES;
    // SAFETY: CPython calls with live arguments; the format matches the places that follow the
    // names. The object's memory comes zeroed.
    unsafe {
        let parsed = PyArg_ParseTupleAndKeywords(
            arguments,
            keywords,
            c"O|n:FileWrapper".as_ptr(),
            names.as_mut_ptr().cast(),
            &raw mut filelike,
            &raw mut block_bytes,
        );
        if parsed == 0 {
            return ptr::null_mut();
        }
        let object = PyType_GenericAlloc(class, 0);
        if !object.is_null() {
            Py_INCREF(filelike);
            let wrapper = object.cast::<WrapperObject>();
            (*wrapper).filelike = filelike;
            (*wrapper).block_bytes = block_bytes;
        }
        object
    }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: called once by CPython when the last reference is gone. Instances of heap types
    // hold a reference to their type.
    unsafe {
        PyObject_GC_UnTrack(object.cast());
        clear(object);
        let class = Py_TYPE(object);
        if let Some(free) = (*class).tp_free {
            free(object.cast());
        }
        Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn traverse(
    object: *mut PyObject,
    visit: visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls with a live object and a function to call with each reference.
    unsafe {
        let filelike = (*object.cast::<WrapperObject>()).filelike;
        for reference in [filelike, Py_TYPE(object).cast()] {
            if !reference.is_null() {
                let result = visit(reference, argument);
                if result != 0 {
                    return result;
                }
            }
        }
        0
    }
}

unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: the reference is the object's own, and forgotten before it is dropped.
    unsafe {
        let filelike = &mut (*object.cast::<WrapperObject>()).filelike;
        Py_XDECREF(std::mem::replace(filelike, ptr::null_mut()));
        0
    }
}

/// The wrapped file.
///
/// # Safety
/// `object` is an instance of a type that `make_type` made.
unsafe fn filelike(object: *mut PyObject) -> PyResult<Object> {
    // SAFETY: as the caller promises.
    unsafe {
        match (*object.cast::<WrapperObject>()).filelike {
            gone if gone.is_null() => Err(raise(PyExc_ValueError, "the file is gone")),
            filelike => Ok(Object::from_borrowed(filelike)),
        }
    }
}

unsafe extern "C" fn iterate(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with an instance.
    unsafe { Object::from_borrowed(object).into_ptr() }
}

unsafe extern "C" fn next_block(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with an instance. Null without an exception means the end.
    unsafe {
        let block = filelike(object).and_then(|file| {
            let size = (*object.cast::<WrapperObject>()).block_bytes;
            let size = Object::from_new(PyLong_FromSsize_t(size))?;
            let read = attribute(&file, c"read")?;
            Object::from_new(PyObject_CallOneArg(read.as_ptr(), size.as_ptr()))
        });
        match block {
            Ok(block) if PyObject_IsTrue(block.as_ptr()) == 1 => block.into_ptr(),
            _ => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn close(object: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython calls with an instance. `close` is looked up now: Django replaces it after
    // the file is wrapped.
    to_pointer(unsafe {
        filelike(object).and_then(|file| match attribute(&file, c"close") {
            Ok(method) => Object::from_new(PyObject_CallNoArgs(method.as_ptr())),
            Err(Raised) if PyErr_ExceptionMatches(PyExc_AttributeError) != 0 => {
                PyErr_Clear();
                Ok(Object::from_borrowed(Py_None()))
            }
            Err(Raised) => Err(Raised),
        })
    })
}
