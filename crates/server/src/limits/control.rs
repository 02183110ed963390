//! What a process tells its supervisor: one JSON datagram when it should be replaced.
//!
//! Written without waiting and without the GIL, from any thread.

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
    /// The last: the process will not even end by itself.
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
    /// The gravest reason that was told, 0 for none. A process is replaced once, so a second reason
    /// counts only if it is graver. Writers: `say`, from any thread.
    said: AtomicU8,
}

impl Control {
    pub fn new(fd: RawFd) -> Self {
        Self { fd, said: AtomicU8::new(0) }
    }

    /// Whether the supervisor's end is closed, as that of a connection; datagram sockets do not tell.
    pub fn has_hangup(&self) -> bool {
        let mut end = libc::pollfd { fd: self.fd, events: 0, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&mut end, 1, 0) == 1 && end.revents & libc::POLLHUP != 0 }
    }

    pub fn has_said(&self, reason: Reason) -> bool {
        self.said.load(SeqCst) >= reason as u8
    }

    /// Asks to be replaced, unless that was said. Where the supervisor's queue is full the next call
    /// for the same reason tries again.
    pub fn say(&self, reason: Reason, detail: impl FnOnce() -> String) {
        let before = self.said.load(SeqCst);
        if before >= reason as u8 {
            return;
        }
        if self.said.compare_exchange(before, reason as u8, SeqCst, SeqCst).is_err() {
            return;
        }
        if !send(self.fd, datagram(reason, &detail()).as_bytes()) {
            self.said.store(before, SeqCst);
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

/// False if there is no room now.
fn send(fd: RawFd, bytes: &[u8]) -> bool {
    if fd < 0 {
        return true;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the pointer and the length are those of `bytes`.
        if unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) } >= 0 {
            return true;
        }
        match Error::last_os_error().kind() {
            ErrorKind::Interrupted => {}
            ErrorKind::WouldBlock => return false,
            // The supervisor is gone, which the process learns elsewhere.
            _ => return true,
        }
    }
}

/// Lines; as long as they fit into one write, threads and processes do not mix. Not through Python's
/// `sys.stderr`, which needs the GIL. Where nobody reads the other end of a full pipe the rest is lost: the
/// monitor has more to do than to wait.
pub fn say_on_stderr(text: &str) {
    let text = format!("{Stamp}headway serve: process {}: {text}\n", std::process::id());
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(rest.len().min(libc::PIPE_BUF));
        let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one live pollfd; then the pointer and the length are those of `piece`. A pipe that is ready
        // has room for PIPE_BUF bytes.
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
    fn a_process_asks_once_and_again_only_for_what_is_graver() {
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        let control = Control::new(worker.as_raw_fd());
        control.say(Reason::RequestTimeout, || "GET /\"\\\n".into());
        control.say(Reason::RequestTimeout, || unreachable!());
        control.say(Reason::MaximumRequests, || unreachable!());
        control.say(Reason::DeadlockTimeout, || "held".into());
        assert!(control.has_said(Reason::InactivityTimeout));
        drop(worker);
        let mut said = String::new();
        supervisor.read_to_string(&mut said).unwrap();
        assert_eq!(
            said,
            "{\"event\": \"limit\", \"reason\": \"request_timeout\", \
             \"detail\": \"GET /\\\"\\\\\\u000a\"}\
             {\"event\": \"limit\", \"reason\": \"deadlock_timeout\", \"detail\": \"held\"}"
        );
    }

    #[test]
    fn a_hangup_is_seen_behind_what_was_not_read() {
        use std::io::Write;
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        let control = Control::new(worker.as_raw_fd());
        assert!(!control.has_hangup());
        supervisor.write_all(b"retire").unwrap();
        assert!(!control.has_hangup());
        drop(supervisor);
        assert!(control.has_hangup());
        assert!(!Control::new(-1).has_hangup(), "nobody was there");
    }

    #[test]
    fn a_full_queue_is_tried_again_and_a_closed_one_is_not() {
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
        control.say(Reason::InactivityTimeout, String::new);
        assert!(!control.has_said(Reason::InactivityTimeout));
        supervisor.read_exact(&mut vec![0; room]).unwrap();
        control.say(Reason::InactivityTimeout, String::new);
        assert!(control.has_said(Reason::InactivityTimeout));
        drop(supervisor);
        control.say(Reason::DeadlockTimeout, String::new);
        assert!(control.has_said(Reason::DeadlockTimeout));
    }
}
