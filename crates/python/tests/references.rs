//! References in an interpreter that this program holds.

use headway_python::attached::Attached;
use headway_python::c_api::{self, Py_InitializeEx, Py_REFCNT, PyEval_SaveThread};
use headway_python::capsule::{self, InCapsule};
use headway_python::convert::{arguments, dict, tuple};
use headway_python::exception::{Exception, take_raised_as_text};
use headway_python::function::{END, Methods, function};
use headway_python::interpreter::SubInterpreter;
use headway_python::object::{Object, PyResult};
use headway_python::panics;
use headway_python::stored::{Stored, leaked_references};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::Once;

/// One test at a time has the interpreter, and the counter of leaked references.
static INTERPRETER: Mutex<()> = Mutex::new(());

fn attached(test: impl for<'py> FnOnce(Attached<'py>)) {
    static START: Once = Once::new();
    let _one = INTERPRETER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: the interpreter is initialized once and left detached. The thread's state is made for
    // this call, and it has no other.
    unsafe {
        START.call_once(|| {
            Py_InitializeEx(0);
            PyEval_SaveThread();
        });
        let interpreter = c_api::PyInterpreterState_Main();
        let state = headway_python::thread_state::ThreadState::new(interpreter).unwrap();
        state.delete_after(test);
    }
}

fn count(object: &Object) -> isize {
    // SAFETY: a live object.
    unsafe { Py_REFCNT(object.as_ptr()) }
}

#[test]
fn a_stored_reference_is_given_back_by_an_attached_thread() {
    attached(|py| {
        let list = Object::new_list(py).unwrap();
        let leaked = leaked_references();
        drop(Stored::new(list.clone()));
        assert_eq!((count(&list), leaked_references()), (1, leaked));
    });
}

#[test]
fn a_stored_reference_is_leaked_by_a_detached_thread() {
    attached(|py| {
        let list = Object::new_list(py).unwrap();
        let leaked = leaked_references();
        let stored = Stored::new(list.clone());
        py.detach(move || drop(stored));
        assert_eq!((count(&list), leaked_references()), (2, leaked + 1));
    });
}

#[test]
fn a_stored_reference_is_leaked_inside_another_interpreter() {
    attached(|py| {
        let sub = SubInterpreter::create(py, false).unwrap();
        let list = Object::new_list(py).unwrap();
        let stored = Stored::new(list.clone());
        let leaked = leaked_references();
        // SAFETY: this thread made the interpreter, which nobody else uses.
        unsafe {
            sub.enter(py, |_| drop(stored));
            sub.end::<()>(py, |_| Ok(())).unwrap();
        }
        assert_eq!((count(&list), leaked_references()), (2, leaked + 1));
    });
}

#[test]
fn values_become_objects_and_come_back() {
    attached(|py| {
        let made = dict(py, &[("a", &1_u64), ("b", &Some("x")), ("c", &None::<bool>)]).unwrap();
        assert_eq!(made.to_str().unwrap().as_text().unwrap(), "{'a': 1, 'b': 'x', 'c': None}");
        let made = tuple(py, &[&-1_i32, &u64::MAX, &c"p".to_str().unwrap(), &true, &made]).unwrap();
        let items = made.as_tuple().unwrap();
        let read: PyResult<(i32, u64, &str, bool, &Object)> = arguments(py, "f", items);
        let (number, large, text, truth, _) = read.unwrap();
        assert_eq!((number, large, text, truth), (-1, u64::MAX, "p", true));
    });
}

#[test]
fn arguments_of_another_number_or_type_raise() {
    attached(|py| {
        let items = tuple(py, &[&1_u64, &"x"]).unwrap();
        let items = items.as_tuple().unwrap();
        let message = |_| take_raised_as_text(py);
        let count = arguments::<(i64,)>(py, "f", items).map_err(message);
        assert_eq!(count.unwrap_err(), "TypeError: f() takes 1 argument (2 given)");
        let kind = arguments::<(i64, &CStr)>(py, "f", items).map_err(message);
        assert_eq!(kind.unwrap_err(), "TypeError: expected bytes, found str");
        let range =
            arguments::<(u32,)>(py, "f", tuple(py, &[&-1_i64]).unwrap().as_tuple().unwrap())
                .map_err(message);
        assert_eq!(range.unwrap_err(), "OverflowError: -1 is out of range");
        let bytes = Object::from_bytes(py, b"a\0b").unwrap();
        let zero = arguments::<(&CStr,)>(py, "f", std::slice::from_ref(&bytes)).map_err(message);
        assert_eq!(zero.unwrap_err(), "ValueError: embedded null byte");
    });
}

