//! `wsgi.input`: read, readline, readlines and iteration (PEP 3333, "Input and Error Streams"). It
//! ends where the body ends, whatever its framing (`wsgi.input_terminated`).

use crate::request::{Broken, RequestContext};
use crate::wsgi::detach::detach;
use crate::wsgi::handle::{Borrowed, Lent, borrow};
use headway_python::attached::Attached;
use headway_python::c_api::{
    Py_TPFLAGS_DISALLOW_INSTANTIATION, Py_tp_iter, Py_tp_iternext, Py_tp_methods,
};
use headway_python::class;
use headway_python::convert::size;
use headway_python::exception::Exception;
use headway_python::function::{END, Methods, method, unary};
use headway_python::object::{Object, PyResult, Raised};

/// The most bytes for which a `read` allocates memory before they have arrived.
const MAX_PLACED_BYTES: usize = 1 << 20;
/// A `read` of this size receives into its result. Smaller ones share what the connection receives
/// with one system call.
const MIN_DIRECT_BYTES: usize = 1 << 16;

static METHODS: Methods<4> = Methods::new([
    method(c"read", read, c"read(size=-1): up to size bytes, or all; waits for them."),
    method(
        c"readline",
        readline,
        c"readline(size=-1): a line with its end, or its first size bytes.",
    ),
    method(
        c"readlines",
        readlines,
        c"readlines(hint=-1): lines until hint bytes are reached, or all.",
    ),
    END,
]);

/// Makes the type of handles, for one interpreter.
pub fn make_type(py: Attached<'_>) -> PyResult<Object<'_>> {
    // SAFETY: the slots take a table of methods and functions of one object. Zero bytes are a null
    // pointer, which needs no drop.
    unsafe {
        class::make::<Lent>(
            py,
            c"headway.server.Input",
            c"The body of a request.",
            Py_TPFLAGS_DISALLOW_INSTANTIATION,
            &[
                (Py_tp_methods, METHODS.as_ptr().cast()),
                (Py_tp_iter, unary(iterate)),
                (Py_tp_iternext, unary(next_line)),
            ],
        )
    }
}

/// Borrows the request of a method's self.
fn request<'a>(this: &'a Object) -> PyResult<Borrowed<'a>> {
    // SAFETY: CPython calls the functions of this file with instances of the type above: they are
    // its methods and slots.
    unsafe { borrow(this) }
}

fn read<'py>(this: &Object<'py>, arguments: &[Object<'py>]) -> PyResult<Object<'py>> {
    let py = this.py();
    let limit = size_argument(py, arguments, "read")?.unwrap_or(usize::MAX);
    let mut borrowed = request(this)?;
    let context = &mut *borrowed.get().context;
    let left = context.body_left().and_then(|left| usize::try_from(left).ok());
    if let Some(size @ ..=MAX_PLACED_BYTES) = left.map(|left| left.min(limit)) {
        if size > context.body().len() {
            return read_into_place(py, context, size);
        }
    }
    while context.body().len() < limit {
        if !receive_more(py, context)? {
            break;
        }
    }
    take(py, context, limit)
}

/// Reads the next `size` bytes of a body that has as many, each with one copy at most.
fn read_into_place<'py>(
    py: Attached<'py>,
    context: &mut RequestContext,
    size: usize,
) -> PyResult<Object<'py>> {
    context.note_read();
    Object::new_bytes(py, size, |buffer| {
        let mut filled = 0;
        let result = fill(py, context, buffer, &mut filled);
        if result.is_err() {
            // For an application that goes on in spite of the error.
            context.restore_body(&buffer[..filled]);
        }
        result
    })
}

/// Fills `buffer` with bytes of the body: those that were received already, and those that come,
/// which it waits for without the GIL.
fn fill(
    py: Attached,
    context: &mut RequestContext,
    buffer: &mut [u8],
    filled: &mut usize,
) -> PyResult<()> {
    let is_large = buffer.len() >= MIN_DIRECT_BYTES;
    while *filled < buffer.len() {
        let rest = &mut buffer[*filled..];
        match context.read_body(rest) {
            Ok(0) if context.is_body_complete() => {
                return Err(Exception::OSError.raise(py, "the body ended early"));
            }
            Ok(0) => {
                let direct = if is_large { rest } else { &mut [] };
                let receive = |context: &mut RequestContext| context.receive_body(direct);
                let (count, result) = detach(py, context, receive);
                *filled += count;
                result.map_err(|broken| raise(py, context, broken))?;
            }
            Ok(count) => *filled += count,
            Err(broken) => return Err(raise(py, context, broken)),
        }
    }
    Ok(())
}

