//! Calls the application and delivers what it returns (PEP 3333, "Specification Details").
//!
//! The GIL is held throughout, except around sends that may have to wait and while a large block is
//! copied and sent. A list or tuple is collected and sent later, without the GIL, and so is a file in
//! a `wsgi.file_wrapper`. Any other iterable is streamed: each block is handed to the kernel before
//! the next one is asked for.

use crate::http::{Rejection, Response};
use crate::request::{Broken, Exchange};
use crate::wsgi::file_wrapper::FileWrappers;
use crate::wsgi::handle::Handle;
use crate::wsgi::start_response::{check_block, make_start_response};
use headway_python::object::{Object, PyResult, Raised, raise, take_raised, without_gil};
use pyo3_ffi::*;
use std::ptr;

/// Why a response ends early.
enum Failure {
    /// A Python exception is set.
    Raised,
    /// The client is gone; nobody is interested in the rest.
    ClientGone,
}

impl From<Raised> for Failure {
    fn from(Raised: Raised) -> Self {
        Self::Raised
    }
}

/// Runs one request to its end. Returns what the application raised, first in its call or its
/// iterable, then in `close`. `look_up` looks at what it returned before that is closed.
pub fn run(
    application: &Object,
    files: &FileWrappers,
    handle: &Handle,
    environ: PyResult<Object>,
    look_up: impl FnOnce(Option<&Object>),
) -> [Option<Object>; 2] {
    let result = environ.and_then(|environ| call(application, handle, environ));
    let outcome = match &result {
        Ok(iterable) => deliver(iterable, files, handle),
        Err(Raised) => Err(Failure::Raised),
    };
    let raised = match outcome {
        Ok(()) => finish(handle, true),
        Err(Failure::ClientGone) => finish(handle, false),
        Err(Failure::Raised) => fail(handle),
    };
    look_up(result.as_ref().ok());
    let raised_in_close = match result {
        Ok(iterable) => close(&iterable).err().and_then(|Raised| take_raised()),
        Err(Raised) => None,
    };
    [raised, raised_in_close]
}

fn call(application: &Object, handle: &Handle, environ: Object) -> PyResult<Object> {
    let start_response = make_start_response(&handle.0)?;
    let arguments = [environ.as_ptr(), start_response.as_ptr()];
    // SAFETY: two live arguments, no keywords.
    unsafe {
        Object::from_new(PyObject_Vectorcall(
            application.as_ptr(),
            arguments.as_ptr(),
            arguments.len(),
            ptr::null_mut(),
        ))
    }
}

fn deliver(iterable: &Object, files: &FileWrappers, handle: &Handle) -> Result<(), Failure> {
    // SAFETY: a live object.
    let (is_list, is_tuple) = unsafe {
        (PyList_CheckExact(iterable.as_ptr()) != 0, PyTuple_CheckExact(iterable.as_ptr()) != 0)
    };
    if is_list || is_tuple {
        collect(iterable, handle)
    } else if files.is_wrapper(iterable) {
        send_file(iterable, files, handle)
    } else {
        stream(iterable, handle, Excess::Noted)
    }
}

/// A list or a tuple: its length is known. As it is now: once another thread can run, it may change.
fn collect(sequence: &Object, handle: &Handle) -> Result<(), Failure> {
    // SAFETY: a live list or tuple, of which a tuple is made at once.
    let items = unsafe { Object::from_new(PySequence_Tuple(sequence.as_ptr()))? };
    let blocks = blocks_of(&items)?;
    let total = blocks.iter().map(|block| block.len()).sum();
    // SAFETY: the handle's own type.
    make_room(unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr())? }.get().exchange, total)?;
    begin(handle, Some(total as u64))?;
    // SAFETY: the handle's own type.
    let mut borrowed = unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr())? };
    let exchange = &mut *borrowed.get().exchange;
    let mut frame_all = || blocks.iter().all(|block| frame(exchange, block, Excess::Noted));
    match is_large(total) {
        true => without_gil(frame_all),
        false => frame_all(),
    };
    Ok(())
}

/// The bytes of each item of a tuple, which live as long as it does.
fn blocks_of(items: &Object) -> PyResult<Vec<&[u8]>> {
    // SAFETY: a tuple, whose items are live and never others.
    let block = |index| unsafe { check_block(PyTuple_GetItem(items.as_ptr(), index)) };
    // SAFETY: a live tuple.
    let count = unsafe { PyTuple_Size(items.as_ptr()) };
    (0..count).map(block).collect()
}