#[test]
fn functions_of_no_arguments_get_an_empty_slice() {
    fn given<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
        match given {
            [] => Ok(Object::none(py)),
            _ => Err(Exception::TypeError.raise(py, "none")),
        }
    }
    static FUNCTIONS: Methods<2> = Methods::new([function(c"given", given, c""), END]);
    attached(|py| {
        let function = FUNCTIONS.bind(&Object::none(py)).unwrap();
        assert!(FUNCTIONS.is_bound_in(&function));
        // A defaultdict calls its factory with null for arguments.
        let collections = Object::import(py, c"collections").unwrap();
        let dict = collections.call_method(c"defaultdict", [&function]).unwrap();
        let value = dict.call_method(c"__missing__", [&Object::none(py)]).unwrap();
        assert!(value.is_none());
        assert!(function.call([&value]).is_err());
        take_raised_as_text(py);
    });
}

#[test]
fn a_capsule_owns_its_value() {
    struct Kept(std::sync::Arc<()>);
    // SAFETY: no other type has this name.
    unsafe impl InCapsule for Kept {
        const NAME: &'static CStr = c"kept";
    }
    attached(|py| {
        let shared = std::sync::Arc::new(());
        let capsule = capsule::new(py, Kept(shared.clone())).unwrap();
        assert!(capsule::value::<Kept>(&capsule).is_ok_and(|kept| kept.0 == shared));
        drop(capsule);
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
        assert!(capsule::value::<Kept>(&Object::none(py)).is_err());
        take_raised_as_text(py);
    });
}

struct PanicsWhenDropped;

// SAFETY: no other type has this name.
unsafe impl InCapsule for PanicsWhenDropped {
    const NAME: &'static CStr = c"panics when dropped";
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_panic_in_the_destructor_of_a_capsule_leaves_the_exception_that_is_set() {
    attached(|py| {
        panics::report_in_one_line();
        let count = panics::count();
        let capsule = capsule::new(py, PanicsWhenDropped).unwrap();
        Exception::ValueError.raise(py, "on its way");
        drop(capsule);
        assert_eq!(panics::count(), count + 1);
        assert_eq!(take_raised_as_text(py), "ValueError: on its way");
    });
}

#[test]
fn a_panic_in_a_function_replaces_the_exception_that_is_set() {
    static FUNCTIONS: Methods<2> = Methods::new([
        function(
            c"panic",
            |py, _| {
                Exception::ValueError.raise(py, "on its way");
                panic!("on purpose")
            },
            c"",
        ),
        END,
    ]);
    attached(|py| {
        let none = Object::none(py);
        assert!(FUNCTIONS.bind(&none).unwrap().call([]).is_err());
        let text = take_raised_as_text(py);
        let expected = "SystemError: internal error of Headway, the program goes on: on purpose";
        assert!(text.starts_with(expected), "{text}");
    });
}

#[test]
fn a_panic_in_a_new_thread_state_deletes_the_state() {
    attached(|py| {
        let interpreter = SubInterpreter::create(py, false).unwrap();
        // SAFETY: the interpreter is alive, and this thread has none of its states attached.
        unsafe {
            let state = interpreter.new_thread_state().unwrap();
            let panicked = py.detach(|| {
                catch_unwind(AssertUnwindSafe(|| state.delete_after(|_| panic!("on purpose"))))
                    .is_err()
            });
            assert!(panicked);
            assert_eq!(interpreter.enter(py, |py| interpreter.count_thread_states(py)), 1);
            assert_eq!(interpreter.end::<()>(py, |_| Ok(())), Ok(()));
        }
    });
}

#[test]
fn a_panic_before_the_end_of_an_interpreter_leaves_the_interpreter_and_the_caller() {
    attached(|py| {
        let caller = py.interpreter_id();
        let interpreter = SubInterpreter::create(py, false).unwrap();
        // SAFETY: this thread made the interpreter, which is alive until the last `end`.
        unsafe {
            let end = || interpreter.end::<()>(py, |_| panic!("on purpose"));
            assert!(catch_unwind(AssertUnwindSafe(end)).is_err());
            assert_eq!(py.interpreter_id(), caller);
            assert_ne!(interpreter.enter(py, |py| py.interpreter_id()), caller);
            assert_eq!(interpreter.end::<()>(py, |_| Ok(())), Ok(()));
        }
        assert_eq!(py.interpreter_id(), caller);
    });
}
