//! Calls the application and delivers what it returns (PEP 3333, "Specification Details").
//!
//! The GIL is held throughout, except around sends that may have to wait and while a large block is
//! copied and sent. A list or tuple is collected and sent later, without the GIL, and so is a file
//! in a `wsgi.file_wrapper`. Any other iterable is streamed: each block is handed to the kernel
//! before the next one is requested.

use crate::http::{Rejection, Response};
use crate::request::{Broken, RequestContext};
use crate::wsgi::block::{bytes_of_block, is_large, make_room};
use crate::wsgi::detach::detach;
use crate::wsgi::file_wrapper::FileWrappers;
use crate::wsgi::handle::Handle;
use crate::wsgi::start_response::make_start_response;
use headway_python::attached::Attached;
use headway_python::exception::{Exception, clear_raised, take_raised};
use headway_python::object::{Object, PyResult, Raised};

/// Why a response ends early.
enum Failure {
    /// A Python exception is set.
    Raised,
    /// The client closed the connection, or the server ends: nobody gets the rest.
    CutOff,
}

impl From<Raised> for Failure {
    fn from(Raised: Raised) -> Self {
        Self::Raised
    }
}

/// Runs one request to its end. Returns the exceptions that the application raised: one from its
/// call or its iterable, and one from `close`. `look_up` sees the iterable before it is closed.
pub fn run<'py>(
    application: &Object<'py>,
    files: &FileWrappers,
    handle: &Handle<'py>,
    environ: PyResult<Object<'py>>,
    look_up: impl FnOnce(Option<&Object<'py>>),
) -> [Option<Object<'py>>; 2] {
    let py = application.py();
    let result = environ.and_then(|environ| {
        let start_response = make_start_response(handle)?;
        application.call([&environ, &start_response])
    });
    let outcome = match &result {
        Ok(iterable) => deliver(iterable, files, handle),
        Err(Raised) => Err(Failure::Raised),
    };
    let raised = match outcome {
        Ok(()) => finish(py, handle, true),
        Err(Failure::CutOff) => finish(py, handle, false),
        Err(Failure::Raised) => fail(py, handle),
    };
    look_up(result.as_ref().ok());
    let raised_in_close = match result {
        Ok(iterable) => close(&iterable).err().and_then(|Raised| take_raised(py)),
        Err(Raised) => None,
    };
    [raised, raised_in_close]
}

fn deliver(iterable: &Object, files: &FileWrappers, handle: &Handle) -> Result<(), Failure> {
    if iterable.is_exact_list() || iterable.is_exact_tuple() {
        collect(iterable, handle)
    } else if files.is_wrapper(iterable) {
        send_file(iterable, files, handle)
    } else {
        stream(iterable, handle, Excess::Noted)
    }
}

/// Sends a list or a tuple, whose length is known. A list is copied first: once another thread can
/// run, the list may change.
fn collect(sequence: &Object, handle: &Handle) -> Result<(), Failure> {
    let py = sequence.py();
    let items = sequence.to_tuple()?;
    let items = items.as_tuple().unwrap_or_default();
    let blocks = items.iter().map(bytes_of_block).collect::<PyResult<Vec<_>>>()?;
    let total = blocks.iter().map(|block| block.len()).sum();
    make_room(py, handle.borrow()?.get().context, total)?;
    begin(py, handle, Some(total as u64))?;
    let mut borrowed = handle.borrow()?;
    let context = &mut *borrowed.get().context;
    if is_large(total) {
        detach(py, context, |context| {
            blocks.iter().all(|block| frame_large(context, block, Excess::Noted))
        });
    } else {
        blocks.iter().all(|block| frame(context, block, Excess::Noted));
    }
    Ok(())
}

/// Sends the rest of a file without reading it, if the kernel can, or else block by block. A
/// shorter Content-Length requests a part of it.
fn send_file(wrapper: &Object, files: &FileWrappers, handle: &Handle) -> Result<(), Failure> {
    if let Some(file) = files.open_file(wrapper) {
        begin(wrapper.py(), handle, Some(file.left()))?;
        let mut borrowed = handle.borrow()?;
        let context = &mut *borrowed.get().context;
        // Not if `write` has begun a body of unknown length.
        if context.can_send_file() {
            context.send_file(file);
            return Ok(());
        }
    }
    stream(wrapper, handle, Excess::Ignored)
}

/// The meaning of a body that is longer than its Content-Length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    /// An error of the application.
    Noted,
    /// A part of a file was requested.
    Ignored,
}

fn stream(iterable: &Object, handle: &Handle, excess: Excess) -> Result<(), Failure> {
    let py = iterable.py();
    let iterator = iterable.iterate()?;
    let mut begun = false;
    while let Some(item) = iterator.next_item()? {
        let block = bytes_of_block(&item)?;
        if block.is_empty() {
            // The head waits for the first block with content: an error handler may replace it.
            continue;
        }
        make_room(py, handle.borrow()?.get().context, block.len())?;
        if !begun {
            // PEP 3333, "Handling the Content-Length Header": `len(iterable) == 1` fixes the
            // length.
            let only = (iterable.find_length() == Some(1)).then_some(block.len() as u64);
            begin(py, handle, only)?;
            begun = true;
        }
        if !transmit_block(py, handle, block, excess)? {
            return Ok(());
        }
    }
    if !begun {
        begin(py, handle, Some(0))?;
    }
    Ok(())
}