fn readline<'py>(this: &Object<'py>, arguments: &[Object<'py>]) -> PyResult<Object<'py>> {
    let limit = size_argument(this.py(), arguments, "readline")?;
    read_line(this, limit.unwrap_or(usize::MAX))
}

fn readlines<'py>(this: &Object<'py>, arguments: &[Object<'py>]) -> PyResult<Object<'py>> {
    let hint = size_argument(this.py(), arguments, "readlines")?;
    // A hint of 0 means no limit, as for files.
    let enough = hint.filter(|hint| *hint > 0).unwrap_or(usize::MAX);
    let lines = Object::new_list(this.py())?;
    let mut total = 0;
    while total < enough {
        let Some(line) = next_line(this)? else { break };
        total += line.as_bytes().map_or(0, <[u8]>::len);
        lines.append(&line)?;
    }
    Ok(lines)
}

/// `__iter__`
fn iterate<'py>(this: &Object<'py>) -> PyResult<Option<Object<'py>>> {
    Ok(Some(this.clone()))
}

/// `__next__`: a line, or `None` at the end.
fn next_line<'py>(this: &Object<'py>) -> PyResult<Option<Object<'py>>> {
    let line = read_line(this, usize::MAX)?;
    Ok(Some(line).filter(|line| line.as_bytes() != Some(b"")))
}

fn read_line<'py>(this: &Object<'py>, limit: usize) -> PyResult<Object<'py>> {
    let py = this.py();
    let mut borrowed = request(this)?;
    let context = &mut *borrowed.get().context;
    let mut searched = 0;
    loop {
        let body = context.body();
        if let Some(at) = memchr::memchr(b'\n', &body[searched..]) {
            let length = searched + at + 1;
            return take(py, context, length.min(limit));
        }
        searched = body.len();
        if searched >= limit || !receive_more(py, context)? {
            return take(py, context, limit);
        }
    }
}

/// Takes up to `limit` bytes of what has arrived.
fn take<'py>(
    py: Attached<'py>,
    context: &mut RequestContext,
    limit: usize,
) -> PyResult<Object<'py>> {
    let length = context.body().len().min(limit);
    let bytes = Object::from_bytes(py, &context.body()[..length])?;
    context.consume_body(length);
    context.note_read();
    Ok(bytes)
}

/// Adds more of the body to what has arrived: bytes that were received already, else by waiting
/// without the GIL. False at the end of the body.
fn receive_more(py: Attached, context: &mut RequestContext) -> PyResult<bool> {
    loop {
        let result = match context.decode_body() {
            Ok(true) => return Ok(true),
            Ok(false) if context.is_body_complete() => return Ok(false),
            Ok(false) => detach(py, context, |context| context.receive_body(&mut []).1),
            Err(broken) => Err(broken),
        };
        if let Err(broken) = result {
            return Err(raise(py, context, broken));
        }
    }
}

/// Raises the exception for an error of the client, which is an OSError.
fn raise(py: Attached, context: &RequestContext, broken: Broken) -> Raised {
    match broken {
        Broken::PeerGone => Exception::ConnectionResetError
            .raise(py, "the client closed the connection before its request was complete"),
        Broken::TimedOut => {
            Exception::TimeoutError.raise(py, "the client did not send its request in time")
        }
        Broken::Interrupted => Exception::TimeoutError
            .raise(py, "the client did not send its request within request-timeout"),
        Broken::CutOff => Exception::ConnectionResetError
            .raise(py, "the server ended before the client had sent its request"),
        Broken::Malformed(rejection) => {
            Exception::OSError.raise(py, &rejection.explanation(context.limits()))
        }
    }
}

/// The one optional argument: None and negative numbers mean no limit.
fn size_argument(py: Attached, arguments: &[Object], name: &str) -> PyResult<Option<usize>> {
    match arguments {
        [] => Ok(None),
        [argument] => size(argument, name),
        _ => {
            let count = arguments.len();
            let message = format!("{name}() takes at most 1 argument ({count} given)");
            Err(Exception::TypeError.raise(py, &message))
        }
    }
}
