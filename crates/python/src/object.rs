//! References to Python objects.

use crate::attached::Attached;
use crate::c_api::*;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// An owned reference, for as long as the thread state stays attached.
///
/// `&Object` also stands for a borrowed reference: `Object` has the layout of a `PyObject *`.
#[repr(transparent)]
pub struct Object<'py> {
    pointer: NonNull<PyObject>,
    py: Attached<'py>,
}

/// A Python exception is set in this thread.
#[derive(Clone, Copy, Debug)]
pub struct Raised;

pub type PyResult<T> = Result<T, Raised>;

impl<'py> Object<'py> {
    /// Takes over a new reference, or the error that stands for it.
    ///
    /// # Safety
    /// `pointer` is a reference that the caller owns and gives away, or null with an exception set.
    pub unsafe fn from_new(py: Attached<'py>, pointer: *mut PyObject) -> PyResult<Self> {
        NonNull::new(pointer).map(|pointer| Self { pointer, py }).ok_or(Raised)
    }

    /// Adds a reference to an object that somebody else keeps alive.
    ///
    /// # Safety
    /// `pointer` is a live object.
    pub unsafe fn from_borrowed(py: Attached<'py>, pointer: *mut PyObject) -> Self {
        // SAFETY: a live object, so its address is not null.
        unsafe {
            Py_INCREF(pointer);
            Self { pointer: NonNull::new_unchecked(pointer), py }
        }
    }

    /// Views a pointer as a borrowed reference.
    ///
    /// # Safety
    /// The pointer is an object that stays alive for `'a`.
    pub unsafe fn borrow<'a>(_: Attached<'py>, pointer: &'a *mut PyObject) -> &'a Self {
        // SAFETY: `Object` is a transparent wrapper of a non-null pointer, which a live object's
        // is.
        unsafe { &*ptr::from_ref(pointer).cast() }
    }

