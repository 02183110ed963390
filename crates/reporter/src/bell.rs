//! What wakes the reporter's thread before its time: an eventfd, since a signal handler may ring it.
//!
//! A program may close whatever is open (daemons do), and its next file gets the number: what is no eventfd any more is
//! left alone. The thread then still ends when it is to, within `BLIND_LOOK`; a signal's handler no longer reaches it.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Something is to be looked at.
const WAKE: u64 = 1;
/// A signal ends the process: the thread is to tell so. Rung by `ring_for_signal`, more than once perhaps.
const SIGNAL: u64 = 1 << 32;
/// How often to look whether it is over where nothing can wake the thread.
const BLIND_LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    Over,
    BySignal,
}

pub struct Bell {
    fd: RawFd,
    /// The thread is to end. Set by `ring`, taken back by the thread; `SeqCst`: it is rare.
    is_over: AtomicBool,
}

/// By which the kernel knows what has no file: all eventfds, and little else. Written by `Bell::new`.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

impl Bell {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let (device, inode) = identity_of(fd).unwrap_or_default();
        DEVICE.store(device, SeqCst);
        INODE.store(inode, SeqCst);
        Ok(Self { fd, is_over: AtomicBool::new(false) })
    }

    pub fn fd(&self) -> RawFd {
        self.fd
    }

    pub fn ring(&self) {
        self.is_over.store(true, SeqCst);
        write(self.fd, WAKE);
    }

    /// `None` if it is time and nobody has rung.
    pub fn wait_until(&self, due: Instant) -> Option<Rung> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if is_eventfd(self.fd) {
                let mut rung = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
                // Rather late than early, and then again.
                let left_ms = left.saturating_add(Duration::from_micros(999)).as_millis();
                let left_ms = i32::try_from(left_ms).unwrap_or(i32::MAX);
                // SAFETY: one live pollfd.
                unsafe { libc::poll(&mut rung, 1, left_ms) };
            } else if !self.is_over.load(SeqCst) {
                std::thread::sleep(left.min(BLIND_LOOK));
            }
            if read(self.fd) >= SIGNAL {
                return Some(Rung::BySignal);
            }
            if self.is_over.swap(false, SeqCst) {
                return Some(Rung::Over);
            }
            if Instant::now() >= due {
                return None;
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if is_eventfd(self.fd) {
            // SAFETY: our own, and nobody uses it any more.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// For the handler of a signal that ends the process: the reporter with this descriptor tells so. Async-signal-safe.
pub fn ring_for_signal(fd: RawFd) {
    write(fd, SIGNAL);
}

fn write(fd: RawFd, value: u64) {
    if is_eventfd(fd) {
        // SAFETY: eight bytes, as an eventfd wants them. It is full only if it has rung.
        unsafe { libc::write(fd, (&raw const value).cast(), size_of::<u64>()) };
    }
}

/// What has been rung; 0 if nothing.
fn read(fd: RawFd) -> u64 {
    let mut value = 0_u64;
    if is_eventfd(fd) {
        // SAFETY: eight bytes, as an eventfd wants them; it does not block.
        unsafe { libc::read(fd, (&raw mut value).cast(), size_of::<u64>()) };
    }
    value
}

fn is_eventfd(fd: RawFd) -> bool {
    identity_of(fd) == Some((DEVICE.load(SeqCst), INODE.load(SeqCst)))
}

fn identity_of(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: all zero bytes are a valid `stat`, which the call only writes to.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    /// A program that closes what it does not know, and whose next file has the number.
    fn give_number_away(bell: &Bell, to: &impl AsRawFd) {
        // SAFETY: two open descriptors.
        assert!(unsafe { libc::dup2(to.as_raw_fd(), bell.fd()) } >= 0);
    }

    #[test]
    fn a_file_of_the_program_under_the_same_number_is_not_touched() {
        let (mut reading, mut writing) = io::pipe().unwrap();
        let bell = Bell::new().unwrap();
        give_number_away(&bell, &reading);
        writing.write_all(b"not for us").unwrap();
        let soon = || Instant::now() + Duration::from_millis(20);
        assert_eq!(bell.wait_until(soon()), None);
        give_number_away(&bell, &writing);
        let number = bell.fd();
        ring_for_signal(number);
        bell.ring();
        assert_eq!(bell.wait_until(soon() + Duration::from_secs(20)), Some(Rung::Over));
        drop(bell);
        // SAFETY: no preconditions.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "it was closed");
        // SAFETY: the duplicate that was made above.
        unsafe { libc::close(number) };
        drop(writing);
        let mut left = Vec::new();
        reading.read_to_end(&mut left).unwrap();
        assert_eq!(left, b"not for us");
    }

    #[test]
    fn a_bell_rings_once_for_each_reason() {
        let bell = Bell::new().unwrap();
        let due = Instant::now() + Duration::from_secs(20);
        bell.ring();
        assert_eq!(bell.wait_until(due), Some(Rung::Over));
        assert_eq!(bell.wait_until(Instant::now()), None);
        ring_for_signal(bell.fd());
        assert_eq!(bell.wait_until(due), Some(Rung::BySignal));
    }
}
