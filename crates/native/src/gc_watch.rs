//! `_native.gc_watch`: has the calling interpreter's garbage collector tell of its passes.
//!
//! A builtin in `gc.callbacks`: CPython calls it with ("start" or "stop", a dict) around each pass. It reads
//! the clock and a few small ints; the reporter's thread takes it from there, without the GIL.

use headway_python::object::{Object, PyResult, Raised, get_item};
use headway_reporter::gc_pauses::{self, GENERATIONS, Pass, Passes};
use headway_reporter::monotonic_ns;
use pyo3_ffi::*;
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Methods, method};

static METHODS: Methods<2> = Methods([
    method(
        c"gc_watch",
        gc_watch,
        c"gc_watch(name)\n\
          From now on the passes of this interpreter's garbage collector are told to the reporter, as those\n\
          of application group `name`. Again in the same interpreter: nothing.",
    ),
    PyMethodDef::zeroed(),
]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}

const CAPSULE_NAME: &CStr = c"headway._native.gc_watch";
/// What the callback is called in the interpreter, which is how it is known to be there.
const CALLBACK_NAME: &CStr = c"headway_gc_watch";

static CALLBACK: Methods<1> = Methods([PyMethodDef {
    ml_name: CALLBACK_NAME.as_ptr(),
    ml_meth: PyMethodDefPointer { PyCFunctionFast: note_pass },
    ml_flags: METH_FASTCALL,
    ml_doc: c"Tells Headway's telemetry how long a pass of the garbage collector takes.".as_ptr(),
}]);

/// Facts change with the program's settings, or are one number of many: a pass is told of at once, they are not.
const FACTS_NS: u64 = 200_000_000;
/// CPython walks over all frozen objects to count them.
const FROZEN_NS: u64 = 10_000_000_000;

/// What the callback has, in a capsule. One pass at a time runs in an interpreter, so its fields have one writer.
struct Watcher {
    passes: Arc<Passes>,
    generation: Object,
    collected: Object,
    uncollectable: Object,
    gc: Object,
    began_ns: Cell<u64>,
    facts_read_ns: Cell<u64>,
    frozen_read_ns: Cell<u64>,
}