    /// Views an array of pointers as borrowed references.
    ///
    /// # Safety
    /// `pointers` points to `count` objects that stay alive for `'a`. It may be null if `count` is
    /// 0: `_PyObject_CallNoArgs` calls so.
    pub unsafe fn borrow_array<'a>(
        _: Attached<'py>,
        pointers: *const *mut PyObject,
        count: Py_ssize_t,
    ) -> &'a [Self]
    where
        'py: 'a,
    {
        match count {
            // A slice's pointer is never null.
            0 => &[],
            // SAFETY: the caller's; `Object` is a transparent wrapper of a non-null pointer.
            _ => unsafe { std::slice::from_raw_parts(pointers.cast(), count as usize) },
        }
    }

    pub fn py(&self) -> Attached<'py> {
        self.py
    }

    pub fn as_ptr(&self) -> *mut PyObject {
        self.pointer.as_ptr()
    }

    /// Gives the reference away.
    pub fn into_ptr(self) -> *mut PyObject {
        ManuallyDrop::new(self).as_ptr()
    }

    pub fn none(py: Attached<'py>) -> Self {
        // SAFETY: None is always alive.
        unsafe { Self::from_borrowed(py, Py_None()) }
    }

    pub fn from_latin1(py: Attached<'py>, bytes: &[u8]) -> PyResult<Self> {
        let length = bytes.len() as Py_ssize_t;
        // SAFETY: pointer and length are those of `bytes`; a null `errors` means strict.
        unsafe {
            Self::from_new(py, PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), length, ptr::null()))
        }
    }

    pub fn from_bytes(py: Attached<'py>, bytes: &[u8]) -> PyResult<Self> {
        let length = bytes.len() as Py_ssize_t;
        // SAFETY: pointer and length are those of `bytes`.
        unsafe { Self::from_new(py, PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length)) }
    }

    /// A bytes object of `length` zero bytes, which `fill` replaces.
    pub fn new_bytes(
        py: Attached<'py>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> PyResult<()>,
    ) -> PyResult<Self> {
        // SAFETY: a null pointer requests an object whose bytes may be written as long as nobody
        // else has a reference.
        let object = unsafe {
            let new = PyBytes_FromStringAndSize(ptr::null(), length as Py_ssize_t);
            Self::from_new(py, new)?
        };
        // SAFETY: a bytes object of that length, to which this is the only reference. If the length
        // is 0 it is shared, and the slice is empty.
        let bytes = unsafe {
            let start: *mut u8 = PyBytes_AsString(object.as_ptr()).cast();
            start.write_bytes(0, length);
            std::slice::from_raw_parts_mut(start, length)
        };
        fill(bytes)?;
        Ok(object)
    }

    pub fn from_text(py: Attached<'py>, text: &str) -> PyResult<Self> {
        let length = text.len() as Py_ssize_t;
        // SAFETY: pointer and length are those of `text`.
        unsafe { Self::from_new(py, PyUnicode_FromStringAndSize(text.as_ptr().cast(), length)) }
    }

    /// A str of bytes that should be UTF-8; others are replaced.
    pub fn from_utf8_lossy(py: Attached<'py>, bytes: &[u8]) -> PyResult<Self> {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len() as Py_ssize_t);
        // SAFETY: pointer and length are those of `bytes`; the handler's name ends with zero.
        unsafe { Self::from_new(py, PyUnicode_DecodeUTF8(start, length, c"replace".as_ptr())) }
    }

    /// A str of a path's bytes, which need not be text (`os.fsdecode`).
    pub fn from_path_bytes(py: Attached<'py>, bytes: &[u8]) -> PyResult<Self> {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len() as Py_ssize_t);
        // SAFETY: pointer and length are those of `bytes`.
        unsafe { Self::from_new(py, PyUnicode_DecodeFSDefaultAndSize(start, length)) }
    }

    /// The bytes of a path that is a str (`os.fsencode`).
    pub fn to_path_bytes(&self) -> PyResult<Self> {
        // SAFETY: a live object; TypeError unless it is a str.
        unsafe { Self::from_new(self.py, PyUnicode_EncodeFSDefault(self.as_ptr())) }
    }

    /// An interned string, for keys.
    pub fn interned(py: Attached<'py>, text: &CStr) -> PyResult<Self> {
        // SAFETY: the text ends with zero.
        unsafe { Self::from_new(py, PyUnicode_InternFromString(text.as_ptr())) }
    }

    pub fn new_list(py: Attached<'py>) -> PyResult<Self> {
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Self::from_new(py, PyList_New(0)) }
    }

    pub fn new_dict(py: Attached<'py>) -> PyResult<Self> {
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Self::from_new(py, PyDict_New()) }
    }

    pub fn import(py: Attached<'py>, module: &CStr) -> PyResult<Self> {
        // SAFETY: the name ends with zero.
        unsafe { Self::from_new(py, PyImport_ImportModule(module.as_ptr())) }
    }

    /// An attribute of the `sys` module, if it is there.
    pub fn from_sys(py: Attached<'py>, name: &CStr) -> Option<Self> {
        // SAFETY: the name ends with zero; a borrowed reference that is held at once, or null.
        unsafe {
            let value = PySys_GetObject(name.as_ptr());
            (!value.is_null()).then(|| Self::from_borrowed(py, value))
        }
    }

    pub fn is(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }

    pub fn is_none(&self) -> bool {
        // SAFETY: compares addresses.
        unsafe { Py_IsNone(self.as_ptr()) != 0 }
    }

    /// `bool(self)`
    pub fn is_true(&self) -> PyResult<bool> {
        // SAFETY: a live object.
        match unsafe { PyObject_IsTrue(self.as_ptr()) } {
            -1 => Err(Raised),
            truth => Ok(truth != 0),
        }
    }

    pub fn is_text(&self) -> bool {
        // SAFETY: reads the type of a live object; so do the next ones.
        unsafe { PyUnicode_Check(self.as_ptr()) != 0 }
    }

    pub fn is_exact_text(&self) -> bool {
        // SAFETY: as `is_text`.
        unsafe { PyUnicode_CheckExact(self.as_ptr()) != 0 }
    }

    pub fn is_int(&self) -> bool {
        // SAFETY: as `is_text`.
        unsafe { PyLong_Check(self.as_ptr()) != 0 }
    }

    pub fn is_dict(&self) -> bool {
        // SAFETY: as `is_text`.
        unsafe { PyDict_Check(self.as_ptr()) != 0 }
    }

    pub fn is_list(&self) -> bool {
        // SAFETY: as `is_text`.
        unsafe { PyList_Check(self.as_ptr()) != 0 }
    }

    pub fn is_exact_list(&self) -> bool {
        // SAFETY: as `is_text`.
        unsafe { PyList_CheckExact(self.as_ptr()) != 0 }
    }

    pub fn is_exact_tuple(&self) -> bool {
        // SAFETY: as `is_text`.
        unsafe { PyTuple_CheckExact(self.as_ptr()) != 0 }
    }

    /// Whether the object's type is `class` itself.
    pub fn is_exactly_a(&self, class: &Self) -> bool {
        // SAFETY: reads the type of a live object.
        unsafe { ptr::eq(Py_TYPE(self.as_ptr()), class.as_ptr().cast()) }
    }

    pub fn class(&self) -> Self {
        // SAFETY: a live object keeps its type alive.
        unsafe { Self::from_borrowed(self.py, Py_TYPE(self.as_ptr()).cast()) }
    }

    /// The name of the object's type, for messages.
    pub fn type_name(&self) -> String {
        // SAFETY: a type's name ends with zero and lives as long as the type.
        unsafe { CStr::from_ptr((*Py_TYPE(self.as_ptr())).tp_name).to_string_lossy().into_owned() }
    }

    pub fn attribute(&self, name: &CStr) -> PyResult<Self> {
        // SAFETY: a live object, and a name that ends with zero.
        unsafe { Self::from_new(self.py, PyObject_GetAttrString(self.as_ptr(), name.as_ptr())) }
    }

    /// The attribute with an interned name; `None` instead of AttributeError.
    pub fn find_attribute(&self, name: &Self) -> PyResult<Option<Self>> {
        // SAFETY: live objects. An exception is set where its type is compared.
        unsafe {
            match Self::from_new(self.py, PyObject_GetAttr(self.as_ptr(), name.as_ptr())) {
                Ok(value) => Ok(Some(value)),
                Err(Raised) if PyErr_ExceptionMatches(PyExc_AttributeError) != 0 => {
                    PyErr_Clear();
                    Ok(None)
                }
                Err(Raised) => Err(Raised),
            }
        }
    }

    pub fn set_attribute(&self, name: &CStr, value: &Self) -> PyResult<()> {
        // SAFETY: live objects, and a name that ends with zero.
        check(unsafe { PyObject_SetAttrString(self.as_ptr(), name.as_ptr(), value.as_ptr()) })
    }

    pub fn call<const N: usize>(&self, arguments: [&Self; N]) -> PyResult<Self> {
        let arguments = arguments.map(Self::as_ptr);
        // SAFETY: a live object and N live arguments, without keywords.
        unsafe {
            let no_keywords = ptr::null_mut();
            let result = PyObject_Vectorcall(self.as_ptr(), arguments.as_ptr(), N, no_keywords);
            Self::from_new(self.py, result)
        }
    }

    pub fn call_method<const N: usize>(
        &self,
        name: &CStr,
        arguments: [&Self; N],
    ) -> PyResult<Self> {
        self.attribute(name)?.call(arguments)
    }

    pub fn iterate(&self) -> PyResult<Self> {
        // SAFETY: a live object.
        unsafe { Self::from_new(self.py, PyObject_GetIter(self.as_ptr())) }
    }

    /// The next item of an iterator, which `iterate` returned.
    pub fn next_item(&self) -> PyResult<Option<Self>> {
        // SAFETY: a live object with `__next__`, as `iter()` checks. Null without an exception
        // means the end.
        unsafe {
            match Self::from_new(self.py, PyIter_Next(self.as_ptr())) {
                Ok(item) => Ok(Some(item)),
                Err(Raised) if PyErr_Occurred().is_null() => Ok(None),
                Err(Raised) => Err(Raised),
            }
        }
    }

    /// `dict[key] = value`; SystemError unless this is a dict, as for all functions of dicts.
    pub fn set_item(&self, key: &Self, value: &Self) -> PyResult<()> {
        // SAFETY: live objects; CPython checks that the first is a dict.
        check(unsafe { PyDict_SetItem(self.as_ptr(), key.as_ptr(), value.as_ptr()) })
    }

    /// `dict.get(key)`
    ///
    /// The value is an owned reference: without a GIL another thread may take the value out of the
    /// dict, and free it, before the caller could hold a borrowed one.
    pub fn get_item(&self, key: &Self) -> PyResult<Option<Self>> {
        let mut value = ptr::null_mut();
        // SAFETY: live objects; CPython checks that the first is a dict. The value is a new
        // reference, or null.
        unsafe {
            match PyDict_GetItemRef(self.as_ptr(), key.as_ptr(), &mut value) {
                0 => Ok(None),
                _ => Self::from_new(self.py, value).map(Some),
            }
        }
    }

    /// `del dict[key]`
    pub fn remove_item(&self, key: &Self) -> PyResult<()> {
        // SAFETY: live objects; CPython checks that the first is a dict.
        check(unsafe { PyDict_DelItem(self.as_ptr(), key.as_ptr()) })
    }

    /// `key in dict`
    pub fn has_item(&self, key: &Self) -> PyResult<bool> {
        // SAFETY: live objects, of which the first is asked only if it is a dict.
        match unsafe {
            match PyDict_Check(self.as_ptr()) {
                0 => 0,
                _ => PyDict_Contains(self.as_ptr(), key.as_ptr()),
            }
        } {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Raised),
        }
    }

    /// `dict.copy()`
    pub fn copy_dict(&self) -> PyResult<Self> {
        // SAFETY: a live object; CPython checks that it is a dict.
        unsafe { Self::from_new(self.py, PyDict_Copy(self.as_ptr())) }
    }

    /// `list(dict.items())`
    pub fn dict_items(&self) -> PyResult<Self> {
        // SAFETY: a live object; CPython checks that it is a dict.
        unsafe { Self::from_new(self.py, PyDict_Items(self.as_ptr())) }
    }

    /// `len(dict)`
    pub fn dict_length(&self) -> PyResult<usize> {
        // SAFETY: a live object; CPython checks that it is a dict.
        usize::try_from(unsafe { PyDict_Size(self.as_ptr()) }).map_err(|_| Raised)
    }

    /// `dict.clear()`; nothing happens to an object that is no dict.
    pub fn clear_dict(&self) {
        // SAFETY: a live object; CPython checks that it is a dict.
        unsafe { PyDict_Clear(self.as_ptr()) }
    }

    /// `list.append(item)`; SystemError unless this is a list.
    pub fn append(&self, item: &Self) -> PyResult<()> {
        // SAFETY: live objects; CPython checks that the first is a list.
        check(unsafe { PyList_Append(self.as_ptr(), item.as_ptr()) })
    }

    /// `len(list)`; SystemError unless this is a list.
    pub fn list_length(&self) -> PyResult<usize> {
        // SAFETY: a live object; CPython checks that it is a list.
        usize::try_from(unsafe { PyList_Size(self.as_ptr()) }).map_err(|_| Raised)
    }

    /// `list[index]`; IndexError if another thread has shortened the list meanwhile.
    pub fn list_item(&self, index: usize) -> PyResult<Self> {
        // SAFETY: a live object; CPython checks that it is a list. A new reference, or null.
        unsafe {
            let item = PyList_GetItemRef(self.as_ptr(), index as Py_ssize_t);
            Self::from_new(self.py, item)
        }
    }

    /// The length of a sequence or a mapping.
    pub fn length(&self) -> PyResult<usize> {
        // SAFETY: a live object; TypeError if it has no length.
        usize::try_from(unsafe { PyObject_Size(self.as_ptr()) }).map_err(|_| Raised)
    }

    /// The length, unless the type of the object has none. Cheap where it has none.
    pub fn find_length(&self) -> Option<usize> {
        // SAFETY: a live object's type, whose slots are read.
        unsafe {
            let class = Py_TYPE(self.as_ptr());
            if PyType_GetSlot(class, Py_sq_length).is_null()
                && PyType_GetSlot(class, Py_mp_length).is_null()
            {
                return None;
            }
        }
        self.length().inspect_err(|Raised| clear()).ok()
    }

    /// `sequence[index]`
    pub fn item(&self, index: usize) -> PyResult<Self> {
        // SAFETY: a live object; TypeError unless it is a sequence.
        unsafe { Self::from_new(self.py, PySequence_GetItem(self.as_ptr(), index as Py_ssize_t)) }
    }

    /// The items of a sequence.
    pub fn items(&self) -> PyResult<Vec<Self>> {
        (0..self.length()?).map(|index| self.item(index)).collect()
    }

    /// `tuple(self)`
    pub fn to_tuple(&self) -> PyResult<Self> {
        // SAFETY: a live object; TypeError unless it is iterable.
        unsafe { Self::from_new(self.py, PySequence_Tuple(self.as_ptr())) }
    }

    /// The items of a tuple, which never change.
    pub fn as_tuple(&self) -> Option<&[Self]> {
        // SAFETY: a live tuple, whose items are live objects and the same as long as it lives.
        unsafe {
            if PyTuple_Check(self.as_ptr()) == 0 {
                return None;
            }
            let items = &raw const (*self.as_ptr().cast::<PyTupleObject>()).ob_item;
            Some(Self::borrow_array(self.py, items.cast(), PyTuple_Size(self.as_ptr())))
        }
    }

    /// The content of a bytes object, which never changes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        // SAFETY: a live bytes object; its content lives as long as it.
        unsafe {
            if PyBytes_Check(self.as_ptr()) == 0 {
                return None;
            }
            let start = PyBytes_AsString(self.as_ptr()).cast();
            Some(std::slice::from_raw_parts(start, PyBytes_Size(self.as_ptr()) as usize))
        }
    }

    /// The text of a str; TypeError for anything else, UnicodeEncodeError for lone surrogates.
    pub fn as_text(&self) -> PyResult<&str> {
        // SAFETY: a live object, which CPython checks to be a str; its UTF-8 form lives in it.
        unsafe {
            let mut length = 0;
            let utf8 = PyUnicode_AsUTF8AndSize(self.as_ptr(), &mut length);
            if utf8.is_null() {
                return Err(Raised);
            }
            let bytes = std::slice::from_raw_parts(utf8.cast(), length as usize);
            Ok(std::str::from_utf8_unchecked(bytes))
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

    /// `str(self)`
    pub fn to_str(&self) -> PyResult<Self> {
        // SAFETY: a live object.
        unsafe { Self::from_new(self.py, PyObject_Str(self.as_ptr())) }
    }

    /// `self == other`
    pub fn equals(&self, other: &Self) -> PyResult<bool> {
        // SAFETY: live objects.
        match unsafe { PyObject_RichCompareBool(self.as_ptr(), other.as_ptr(), Py_EQ) } {
            -1 => Err(Raised),
            equal => Ok(equal != 0),
        }
    }
}

impl Clone for Object<'_> {
    fn clone(&self) -> Self {
        // SAFETY: a live object.
        unsafe { Self::from_borrowed(self.py, self.as_ptr()) }
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and the token proves that a thread state is attached.
        unsafe { Py_DECREF(self.as_ptr()) }
    }
}

fn check(status: i32) -> PyResult<()> {
    if status == 0 { Ok(()) } else { Err(Raised) }
}

/// Forgets the exception that was just raised.
fn clear() {
    // SAFETY: called where an exception was raised, so a thread state is attached.
    unsafe { PyErr_Clear() }
}