/// A file: its rest is sent without being read, if it is one that can be. A Content-Length that is
/// shorter asks for a part of it.
fn send_file(wrapper: &Object, files: &FileWrappers, handle: &Handle) -> Result<(), Failure> {
    if let Some(file) = files.open_file(wrapper) {
        begin(handle, Some(file.left()))?;
        // SAFETY: the handle's own type.
        let mut borrowed = unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr())? };
        let exchange = &mut *borrowed.get().exchange;
        // Not if `write` has begun a body of unknown length.
        if exchange.can_send_file() {
            exchange.send_file(file);
            return Ok(());
        }
    }
    stream(wrapper, handle, Excess::Unwanted)
}

/// What it means that a body goes beyond its Content-Length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    /// An error of the application.
    Noted,
    /// A file has more than is asked for.
    Unwanted,
}

fn stream(iterable: &Object, handle: &Handle, excess: Excess) -> Result<(), Failure> {
    // SAFETY: a live object.
    let iterator = unsafe { Object::from_new(PyObject_GetIter(iterable.as_ptr()))? };
    let mut begun = false;
    loop {
        // SAFETY: a live iterator.
        let next = unsafe { PyIter_Next(iterator.as_ptr()) };
        // SAFETY: a new reference, or null with or without an exception.
        let Ok(item) = (unsafe { Object::from_new(next) }) else {
            // SAFETY: a thread state is attached.
            if unsafe { !PyErr_Occurred().is_null() } {
                return Err(Failure::Raised);
            }
            break;
        };
        // SAFETY: live, and it outlives the block.
        let block = unsafe { check_block(item.as_ptr()) }?;
        if block.is_empty() {
            // The head waits for the first block with content: an error handler may replace it.
            continue;
        }
        // SAFETY: the handle's own type.
        let mut borrowed = unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr())? };
        make_room(borrowed.get().exchange, block.len())?;
        drop(borrowed);
        if !begun {
            let only = has_length_one(iterable).then_some(block.len() as u64);
            begin(handle, only)?;
            begun = true;
        }
        if !transmit_block(handle, block, excess)? {
            return Ok(());
        }
    }
    if !begun {
        begin(handle, Some(0))?;
    }
    Ok(())
}

/// PEP 3333, "Handling the Content-Length Header": `len(iterable) == 1` fixes the length.
fn has_length_one(iterable: &Object) -> bool {
    // SAFETY: a live object has a type, whose slots say whether it has a length; most iterables
    // are generators and have none.
    unsafe {
        let class = Py_TYPE(iterable.as_ptr());
        if PyType_GetSlot(class, Py_sq_length).is_null()
            && PyType_GetSlot(class, Py_mp_length).is_null()
        {
            return false;
        }
        let length = PyObject_Size(iterable.as_ptr());
        if length < 0 {
            PyErr_Clear();
        }
        length == 1
    }
}

/// Frames the head, unless `write` has done so.
fn begin(handle: &Handle, body_bytes: Option<u64>) -> PyResult<()> {
    // SAFETY: the handle's own type.
    let mut borrowed = unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr())? };
    let request = borrowed.get();
    if !request.started {
        // SAFETY: an exception class of this interpreter.
        return Err(unsafe {
            raise(PyExc_AssertionError, "the application did not call start_response()")
        });
    }
    if !request.exchange.is_head_sent() {
        // An empty body says nothing about the length of what HEAD is asked about.
        let known = body_bytes.filter(|bytes| *bytes > 0 || !request.exchange.is_head_request());
        request.exchange.send_head(request.response, known);
    }
    Ok(())
}

/// Frames a block, and hands what is framed to the kernel before the next one is asked for. False if
/// none may follow.
fn transmit_block(handle: &Handle, block: &[u8], excess: Excess) -> Result<bool, Failure> {
    // SAFETY: the handle's own type.
    let mut borrowed = unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr())? };
    let exchange = &mut *borrowed.get().exchange;
    if is_large(block.len()) {
        let sent = without_gil(|| {
            if !frame(exchange, block, excess) {
                return Ok(false);
            }
            match exchange.is_response_full() {
                true => exchange.transmit_last(),
                false => exchange.transmit()?,
            }
            Ok(true)
        });
        return sent.map_err(|_: Broken| Failure::ClientGone);
    }
    if !frame(exchange, block, excess) {
        return Ok(false);
    }
    if exchange.is_response_full() {
        // The last block, by its Content-Length: typically the only one of a framework's
        // iterable. It can wait for nothing, so the GIL is kept: the request takes it once.
        exchange.transmit_last();
    } else {
        without_gil(|| exchange.transmit()).map_err(|_| Failure::ClientGone)?;
    }
    Ok(true)
}

