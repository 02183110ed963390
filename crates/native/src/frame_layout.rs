//! Where the running CPython keeps frames, code objects and text: from `_Py_DebugOffsets` from 3.13
//! on, from the headers of 3.10 to 3.12.
//!
//! A user of the layout compares the calls of the calling thread, read with it, with those that
//! CPython reports (`matches`).

use headway_gil::{Frame, Layout, LineFormat};
use headway_python::attached::Attached;
use headway_python::c_api::*;
use std::ffi::{c_char, c_int};

/// The layout of this CPython; `None` if it is not known.
pub fn layout(py: Attached) -> Option<Layout> {
    let text_kind_shift = text_kind_shift(py)?;
    base().map(|layout| Layout { text_kind_shift, ..layout })
}

/// Offsets of CPython 3.10 to 3.12 with 8-byte pointers: `struct _ts`, `_PyInterpreterFrame`
/// (`PyFrameObject` in 3.10), `PyCodeObject`, `PyASCIIObject`, `PyBytesObject`.
#[cfg(not(Py_3_13))]
fn base() -> Option<Layout> {
    let code_type = (&raw mut PyCode_Type) as usize;
    let common = Layout {
        state_frame: 56,
        state_thread: 136,
        place_frame: Some(0),
        frame_code: 0,
        frame_previous: 8,
        frame_instruction: 56,
        instruction_is_index: false,
        thread_instructions: None,
        frame_owner: Some((70, 3)),
        code_name: 128,
        code_file: 112,
        code_lines: 136,
        code_first_line: 68,
        code_instructions: 192,
        code_version: Some(92),
        object_type: 8,
        code_type,
        text_length: 16,
        text_state: 32,
        text_kind_shift: 0,
        text_ascii: 40,
        text_other: 56,
        bytes_length: 16,
        bytes_data: 32,
        lines: LineFormat::Locations,
    };
    if cfg!(Py_3_12) {
        return Some(common);
    }
    // `wstr` and its length went in 3.12.
    let common = Layout { text_ascii: 48, text_other: 72, code_version: None, ..common };
    if cfg!(Py_3_11) {
        return Some(Layout {
            state_thread: 152,
            place_frame: Some(8),
            frame_code: 32,
            frame_previous: 48,
            frame_owner: None,
            code_first_line: 72,
            code_instructions: 184,
            ..common
        });
    }
    Some(Layout {
        state_frame: 24,
        state_thread: 176,
        place_frame: None,
        frame_code: 32,
        frame_previous: 24,
        frame_instruction: 96,
        instruction_is_index: true,
        frame_owner: None,
        code_name: 112,
        code_file: 104,
        code_lines: 120,
        code_first_line: 40,
        code_instructions: 0,
        lines: LineFormat::Pairs,
        ..common
    })
}

/// The words of `_Py_DebugOffsets`, by index, with which `_PyRuntime` begins: `None` for one that
/// is too large for an offset in a structure. `None` if this is another CPython than this module
/// was built for.
#[cfg(Py_3_13)]
pub fn debug_offsets() -> Option<impl Fn(usize) -> Option<usize>> {
    const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    // SAFETY: a C string.
    let runtime = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr()) }.cast::<u64>();
    if runtime.is_null() {
        return None;
    }
    // SAFETY: `_PyRuntime` begins with `_Py_DebugOffsets` from 3.13 on, which is longer than any
    // index below.
    let stated = move |index: usize| unsafe { runtime.add(index).read() };
    // SAFETY: a constant of CPython's.
    let version = unsafe { Py_Version };
    let free_threaded = u64::from(cfg!(Py_GIL_DISABLED));
    if stated(0) != COOKIE || stated(1) >> 16 != version >> 16 || stated(2) != free_threaded {
        return None;
    }
    Some(move |index: usize| usize::try_from(stated(index)).ok().filter(|at| *at < 1 << 16))
}

