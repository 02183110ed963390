//! `start_response` and `write` (PEP 3333, "The start_response() Callable").

use crate::http::response::InvalidResponse;
use crate::wsgi::block::{bytes_of_block, make_room};
use crate::wsgi::detach::detach;
use crate::wsgi::handle::{Borrowed, Handle, InFlight, borrow};
use headway_python::attached::Attached;
use headway_python::convert::with_latin1;
use headway_python::exception::{Exception, raise_exc_info};
use headway_python::function::{END, Methods, method, method_of_one};
use headway_python::object::{Object, PyResult, Raised};

static START_RESPONSE: Methods<2> = Methods::new([
    method(
        c"start_response",
        start_response,
        c"start_response(status, response_headers, exc_info=None): see PEP 3333.",
    ),
    END,
]);

static WRITE: Methods<2> = Methods::new([
    method_of_one(
        c"write",
        write,
        c"write(body_data): sends a block of the body at once; see PEP 3333.",
    ),
    END,
]);

pub fn make_start_response<'py>(handle: &Handle<'py>) -> PyResult<Object<'py>> {
    START_RESPONSE.bind(handle.object())
}

/// Borrows the request of the self of `start_response` or `write`.
fn request<'a>(this: &'a Object) -> PyResult<Borrowed<'a>> {
    // SAFETY: the self is a handle's object: `make_start_response` binds one, and `start_response`
    // passes its own on to `write`.
    unsafe { borrow(this) }
}

fn start_response<'py>(this: &Object<'py>, arguments: &[Object<'py>]) -> PyResult<Object<'py>> {
    let py = this.py();
    let (status, headers, exc_info) = match arguments {
        [status, headers] => (status, headers, None),
        [status, headers, none] if none.is_none() => (status, headers, None),
        [status, headers, exc_info] => (status, headers, Some(exc_info)),
        _ => {
            let message =
                format!("start_response() takes 2 or 3 arguments ({} given)", arguments.len());
            return Err(Exception::TypeError.raise(py, &message));
        }
    };
    let mut borrowed = request(this)?;
    let request = borrowed.get();
    match exc_info {
        // The head is sent, so that nothing can be replaced.
        Some(exc_info) if request.context.is_head_sent() => return Err(raise_exc_info(exc_info)),
        Some(_) => {}
        None if request.started => {
            return Err(Exception::AssertionError.raise(
                py,
                "start_response() was called before; only an error handler may call it again, \
                 with exc_info",
            ));
        }
        None => {}
    }
    request.started = false;
    take_status(request, status)?;
    take_headers(request, headers)?;
    request.started = true;
    if let Some(probe) = request.probe {
        probe.note_start(py);
    }
    WRITE.bind(this)
}

fn take_status(request: &mut InFlight, status: &Object) -> PyResult<()> {
    with_latin1(status, "the status", |bytes| {
        request.response.begin(bytes).map_err(|invalid| refuse(status.py(), invalid, bytes))
    })
}

fn take_headers(request: &mut InFlight, headers: &Object) -> PyResult<()> {
    let py = headers.py();
    if !headers.is_list() {
        let found = headers.type_name();
        let message = format!("the response headers must be a list, not {found}");
        return Err(Exception::TypeError.raise(py, &message));
    }
    for index in 0..headers.list_length()? {
        // An owned reference: another thread may change the list. Tuples do not change.
        let pair = headers.list_item(index)?;
        let Some([name, value]) = pair.as_tuple() else {
            let found = pair.type_name();
            let message =
                format!("response header {index} must be a (name, value) tuple, not {found}");
            return Err(Exception::TypeError.raise(py, &message));
        };
        with_latin1(name, "a header name", |name| {
            with_latin1(value, "a header value", |value| {
                request
                    .response
                    .push_field(name, value)
                    .map_err(|invalid| refuse(py, invalid, &[name, b": ", value].concat()))
            })
        })?;
    }
    Ok(())
}

fn refuse(py: Attached, invalid: InvalidResponse, found: &[u8]) -> Raised {
    let found = String::from_utf8_lossy(found);
    Exception::ValueError.raise(py, &format!("{found:?}: {}", invalid.expected()))
}

fn write<'py>(this: &Object<'py>, block: &Object<'py>) -> PyResult<Object<'py>> {
    let py = this.py();
    let mut borrowed = request(this)?;
    let InFlight { context, response, .. } = borrowed.get();
    let bytes = bytes_of_block(block)?;
    // The first call sends the head, whatever its block; only an iterable's head waits for content.
    let is_first = !context.is_head_sent();
    if bytes.is_empty() && !is_first {
        return Ok(Object::none(py));
    }
    make_room(py, context, bytes.len())?;
    if is_first {
        context.send_head(response, None);
    }
    let (taken, transmitted) =
        detach(py, context, |context| (context.send_data(bytes), context.transmit()));
    if transmitted.is_err() {
        return Err(Exception::ConnectionResetError.raise(py, "the client is gone"));
    }
    if taken < bytes.len() && !context.is_bodiless() {
        return Err(Exception::ValueError.raise(py, "write() past the Content-Length"));
    }
    Ok(Object::none(py))
}