unsafe extern "C" fn gc_watch(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut name: *const c_char = ptr::null();
    // SAFETY: the format has one place, for a C string that lives as long as the tuple.
    unsafe {
        if PyArg_ParseTuple(arguments, c"s:gc_watch".as_ptr(), &raw mut name) == 0 {
            return ptr::null_mut();
        }
        match watch(&CStr::from_ptr(name).to_string_lossy()) {
            Ok(()) => Object::from_borrowed(Py_None()).into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

fn watch(name: &str) -> PyResult<()> {
    // SAFETY: attached; all references are checked as they are made. The capsule owns the watcher.
    unsafe {
        let gc = Object::from_new(PyImport_ImportModule(c"gc".as_ptr()))?;
        let callbacks = PyObject_GetAttrString(gc.as_ptr(), c"callbacks".as_ptr());
        let callbacks = Object::from_new(callbacks)?;
        if is_watched(&callbacks)? {
            return Ok(());
        }
        let watcher = Watcher {
            passes: gc_pauses::watch(name),
            generation: Object::interned(c"generation")?,
            collected: Object::interned(c"collected")?,
            uncollectable: Object::interned(c"uncollectable")?,
            gc,
            began_ns: Cell::new(0),
            facts_read_ns: Cell::new(0),
            frozen_read_ns: Cell::new(0),
        };
        watcher.read_earlier()?;
        watcher.read_facts(monotonic_ns())?;
        let pointer = Box::into_raw(Box::new(watcher));
        let capsule = PyCapsule_New(pointer.cast(), CAPSULE_NAME.as_ptr(), Some(drop_watcher));
        let capsule = Object::from_new(capsule).inspect_err(|_| drop(Box::from_raw(pointer)))?;
        let callback =
            PyCFunction_NewEx(CALLBACK.0.as_ptr().cast_mut(), capsule.as_ptr(), ptr::null_mut());
        let callback = Object::from_new(callback)?;
        match PyList_Append(callbacks.as_ptr(), callback.as_ptr()) {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }
}

/// Whether a callback of ours is among them. TypeError unless it is a list.
fn is_watched(callbacks: &Object) -> PyResult<bool> {
    // SAFETY: live objects; an item is a new reference.
    unsafe {
        for index in 0..PySequence_Size(callbacks.as_ptr()) {
            let callback = Object::from_new(PySequence_GetItem(callbacks.as_ptr(), index))?;
            if PyCFunction_Check(callback.as_ptr()) != 0
                && PyCFunction_GetFunction(callback.as_ptr())
                    .is_some_and(|function| ptr::fn_addr_eq(function, as_function()))
            {
                return Ok(true);
            }
        }
        match PyErr_Occurred().is_null() {
            true => Ok(false),
            false => Err(Raised),
        }
    }
}

fn as_function() -> PyCFunction {
    // SAFETY: as CPython keeps it; it is compared, not called.
    unsafe { std::mem::transmute(note_pass as *const ()) }
}

/// The capsule's destructor. Attached to its interpreter.
unsafe extern "C" fn drop_watcher(capsule: *mut PyObject) {
    // SAFETY: made by `watch` and dropped once.
    unsafe {
        let pointer = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr());
        drop(Box::from_raw(pointer.cast::<Watcher>()));
    }
}

/// The callback. Whatever it is given, it returns None: what it raised would be told on stderr at each pass.
unsafe extern "C" fn note_pass(
    capsule: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython calls with so many live arguments; the capsule is the function's own.
    unsafe {
        let watcher = PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<Watcher>();
        if let (Some(watcher), 2) = (watcher.as_ref(), count)
            && watcher.note(*arguments, *arguments.add(1)).is_err()
        {
            PyErr_Clear();
        }
        Object::from_borrowed(Py_None()).into_ptr()
    }
}

impl Watcher {
    /// # Safety
    /// Attached; two live objects.
    unsafe fn note(&self, phase: *mut PyObject, about: *mut PyObject) -> PyResult<()> {
        let now_ns = monotonic_ns();
        // SAFETY: as the caller promises; what is compared with a str is one.
        unsafe {
            if PyUnicode_Check(phase) == 0 || PyDict_Check(about) == 0 {
                return Ok(());
            }
            if PyUnicode_CompareWithASCIIString(phase, c"start".as_ptr()) == 0 {
                self.began_ns.set(now_ns);
                return Ok(());
            }
            let began_ns = self.began_ns.replace(0);
            // The callback came in the midst of a pass.
            if began_ns == 0 || PyUnicode_CompareWithASCIIString(phase, c"stop".as_ptr()) != 0 {
                return Ok(());
            }
            self.passes.note(Pass {
                began_ns,
                took_ns: now_ns.saturating_sub(began_ns),
                generation: number_in(about, &self.generation)?,
                collected: number_in(about, &self.collected)?,
                uncollectable: number_in(about, &self.uncollectable)?,
            });
        }
        if now_ns.saturating_sub(self.facts_read_ns.get()) >= FACTS_NS {
            self.read_facts(now_ns)?;
        }
        Ok(())
    }

    fn read_facts(&self, now_ns: u64) -> PyResult<()> {
        self.facts_read_ns.set(now_ns);
        let facts = self.passes.facts();
        self.read_three(c"get_count", &facts.counts)?;
        self.read_three(c"get_threshold", &facts.thresholds)?;
        // SAFETY: a live object.
        let is_enabled = unsafe { PyObject_IsTrue(self.call(c"isenabled")?.as_ptr()) };
        facts.is_enabled.store(u64::from(is_enabled == 1), Relaxed);
        let frozen_read_ns = self.frozen_read_ns.get();
        if frozen_read_ns == 0 || now_ns.saturating_sub(frozen_read_ns) >= FROZEN_NS {
            self.frozen_read_ns.set(now_ns);
            let frozen = self.call(c"get_freeze_count")?.to_i64()?;
            facts.frozen.store(frozen.max(0) as u64, Relaxed);
        }
        Ok(())
    }

    /// What the collector has done before it was watched.
    fn read_earlier(&self) -> PyResult<()> {
        let stats = self.call(c"get_stats")?;
        let collections = Object::interned(c"collections")?;
        for (generation, earlier) in self.passes.facts().earlier.iter().enumerate() {
            // SAFETY: live objects; a new reference, or null with an exception set.
            let of = unsafe {
                Object::from_new(PySequence_GetItem(stats.as_ptr(), generation as Py_ssize_t))?
            };
            let keys = [&collections, &self.collected, &self.uncollectable];
            for (place, key) in earlier.iter().zip(keys) {
                // SAFETY: a live object.
                place.store(unsafe { number_in(of.as_ptr(), key)? }, Relaxed);
            }
        }
        Ok(())
    }

    fn read_three(&self, name: &CStr, places: &[AtomicU64; GENERATIONS]) -> PyResult<()> {
        let three = self.call(name)?;
        for (index, place) in places.iter().enumerate() {
            // SAFETY: a live object; a new reference, or null with an exception set.
            let item = unsafe { PySequence_GetItem(three.as_ptr(), index as Py_ssize_t) };
            // SAFETY: as above.
            let number = unsafe { Object::from_new(item)? }.to_i64()?;
            place.store(number.max(0) as u64, Relaxed);
        }
        Ok(())
    }

    fn call(&self, name: &CStr) -> PyResult<Object> {
        // SAFETY: a live module, and a name that ends with zero.
        unsafe {
            let function = PyObject_GetAttrString(self.gc.as_ptr(), name.as_ptr());
            Object::from_new(PyObject_CallNoArgs(Object::from_new(function)?.as_ptr()))
        }
    }
}

/// The number under a key; 0 if there is none.
///
/// # Safety
/// `dict` is a live object.
unsafe fn number_in(dict: *mut PyObject, key: &Object) -> PyResult<u64> {
    // SAFETY: a live object.
    let dict = unsafe { Object::from_borrowed(dict) };
    get_item(&dict, key)?.map_or(Ok(0), |value| Ok(value.to_i64()?.max(0) as u64))
}
