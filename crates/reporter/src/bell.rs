//! What wakes the reporter's thread before its time: an eventfd, since a signal handler may ring it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The thread is to end.
pub const OVER: u64 = 1;
/// A signal ends the process: the thread is to tell so. Rung by `ring_for_signal`, more than once perhaps.
const SIGNAL: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    Over,
    BySignal,
}

pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn ring(&self) {
        write(self.fd(), OVER);
    }

    /// `None` if it is time and nobody has rung.
    pub fn wait_until(&self, due: Instant) -> Option<Rung> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            let mut rung = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
            // Rather late than early, and then again.
            let left_ms = left.saturating_add(Duration::from_micros(999)).as_millis();
            let left_ms = i32::try_from(left_ms).unwrap_or(i32::MAX);
            let mut value = 0_u64;
            // SAFETY: one live pollfd; the value has the eight bytes that an eventfd wants.
            let read = unsafe {
                libc::poll(&mut rung, 1, left_ms);
                libc::read(self.fd(), (&raw mut value).cast(), size_of::<u64>())
            };
            match value {
                _ if read < 0 && Instant::now() < due => {}
                _ if read < 0 => return None,
                SIGNAL.. => return Some(Rung::BySignal),
                _ => return Some(Rung::Over),
            }
        }
    }
}

/// For the handler of a signal that ends the process: the reporter with this descriptor tells so. Async-signal-safe.
pub fn ring_for_signal(fd: RawFd) {
    write(fd, SIGNAL);
}

fn write(fd: RawFd, value: u64) {
    // SAFETY: eight bytes, as an eventfd wants them. It is full only if it has rung.
    unsafe { libc::write(fd, (&raw const value).cast(), size_of::<u64>()) };
}
