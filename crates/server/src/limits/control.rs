//! The control socket: a worker process sends its supervisor one JSON datagram to request its
//! replacement.
//!
//! Sending never blocks and does not need the GIL, so any thread may send.

use crate::limits::stamp::Stamp;
use std::fmt::Write;
use std::io::{Error, ErrorKind};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Why a process should be replaced, under mod_wsgi's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub enum Reason {
    MaximumRequests = 1,
    InactivityTimeout,
    RequestTimeout,
    /// The gravest reason: the process cannot exit on its own.
    DeadlockTimeout,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaximumRequests => "maximum_requests",
            Self::InactivityTimeout => "inactivity_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::DeadlockTimeout => "deadlock_timeout",
        }
    }
}

pub struct Control {
    fd: RawFd,
    /// The gravest reason that was sent, 0 for none. A process is replaced once, so a second reason
    /// counts only if it is graver. Writers and readers: any thread. `SeqCst`: requests are rare.
    ///
    /// | value | meaning |
    /// |---|---|
    /// | 0 | no request was sent |
    /// | a `Reason` | a request with this reason was sent or is being sent |
    requested: AtomicU8,
}

impl Control {
    pub fn new(fd: RawFd) -> Self {
        Self { fd, requested: AtomicU8::new(0) }
    }

    /// Returns true if the supervisor closed its end of the socket. Only a connected stream socket
    /// reports this; a datagram socket does not.
    pub fn has_hangup(&self) -> bool {
        let mut end = libc::pollfd { fd: self.fd, events: 0, revents: 0 };
        // SAFETY: the pointer and the count 1 describe `end`, which is live and writable.
        unsafe { libc::poll(&mut end, 1, 0) == 1 && end.revents & libc::POLLHUP != 0 }
    }

    pub fn has_requested(&self, reason: Reason) -> bool {
        self.requested.load(SeqCst) >= reason as u8
    }

    /// Requests a replacement, unless a request with this reason or a graver one was sent. If the
    /// supervisor's queue is full, the next call with the same reason tries again.
    pub fn request_replacement(&self, reason: Reason, detail: impl FnOnce() -> String) {
        let previous = self.requested.load(SeqCst);
        if previous >= reason as u8 {
            return;
        }
        if self.requested.compare_exchange(previous, reason as u8, SeqCst, SeqCst).is_err() {
            return;
        }
        if !send(self.fd, datagram(reason, &detail()).as_bytes()) {
            self.requested.store(previous, SeqCst);
        }
    }
}

fn datagram(reason: Reason, detail: &str) -> String {
    let mut text =
        format!("{{\"event\": \"limit\", \"reason\": \"{}\", \"detail\": \"", reason.as_str());
    for character in detail.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\0'..='\x1f' => drop(write!(text, "\\u{:04x}", character as u32)),
            _ => text.push(character),
        }
    }
    text.push_str("\"}");
    text
}

/// Returns false if the socket has no room. Returns true if the supervisor is gone.
fn send(fd: RawFd, bytes: &[u8]) -> bool {
    if fd < 0 {
        return true;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the pointer and the length are those of `bytes`, which outlives the call.
        if unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) } >= 0 {
            return true;
        }
        match Error::last_os_error().kind() {
            ErrorKind::Interrupted => {}
            ErrorKind::WouldBlock => return false,
            // The supervisor is gone. `has_hangup` and the process's main thread notice that.
            _ => return true,
        }
    }
}

/// Writes lines to stderr. Lines of several threads and processes do not mix as long as each text
/// fits into one write of `PIPE_BUF` bytes. This does not use Python's `sys.stderr`, which needs
/// the GIL. If stderr is a full pipe, the rest of the text is dropped, so that the monitor never
/// blocks.
pub fn log_to_stderr(text: &str) {
    let text = format!("{Stamp}headway serve: process {}: {text}\n", std::process::id());
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(rest.len().min(libc::PIPE_BUF));
        let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        // SAFETY: `stderr` is one live pollfd, and the pointer and the length are those of `piece`.
        // A pipe that polls as writable has room for PIPE_BUF bytes, so the write does not block.
        unsafe {
            if libc::poll(&mut stderr, 1, 0) != 1
                || libc::write(2, piece.as_ptr().cast(), piece.len()) != piece.len() as isize
            {
                return;
            }
        }
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_second_request_is_sent_only_for_a_graver_reason() {
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        let control = Control::new(worker.as_raw_fd());
        control.request_replacement(Reason::RequestTimeout, || "GET /\"\\\n".into());
        control.request_replacement(Reason::RequestTimeout, || unreachable!());
        control.request_replacement(Reason::MaximumRequests, || unreachable!());
        control.request_replacement(Reason::DeadlockTimeout, || "held".into());
        assert!(control.has_requested(Reason::InactivityTimeout));
        drop(worker);
        let mut sent = String::new();
        supervisor.read_to_string(&mut sent).unwrap();
        assert_eq!(
            sent,
            "{\"event\": \"limit\", \"reason\": \"request_timeout\", \
             \"detail\": \"GET /\\\"\\\\\\u000a\"}\
             {\"event\": \"limit\", \"reason\": \"deadlock_timeout\", \"detail\": \"held\"}"
        );
    }

    #[test]
    fn a_hangup_is_detected_behind_unread_data() {
        use std::io::Write;
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        let control = Control::new(worker.as_raw_fd());
        assert!(!control.has_hangup());
        supervisor.write_all(b"retire").unwrap();
        assert!(!control.has_hangup());
        drop(supervisor);
        assert!(control.has_hangup());
        assert!(!Control::new(-1).has_hangup(), "there is no supervisor");
    }

    #[test]
    fn a_full_queue_is_retried_and_a_closed_one_is_not() {
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        worker.set_nonblocking(true).unwrap();
        let room = {
            use std::io::Write;
            let mut room = 0;
            while let Ok(count) = (&worker).write(&[0; 4_096]) {
                room += count;
            }
            room
        };
        let control = Control::new(worker.as_raw_fd());
        control.request_replacement(Reason::InactivityTimeout, String::new);
        assert!(!control.has_requested(Reason::InactivityTimeout));
        supervisor.read_exact(&mut vec![0; room]).unwrap();
        control.request_replacement(Reason::InactivityTimeout, String::new);
        assert!(control.has_requested(Reason::InactivityTimeout));
        drop(supervisor);
        control.request_replacement(Reason::DeadlockTimeout, String::new);
        assert!(control.has_requested(Reason::DeadlockTimeout));
    }
}