/// Memory for the copy of a large body, or MemoryError: under a memory limit one response fails and
/// not the process. It comes before the head, so that the client can get a 500.
pub fn make_room(exchange: &mut Exchange, bytes: usize) -> PyResult<()> {
    if !is_large(bytes) || exchange.is_head_request() || exchange.make_room(bytes) {
        return Ok(());
    }
    // SAFETY: an exception class of this interpreter.
    Err(unsafe { raise(PyExc_MemoryError, "no memory for a block of the response") })
}

/// To copy and to send it takes longer than to get the GIL back.
fn is_large(bytes: usize) -> bool {
    const LARGE_BYTES: usize = 262_144;
    bytes > LARGE_BYTES
}

/// False when the response is full and the rest is not wanted: after HEAD, after 204 and 304, and
/// after Content-Length bytes. Nothing of Python is touched.
fn frame(exchange: &mut Exchange, block: &[u8], excess: Excess) -> bool {
    let taken = exchange.send_data(block);
    if exchange.is_bodiless() {
        return false;
    }
    if taken < block.len() && excess == Excess::Noted {
        exchange.note_excess();
    }
    taken == block.len()
}

/// Ends the response. What an iterable streamed goes out before its `close` is called.
fn finish(handle: &Handle, complete: bool) -> Option<Object> {
    // SAFETY: the handle's own type.
    let borrowed = unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr()) };
    let raised = match borrowed {
        Ok(mut borrowed) => {
            let exchange = &mut *borrowed.get().exchange;
            // A file goes without the GIL.
            let streamed = exchange.has_transmitted() && !exchange.has_file();
            exchange.finish(complete);
            if streamed {
                exchange.transmit_without_waiting();
            }
            None
        }
        // Another thread of the application still uses the request. It stays unfinished, which
        // closes the connection.
        Err(Raised) => take_raised(),
    };
    // From here on the connection belongs to the next request.
    handle.end();
    raised
}

/// The application raised: 500 if nothing was sent, else an end that is visibly no end. If the
/// cause is the client, the client is told, and nobody else is bothered.
fn fail(handle: &Handle) -> Option<Object> {
    // Set aside while the request is borrowed.
    let raised = take_raised();
    // SAFETY: the handle's own type.
    let Ok(mut borrowed) = (unsafe { crate::wsgi::handle::borrow(handle.0.as_ptr()) }) else {
        drop(take_raised());
        handle.end();
        return raised;
    };
    let request = borrowed.get();
    let exchange = &mut *request.exchange;
    let broken = exchange.broken();
    match broken {
        _ if exchange.is_head_sent() => exchange.finish(false),
        Some(Broken::Malformed(rejection)) => exchange.refuse(rejection),
        Some(Broken::TimedOut) => exchange.refuse(Rejection::RequestTimeout),
        Some(Broken::PeerGone) => exchange.finish(false),
        Some(Broken::Interrupted) => exchange.refuse(Rejection::RequestTooLong),
        None if exchange.activity().is_interrupted() => {
            exchange.refuse(Rejection::RequestTooLong);
        }
        None => answer_500(exchange, request.response),
    }
    drop(borrowed);
    handle.end();
    raised.filter(|_| broken.is_none())
}

fn answer_500(exchange: &mut Exchange, response: &mut Response) {
    const BODY: &[u8] = b"Internal Server Error\n";
    response.begin(b"500 Internal Server Error").expect("a constant that is valid");
    response
        .push_field(b"Content-Type", b"text/plain; charset=utf-8")
        .expect("a constant that is valid");
    exchange.send_head(response, Some(BODY.len() as u64));
    exchange.send_data(BODY);
    exchange.finish(true);
}

/// Calls `close()` if there is one, in any case and last (PEP 3333).
fn close(iterable: &Object) -> PyResult<()> {
    let pointer = iterable.as_ptr();
    // SAFETY: a live object. Lists and tuples have no `close`; they are spared the look-up.
    unsafe {
        if PyList_CheckExact(pointer) != 0 || PyTuple_CheckExact(pointer) != 0 {
            return Ok(());
        }
        match Object::from_new(PyObject_GetAttrString(pointer, c"close".as_ptr())) {
            Ok(method) => Object::from_new(PyObject_CallNoArgs(method.as_ptr())).map(drop),
            Err(Raised) if PyErr_ExceptionMatches(PyExc_AttributeError) != 0 => {
                PyErr_Clear();
                Ok(())
            }
            Err(Raised) => Err(Raised),
        }
    }
}
