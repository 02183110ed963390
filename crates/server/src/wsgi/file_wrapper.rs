//! `wsgi.file_wrapper` (PEP 3333, "Optional Platform-Specific File Handling"): the class of
//! wsgiref's FileWrapper, and the file behind a wrapper, which the server sends without reading it.
//!
//! A file is used only if its bytes are those that `read` would return. The file objects of gzip
//! and Django have a `fileno` too, but gzip's file has other bytes. So `read` must be the built-in
//! method of a file that `open` made. Everything else is read block by block.

use crate::net::sendfile::FileBody;
use headway_python::attached::Attached;
use headway_python::c_api::*;
use headway_python::class::{self, Instance};
use headway_python::convert::ToPython;
use headway_python::exception::{Exception, clear_raised};
use headway_python::function::{END, Methods, method_of_none, self_of_builtin, unary};
use headway_python::object::{Object, PyResult, Raised};
use headway_python::panics::{barrier, barrier_without_exception};
use headway_python::stored::Stored;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::ptr;

const DEFAULT_BLOCK_BYTES: Py_ssize_t = 8_192;

/// The data of a wrapper. `new` writes it, and the garbage collector clears `filelike`.
struct Wrapper {
    filelike: *mut PyObject,
    block_bytes: Py_ssize_t,
}

static METHODS: Methods<2> = Methods::new([
    method_of_none(c"close", close, c"close(): closes the file, if it can be closed."),
    END,
]);

struct Members([PyMemberDef; 3]);

// SAFETY: constant data, which CPython only reads.
unsafe impl Sync for Members {}

/// Under wsgiref's names.
static MEMBERS: Members = Members([
    member(c"filelike", Py_T_OBJECT_EX, offset_of!(Instance<Wrapper>, data.filelike)),
    member(c"blksize", Py_T_PYSSIZET, offset_of!(Instance<Wrapper>, data.block_bytes)),
    PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
]);

const fn member(name: &'static CStr, type_code: c_int, offset: usize) -> PyMemberDef {
    let offset = offset as Py_ssize_t;
    PyMemberDef { name: name.as_ptr(), type_code, offset, flags: Py_READONLY, doc: ptr::null() }
}

/// The type of wrappers in one interpreter, and the types of files.
pub struct FileWrappers {
    class: Stored,
    raw_file: Stored,
    buffered_reader: Stored,
    buffered_random: Stored,
}

impl FileWrappers {
    pub fn new(py: Attached) -> PyResult<Self> {
        let io = Object::import(py, c"io")?;
        let class = |name| io.attribute(name).map(Stored::new);
        Ok(Self {
            class: Stored::new(make_type(py)?),
            raw_file: class(c"FileIO")?,
            buffered_reader: class(c"BufferedReader")?,
            buffered_random: class(c"BufferedRandom")?,
        })
    }

    /// For the environ.
    pub fn class(&self) -> &Stored {
        &self.class
    }

    pub fn is_wrapper(&self, object: &Object) -> bool {
        object.is_exactly_a(self.class.get(object.py()))
    }

    /// The file behind `wrapper` from where its next `read` would begin. `None` if there is no such
    /// file, for whatever reason: reading it shows the reason.
    pub fn open_file(&self, wrapper: &Object) -> Option<FileBody> {
        if !self.is_wrapper(wrapper) {
            return None;
        }
        // SAFETY: an instance of the type, as was checked.
        let opened = unsafe { filelike(wrapper) }
            .and_then(|file| self.file_of(&file))
            .and_then(|file| file.map_or(Ok(None), |file| body_of(&file)));
        opened.unwrap_or_else(|Raised| {
            clear_raised(wrapper.py());
            None
        })
    }

    /// The file whose method `filelike.read` is. Its write buffer is flushed.
    fn file_of<'py>(&self, filelike: &Object<'py>) -> PyResult<Option<Object<'py>>> {
        let py = filelike.py();
        let read = filelike.attribute(c"read")?;
        let Some(file) = self_of_builtin(&read) else { return Ok(None) };
        let raw_file = self.raw_file.get(py);
        let is_raw = file.is_exactly_a(raw_file);
        let is_random = file.is_exactly_a(self.buffered_random.get(py));
        if !is_raw && !is_random && !file.is_exactly_a(self.buffered_reader.get(py)) {
            return Ok(None);
        }
        if !is_raw && !file.attribute(c"raw")?.is_exactly_a(raw_file) {
            return Ok(None);
        }
        // `read` may be another method under that name.
        if !read.equals(&file.attribute(c"read")?)? {
            return Ok(None);
        }
        if is_random {
            file.call_method(c"flush", [])?;
        }
        Ok(Some(file))
    }
}

/// The rest of a file, by a descriptor of our own.
fn body_of(file: &Object) -> PyResult<Option<FileBody>> {
    let number = |method| file.call_method(method, [])?.to_i64();
    let offset = u64::try_from(number(c"tell")?).unwrap_or(u64::MAX);
    let fd = number(c"fileno")?;
    let raw = match c_int::try_from(fd) {
        Ok(raw) if raw >= 0 => raw,
        _ => return Ok(None),
    };
    // SAFETY: the descriptor is duplicated only, and only used if the file still has it below.
    let body = FileBody::from_offset(unsafe { BorrowedFd::borrow_raw(raw) }, offset);
    // Without a GIL another thread may have closed the file before its descriptor was duplicated,
    // and opened another one with this number. `close` takes the number from the file before it
    // closes the descriptor, and `fileno` of a closed file raises: a file that has the number still
    // had it just before.
    let is_unchanged = number(c"fileno")? == fd;
    Ok(body.unwrap_or(None).filter(|_| is_unchanged))
}