/// Frames the head, unless `write` has done so.
fn begin(py: Attached, handle: &Handle, body_bytes: Option<u64>) -> PyResult<()> {
    let mut borrowed = handle.borrow()?;
    let request = borrowed.get();
    if !request.started {
        return Err(
            Exception::AssertionError.raise(py, "the application did not call start_response()")
        );
    }
    if !request.context.is_head_sent() {
        // The length of an empty body is not that of the body that HEAD asks about.
        let known = body_bytes.filter(|bytes| *bytes > 0 || !request.context.is_head_request());
        request.context.send_head(request.response, known);
    }
    Ok(())
}

/// Frames a block, and hands what is framed to the kernel before the next block is requested. False
/// if no block may follow.
fn transmit_block(
    py: Attached,
    handle: &Handle,
    block: &[u8],
    excess: Excess,
) -> Result<bool, Failure> {
    let mut borrowed = handle.borrow()?;
    let context = &mut *borrowed.get().context;
    let sent = if is_large(block.len()) {
        detach(py, context, |context| {
            if !frame_large(context, block, excess) {
                return Ok(false);
            }
            match context.is_response_full() {
                true => context.transmit_last(),
                false => context.transmit()?,
            }
            Ok(true)
        })
    } else if !frame(context, block, excess) {
        Ok(false)
    } else if context.is_response_full() {
        // The last block, by its Content-Length: typically the only one of a framework's iterable.
        // Nothing waits here, so the GIL is kept: the request takes it once.
        context.transmit_last();
        Ok(true)
    } else {
        detach(py, context, |context| context.transmit()).map(|()| true)
    };
    sent.map_err(|_: Broken| Failure::CutOff)
}

/// False when the response is full and the rest is dropped: after HEAD, after 204 and 304, and
/// after Content-Length bytes.
fn frame(context: &mut RequestContext, block: &[u8], excess: Excess) -> bool {
    let taken = context.send_data(block);
    may_follow(context, block, taken, excess)
}

/// As `frame`, and sends what the socket accepts. Called without the GIL.
fn frame_large(context: &mut RequestContext, block: &[u8], excess: Excess) -> bool {
    let taken = context.send_large_data(block);
    may_follow(context, block, taken, excess)
}

fn may_follow(context: &mut RequestContext, block: &[u8], taken: usize, excess: Excess) -> bool {
    if context.is_bodiless() {
        return false;
    }
    if taken < block.len() && excess == Excess::Noted {
        context.note_excess();
    }
    taken == block.len()
}

/// Ends the response. A streamed body goes out before the iterable's `close` is called.
fn finish<'py>(py: Attached<'py>, handle: &Handle, complete: bool) -> Option<Object<'py>> {
    let raised = match handle.borrow() {
        Ok(mut borrowed) => {
            let context = &mut *borrowed.get().context;
            // A file is sent later, without the GIL.
            let streamed = context.has_transmitted() && !context.has_file();
            context.finish(complete);
            if streamed {
                context.transmit_without_waiting();
            }
            None
        }
        // Another thread of the application still uses the request. It stays unfinished, which
        // closes the connection.
        Err(Raised) => take_raised(py),
    };
    // From here on the connection belongs to the next request.
    handle.end();
    raised
}

/// Ends the response of an application that raised: with 500 if nothing was sent, else visibly
/// incomplete. If the client caused the error, the client gets the reason, and it is not reported.
fn fail<'py>(py: Attached<'py>, handle: &Handle) -> Option<Object<'py>> {
    // Set aside while the request is borrowed.
    let raised = take_raised(py);
    let Ok(mut borrowed) = handle.borrow() else {
        clear_raised(py);
        handle.end();
        return raised;
    };
    let request = borrowed.get();
    let context = &mut *request.context;
    let broken = context.broken();
    match broken {
        _ if context.is_head_sent() => context.finish(false),
        Some(Broken::Malformed(rejection)) => context.refuse(rejection),
        Some(Broken::TimedOut) => context.refuse(Rejection::RequestTimeout),
        Some(Broken::PeerGone | Broken::CutOff) => context.finish(false),
        Some(Broken::Interrupted) => context.refuse(Rejection::RequestTooLong),
        None if context.worker_status().is_interrupted() => {
            context.refuse(Rejection::RequestTooLong);
        }
        None => answer_500(context, request.response),
    }
    drop(borrowed);
    handle.end();
    raised.filter(|_| broken.is_none())
}

fn answer_500(context: &mut RequestContext, response: &mut Response) {
    const BODY: &[u8] = b"Internal Server Error\n";
    response.begin(b"500 Internal Server Error").expect("a constant that is valid");
    response
        .push_field(b"Content-Type", b"text/plain; charset=utf-8")
        .expect("a constant that is valid");
    context.send_head(response, Some(BODY.len() as u64));
    context.send_data(BODY);
    context.finish(true);
}

/// Calls `close()` if there is one, in any case and last (PEP 3333).
fn close(iterable: &Object) -> PyResult<()> {
    // Lists and tuples have no `close`, and need not be searched for it.
    if iterable.is_exact_list() || iterable.is_exact_tuple() {
        return Ok(());
    }
    match iterable.attribute(c"close") {
        Ok(close) => close.call([]).map(drop),
        Err(Raised) if Exception::AttributeError.is_raised(iterable.py()) => {
            clear_raised(iterable.py());
            Ok(())
        }
        Err(Raised) => Err(Raised),
    }
}
