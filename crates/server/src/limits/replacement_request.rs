//! The control socket: a worker process sends its supervisor one JSON datagram to request its
//! replacement.
//!
//! Sending never blocks and does not need the GIL, so any thread may send.

use crate::net::socket::{self, Transfer};
use rustix::event::PollFlags;
use std::fmt::Write;
use std::os::fd::{BorrowedFd, RawFd};
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
    /// `None` without a supervisor.
    supervisor: Option<BorrowedFd<'static>>,
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
    /// # Safety
    /// `fd` is the control socket, which stays open as long as the process, or -1.
    pub unsafe fn new(fd: RawFd) -> Self {
        // SAFETY: the caller's.
        let supervisor = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) });
        Self { supervisor, requested: AtomicU8::new(0) }
    }

    /// Returns true if the supervisor closed its end of the socket. Only a connected stream socket
    /// reports this; a datagram socket does not.
    pub fn has_hangup(&self) -> bool {
        self.supervisor.is_some_and(|end| {
            socket::polled_events(end, PollFlags::empty()).contains(PollFlags::HUP)
        })
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
        if !self.send(datagram(reason, &detail()).as_bytes()) {
            self.requested.store(previous, SeqCst);
        }
    }

    /// Returns false if the socket has no room. Returns true if the supervisor is gone, which
    /// `has_hangup` and the process's main thread notice.
    fn send(&self, bytes: &[u8]) -> bool {
        self.supervisor.is_none_or(|end| socket::send(end, bytes, false) != Transfer::WouldBlock)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn control_of(fd: RawFd) -> Control {
        // SAFETY: each test closes its socket after its last use of the value, or passes -1.
        unsafe { Control::new(fd) }
    }

    #[test]
    fn a_second_request_is_sent_only_for_a_graver_reason() {
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        let control = control_of(worker.as_raw_fd());
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
        let control = control_of(worker.as_raw_fd());
        assert!(!control.has_hangup());
        supervisor.write_all(b"retire").unwrap();
        assert!(!control.has_hangup());
        drop(supervisor);
        assert!(control.has_hangup());
        assert!(!control_of(-1).has_hangup(), "there is no supervisor");
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
        let control = control_of(worker.as_raw_fd());
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
