//! The token of an attached thread.

use crate::c_api::*;
use std::marker::PhantomData;

/// Proves that the calling thread has a thread state attached for the time `'py`: it holds the GIL
/// of an interpreter or, in a free-threaded build, takes part in the interpreter's execution.
///
/// Functions that use an object need the token, and objects borrow it. It is neither `Send` nor
/// `Sync`, takes no memory, and is made where CPython calls ([`crate::function`]) and where a
/// thread state is attached ([`crate::thread_state`]).
///
/// The token does not prove *which* interpreter is attached. Objects of one interpreter must not
/// be used in another. Inside one borrow of the token this cannot happen; where a [`Stored`]
/// reference meets a token, it is checked.
///
/// [`Stored`]: crate::stored::Stored
#[derive(Clone, Copy)]
pub struct Attached<'py>(PhantomData<(&'py (), *const ())>);

impl<'py> Attached<'py> {
    /// # Safety
    /// The calling thread has a thread state attached throughout `'py`, except inside
    /// [`Attached::detach`].
    pub unsafe fn assume() -> Self {
        Self(PhantomData)
    }

    /// Runs `wait` with the thread state detached (without the GIL) and attaches it again.
    ///
    /// `wait` cannot capture the token or an object, which are not `Send`:
    ///
    /// ```compile_fail
    /// # use headway_python::attached::Attached;
    /// fn f(py: Attached) {
    ///     py.detach(|| py.is_main_interpreter());
    /// }
    /// ```
    ///
    /// ```compile_fail
    /// # use headway_python::object::Object;
    /// fn f(object: Object) {
    ///     object.py().detach(move || drop(object));
    /// }
    /// ```
    pub fn detach<T: Send>(self, wait: impl FnOnce() -> T + Send) -> T {
        // SAFETY: the token proves that a thread state is attached; it is attached again below,
        // also when `wait` panics.
        let state = Detached(unsafe { PyEval_SaveThread() });
        let result = wait();
        drop(state);
        result
    }

    /// The number of the attached interpreter. CPython never uses a number again.
    pub fn interpreter_id(self) -> i64 {
        // SAFETY: a thread state is attached, so its interpreter is alive.
        unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) }
    }

    pub fn is_main_interpreter(self) -> bool {
        // SAFETY: a thread state is attached; the main interpreter exists as long as the runtime.
        unsafe { PyInterpreterState_Get() == PyInterpreterState_Main() }
    }
}

/// The calling thread's detached state.
struct Detached(*mut PyThreadState);

impl Drop for Detached {
    fn drop(&mut self) {
        // SAFETY: `detach` took this state from the calling thread, which has attached no other.
        unsafe { PyEval_RestoreThread(self.0) }
    }
}