/// Makes the type, for one interpreter. It cannot be subclassed: a subclass could iterate in its
/// own way.
fn make_type(py: Attached<'_>) -> PyResult<Object<'_>> {
    // SAFETY: each slot has the function or table that CPython expects there; zero bytes are a null
    // pointer and a number, which need no drop. `traverse`, `clear` and `deallocate` are there.
    unsafe {
        class::make::<Wrapper>(
            py,
            c"headway.server.FileWrapper",
            c"FileWrapper(filelike, blksize=8192): a file as the body of a response.",
            Py_TPFLAGS_HAVE_GC,
            &[
                (Py_tp_new, new as *mut c_void),
                (Py_tp_dealloc, deallocate as *mut c_void),
                (Py_tp_traverse, traverse as *mut c_void),
                (Py_tp_clear, clear as *mut c_void),
                (Py_tp_iter, unary(iterate)),
                (Py_tp_iternext, unary(next_block)),
                (Py_tp_methods, METHODS.as_ptr().cast()),
                (Py_tp_members, MEMBERS.0.as_ptr() as *mut c_void),
            ],
        )
    }
}

unsafe extern "C" fn new(
    class: *mut PyTypeObject,
    arguments: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let names: [*const c_char; 3] = [c"filelike".as_ptr(), c"blksize".as_ptr(), ptr::null()];
    let mut filelike = ptr::null_mut();
    let mut block_bytes = DEFAULT_BLOCK_BYTES;
    // SAFETY: CPython calls attached, with the type above and live arguments; the format matches
    // the places that follow the names.
    unsafe {
        barrier(ptr::null_mut(), |_| {
            let parsed = PyArg_ParseTupleAndKeywords(
                arguments,
                keywords,
                c"O|n:FileWrapper".as_ptr(),
                names.as_ptr(),
                &raw mut filelike,
                &raw mut block_bytes,
            );
            if parsed == 0 {
                return ptr::null_mut();
            }
            let object = PyType_GenericAlloc(class, 0);
            if !object.is_null() {
                Py_INCREF(filelike);
                (*object.cast::<Instance<Wrapper>>()).data = Wrapper { filelike, block_bytes };
            }
            object
        })
    }
}

unsafe extern "C" fn deallocate(object: *mut PyObject) {
    // SAFETY: CPython calls it once, when the last reference is gone.
    unsafe {
        PyObject_GC_UnTrack(object.cast());
        clear(object);
        class::deallocate(object);
    }
}

/// Calls nothing that panics or runs Python code.
unsafe extern "C" fn traverse(
    object: *mut PyObject,
    visit: visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls with an instance and a function to call with each reference.
    unsafe {
        let filelike = (*object.cast::<Instance<Wrapper>>()).data.filelike;
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
    // SAFETY: CPython calls with an instance. The reference is the instance's own, and forgotten
    // before it is dropped.
    barrier_without_exception(|| unsafe {
        let filelike = &mut (*object.cast::<Instance<Wrapper>>()).data.filelike;
        Py_XDECREF(std::mem::replace(filelike, ptr::null_mut()));
    });
    0
}

/// The wrapped file.
///
/// # Safety
/// `wrapper` is an instance of a type that `make_type` made.
unsafe fn filelike<'py>(wrapper: &Object<'py>) -> PyResult<Object<'py>> {
    let py = wrapper.py();
    // SAFETY: the caller's; the instance keeps the file alive.
    unsafe {
        match class::data::<Wrapper>(wrapper).filelike {
            gone if gone.is_null() => Err(Exception::ValueError.raise(py, "the file is gone")),
            filelike => Ok(Object::from_borrowed(py, filelike)),
        }
    }
}

/// `__iter__`
fn iterate<'py>(this: &Object<'py>) -> PyResult<Option<Object<'py>>> {
    Ok(Some(this.clone()))
}

/// `__next__`
fn next_block<'py>(this: &Object<'py>) -> PyResult<Option<Object<'py>>> {
    // SAFETY: a slot of the type, so CPython calls it with an instance.
    let (file, size) = unsafe { (filelike(this)?, class::data::<Wrapper>(this).block_bytes) };
    let size = (size as i64).to_python(this.py())?;
    let block = file.call_method(c"read", [&size])?;
    Ok(if block.is_true()? { Some(block) } else { None })
}

fn close<'py>(this: &Object<'py>) -> PyResult<Object<'py>> {
    // SAFETY: a method of the type, so CPython calls it with an instance.
    let file = unsafe { filelike(this)? };
    // Looked up now: Django replaces `close` after the file is wrapped.
    match file.attribute(c"close") {
        Ok(close) => close.call([]),
        Err(Raised) if Exception::AttributeError.is_raised(this.py()) => {
            clear_raised(this.py());
            Ok(Object::none(this.py()))
        }
        Err(Raised) => Err(Raised),
    }
}