/// The offsets that this build of CPython states at the beginning of `_PyRuntime`.
#[cfg(Py_3_13)]
fn base() -> Option<Layout> {
    let at = debug_offsets()?;
    // Indices of `current_frame` and `thread_id`, and of the first fields of `interpreter_frame`,
    // `code_object`, `pyobject`, `bytes_object` and `unicode_object`, behind each one's size.
    let [frame, thread, interpreter_frame, code, object, bytes, text] = if cfg!(Py_3_15) {
        [26, 30, 40, 48, 59, 87, 90]
    } else if cfg!(Py_3_14) {
        [26, 27, 32, 40, 51, 75, 78]
    } else {
        [23, 24, 29, 35, 45, 65, 68]
    };
    let text_ascii = at(text + 2)?;
    Some(Layout {
        state_frame: at(frame)?,
        state_thread: at(thread)?,
        place_frame: None,
        frame_code: at(interpreter_frame + 1)?,
        frame_previous: at(interpreter_frame)?,
        frame_instruction: at(interpreter_frame + 2)?,
        instruction_is_index: false,
        thread_instructions: if cfg!(all(Py_GIL_DISABLED, Py_3_14)) {
            Some((at(interpreter_frame + 6)?, at(code + 9)?))
        } else {
            None
        },
        // FRAME_OWNED_BY_CSTACK in 3.13, FRAME_OWNED_BY_INTERPRETER later.
        frame_owner: Some((at(interpreter_frame + 4)?, 3)),
        code_name: at(code + 2)?,
        code_file: at(code)?,
        code_lines: at(code + 3)?,
        code_first_line: at(code + 4)?,
        code_instructions: at(code + 8)?,
        // `co_version` lies before `co_localsplusnames`.
        code_version: Some(at(code + 6)?.checked_sub(size_of::<u32>())?),
        object_type: at(object)?,
        code_type: (&raw mut PyCode_Type) as usize,
        text_length: at(text + 1)?,
        text_state: at(text)?,
        text_kind_shift: 0,
        text_ascii,
        // `utf8_length` and `utf8` come in between.
        text_other: text_ascii + 2 * size_of::<usize>(),
        bytes_length: at(bytes)?,
        bytes_data: at(bytes + 1)?,
        lines: LineFormat::Locations,
    })
}

/// At which bit of its state a text has the number of bytes of a character.
fn text_kind_shift(_: Attached) -> Option<u32> {
    let state_at = base()?.text_state;
    // SAFETY: a thread state is attached; each new text is read while it is owned.
    let state_of = |text: &[u8]| unsafe {
        let object =
            PyUnicode_FromStringAndSize(text.as_ptr().cast::<c_char>(), text.len() as Py_ssize_t);
        if object.is_null() {
            PyErr_Clear();
            return None;
        }
        let state = object.cast::<u8>().add(state_at).cast::<u32>().read();
        Py_DecRef(object);
        Some(state)
    };
    let states = [
        (state_of(b"headway")?, 1, 3),
        (state_of("\u{e9}\u{e8}".as_bytes())?, 1, 1),
        (state_of("\u{20ac}\u{20ac}".as_bytes())?, 2, 1),
        (state_of("\u{1f600}\u{1f600}".as_bytes())?, 4, 1),
    ];
    // The kind has three bits, then come `compact` and `ascii`.
    let fits = |shift: u32| {
        states.iter().all(|(state, kind, flags)| {
            state >> shift & 7 == *kind && state >> (shift + 3) & 3 == *flags
        })
    };
    (0..24).find(|shift| fits(*shift))
}

/// Whether `calls`, the innermost first, are those that CPython reports for the calling thread.
pub fn matches(_: Attached, calls: &[Frame]) -> bool {
    // SAFETY: a thread state is attached. `PyEval_GetFrame` returns a borrowed frame, and
    // `PyFrame_GetBack` and `PyFrame_GetCode` own ones, which are released.
    unsafe {
        let mut frame = PyEval_GetFrame();
        if !frame.is_null() {
            Py_IncRef(frame.cast());
        }
        let mut all_match = true;
        for call in calls {
            if frame.is_null() {
                return false;
            }
            let line = PyFrame_GetLineNumber(frame);
            let code = PyFrame_GetCode(frame).cast::<PyObject>();
            let name = if cfg!(Py_3_11) { c"co_qualname" } else { c"co_name" };
            all_match &= has_text(code, name.as_ptr(), &call.function)
                && has_text(code, c"co_filename".as_ptr(), &call.file)
                && line == call.line as c_int;
            Py_DecRef(code);
            let back = PyFrame_GetBack(frame);
            Py_DecRef(frame.cast());
            frame = back;
        }
        let is_last = frame.is_null() || calls.len() >= headway_gil::STACK_DEPTH;
        if !frame.is_null() {
            Py_DecRef(frame.cast());
        }
        all_match && is_last && !calls.is_empty()
    }
}

/// Whether an attribute is this text, as far as the text was kept.
///
/// # Safety
/// A thread state is attached, `object` is alive, and `name` is a C string.
unsafe fn has_text(object: *mut PyObject, name: *const c_char, expected: &str) -> bool {
    // SAFETY: as the caller promises; the attribute is owned while its text is read.
    unsafe {
        let value = PyObject_GetAttrString(object, name);
        if value.is_null() {
            PyErr_Clear();
            return false;
        }
        let mut length = 0;
        let text = PyUnicode_AsUTF8AndSize(value, &mut length);
        let is_same = if text.is_null() {
            // A text that UTF-8 cannot have, as of a file whose name is not UTF-8.
            PyErr_Clear();
            true
        } else {
            let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length as usize);
            bytes.starts_with(expected.as_bytes()) || bytes.ends_with(expected.as_bytes())
        };
        Py_DecRef(value);
        is_same
    }
}
