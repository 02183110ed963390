//! `_native.telemetry_arrived()`: takes datagrams off a socket without the GIL, and hands them over some milliseconds' worth at
//! a time.
//!
//! The queue of a UNIX datagram socket may be as short as ten (`net.unix.max_dgram_qlen`), and who finds it full goes
//! without. So it has to be emptied at once, also while Python merges and compresses; and entering Python for each datagram
//! would cost more than what is done with it there.
//!
//! Called with a thread state attached, by the recorder's receiving thread alone.

use headway_server::wsgi::object::{Object, PyResult, Raised, without_gil};
use libc::{
    CMSG_DATA, CMSG_FIRSTHDR, CMSG_NXTHDR, MSG_DONTWAIT, MSG_TRUNC, POLLIN, SCM_CREDENTIALS,
    SOL_SOCKET, c_int, iovec, msghdr, pollfd, recvmsg, ucred,
};
use pyo3_ffi::*;
use std::io::{Error, ErrorKind};
use std::mem::size_of;
use std::ptr;
use std::time::{Duration, Instant};

const MAX_DATAGRAM_BYTES: usize = 65_536;
/// Beyond so much the caller is asked to work on what there is.
const MAX_DATAGRAMS: usize = 2_000;
const MAX_BYTES: usize = 16 * 1024 * 1024;

struct Arrived {
    /// In `Batch::bytes`.
    end: usize,
    /// Whom the kernel names as the sender.
    pid: Option<i32>,
    is_cut: bool,
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    datagrams: Vec<Arrived>,
}

pub unsafe extern "C" fn arrived(_: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let (mut socket, mut wake, mut patience_ns): (c_int, c_int, i64) = (-1, -1, 0);
    // SAFETY: each place has the type that the format says.
    let parsed = unsafe {
        PyArg_ParseTuple(
            arguments,
            c"iiL".as_ptr(),
            &raw mut socket,
            &raw mut wake,
            &raw mut patience_ns,
        )
    };
    if parsed == 0 {
        return ptr::null_mut();
    }
    let patience = Duration::from_nanos(patience_ns.max(0) as u64);
    let taken = without_gil(|| take(socket, wake, patience));
    let answer = match taken {
        Ok((batch, is_woken)) => objects(&batch, is_woken),
        Err(error) => {
            // SAFETY: a thread state is attached again; errno is what the error was made of.
            unsafe {
                *libc::__errno_location() = error.raw_os_error().unwrap_or(0);
                PyErr_SetFromErrno(PyExc_OSError);
            }
            Err(Raised)
        }
    };
    answer.map_or(ptr::null_mut(), Object::into_ptr)
}

/// Waits for a first datagram, and takes all that come within the patience; whether `wake` has something to read,
/// which ends the wait. What has come by then is taken even so.
fn take(socket: c_int, wake: c_int, patience: Duration) -> Result<(Batch, bool), Error> {
    let mut batch = Batch::default();
    let mut scratch = vec![0_u8; MAX_DATAGRAM_BYTES];
    let mut end = None;
    loop {
        let left: Option<Duration> =
            end.map(|end: Instant| end.saturating_duration_since(Instant::now()));
        let is_woken = wait(socket, wake, left)?;
        let has_room = batch.receive_all(socket, &mut scratch)?;
        if end.is_none() && !batch.datagrams.is_empty() {
            end = Some(Instant::now() + patience);
        }
        if is_woken || !has_room || end.is_some_and(|end| Instant::now() >= end) {
            return Ok((batch, is_woken));
        }
    }
}

/// Until there is something to read, or for so long. Whether there is on `wake`.
fn wait(socket: c_int, wake: c_int, left: Option<Duration>) -> Result<bool, Error> {
    let of = |fd| pollfd { fd, events: POLLIN, revents: 0 };
    let mut fds = [of(socket), of(wake)];
    // Rounded up, or the last millisecond would be spun through.
    let timeout_ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000) as c_int);
    // SAFETY: as many entries as it says.
    if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) } < 0 {
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok(false);
    }
    Ok(fds[1].revents != 0)
}

impl Batch {
    /// All that is there now; whether there is room for more.
    fn receive_all(&mut self, socket: c_int, scratch: &mut [u8]) -> Result<bool, Error> {
        while self.datagrams.len() < MAX_DATAGRAMS && self.bytes.len() < MAX_BYTES {
            match receive(socket, scratch) {
                Ok((length, pid, is_cut)) => {
                    self.bytes.extend_from_slice(&scratch[..length]);
                    self.datagrams.push(Arrived { end: self.bytes.len(), pid, is_cut });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// One datagram: its length, who sent it, and whether it was longer than the buffer.
fn receive(socket: c_int, buffer: &mut [u8]) -> Result<(usize, Option<i32>, bool), Error> {
    // As aligned as a cmsghdr wants to be, with room for one ucred.
    let mut control = [0_u64; 8];
    let mut part = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zero is a msghdr without a name; its pointers and lengths are set to memory that lives longer.
    unsafe {
        let mut message: msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; 8]>() as _;
        let length = recvmsg(socket, &raw mut message, MSG_DONTWAIT);
        if length < 0 {
            return Err(Error::last_os_error());
        }
        let is_cut = message.msg_flags & MSG_TRUNC != 0;
        Ok((length as usize, sender(&message), is_cut))
    }
}

/// SAFETY: `message` is as recvmsg left it, and so is the memory that it points to.
unsafe fn sender(message: &msghdr) -> Option<i32> {
    // SAFETY: the kernel has written whole entries, and says how far.
    unsafe {
        let mut entry = CMSG_FIRSTHDR(message);
        while !entry.is_null() {
            if (*entry).cmsg_level == SOL_SOCKET && (*entry).cmsg_type == SCM_CREDENTIALS {
                return Some(ptr::read_unaligned(CMSG_DATA(entry).cast::<ucred>()).pid);
            }
            entry = CMSG_NXTHDR(message, entry);
        }
    }
    None
}

fn objects(batch: &Batch, is_woken: bool) -> PyResult<Object> {
    // SAFETY: a thread state is attached; formats and arguments agree; `N` takes over the references.
    unsafe {
        let list = Object::from_new(PyList_New(0))?;
        let mut start = 0;
        for datagram in &batch.datagrams {
            let bytes = Object::from_bytes(&batch.bytes[start..datagram.end])?;
            start = datagram.end;
            let pid = match datagram.pid {
                Some(pid) => Object::from_new(PyLong_FromLong(pid.into()))?,
                None => Object::from_borrowed(Py_None()),
            };
            let row = Object::from_new(Py_BuildValue(
                c"(NNN)".as_ptr(),
                bytes.into_ptr(),
                pid.into_ptr(),
                PyBool_FromLong(datagram.is_cut.into()),
            ))?;
            if PyList_Append(list.as_ptr(), row.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        Object::from_new(Py_BuildValue(
            c"(NN)".as_ptr(),
            list.into_ptr(),
            PyBool_FromLong(is_woken.into()),
        ))
    }
}
