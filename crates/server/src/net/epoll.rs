//! epoll and eventfd, as far as the worker needs them.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub const EVENTS_PER_WAIT: usize = 64;

/// Edge-triggered for connections: each is registered once and never changed, so no request pays
/// an `epoll_ctl`. RDHUP tells of a FIN that came merged with data.
const CONNECTION_EVENTS: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;

pub struct Epoll(OwnedFd);

/// One event: the data that was registered, and whether the peer hung up.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub data: u64,
    pub hangup: bool,
}

impl Epoll {
    pub fn new() -> Result<Self> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a descriptor that the call above made and nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Registers a connection, edge-triggered. The first event comes at once: it is writable.
    pub fn add_connection(&self, fd: BorrowedFd, data: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, CONNECTION_EVENTS, data)
    }

    /// Registers an eventfd, level-triggered.
    pub fn add(&self, fd: BorrowedFd, data: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, data)
    }

    /// Registers a listener, level-triggered. Of the processes that share it, a new connection
    /// wakes one (exclusive; such a registration cannot be changed, only removed).
    pub fn add_listener(&self, fd: BorrowedFd, data: u64) -> Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    /// Needed before closing: a forked child may hold the same open file, and then closing alone
    /// would leave it registered.
    pub fn remove(&self, fd: BorrowedFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, operation: i32, fd: BorrowedFd, events: u32, data: u64) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: both descriptors are open, and `event` is valid for the call.
        check(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event)
        })?;
        Ok(())
    }

    /// As `wait`, for less than milliseconds where the kernel can (Linux 5.11).
    pub fn wait_ns(&self, timeout_ns: u64, events: &mut Vec<Event>) {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_WAIT];
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the pointers are to live objects, the length is that of `raw`, no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                raw.as_mut_ptr(),
                EVENTS_PER_WAIT as i32,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if count < 0 && Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            return self.wait(timeout_ns.div_ceil(1_000_000) as i32, events);
        }
        append(&raw, count as i32, events);
    }

    /// Waits up to `timeout_ms` (-1: without end) and appends what happened to `events`.
    pub fn wait(&self, timeout_ms: i32, events: &mut Vec<Event>) {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_WAIT];
        // SAFETY: the pointer and the length are those of `raw`.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                raw.as_mut_ptr(),
                EVENTS_PER_WAIT as i32,
                timeout_ms,
            )
        };
        append(&raw, count, events);
    }
}

/// The only failure that can occur is EINTR: a signal. The caller looks around and waits again.
fn append(raw: &[libc::epoll_event], count: i32, events: &mut Vec<Event>) {
    let hangup = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
    events.extend(raw[..count.max(0) as usize].iter().map(|event| {
        let (bits, data) = (event.events, event.u64);
        Event { data, hangup: bits & hangup != 0 }
    }));
}

/// Brings a thread out of `Epoll::wait`.
pub struct Waker(OwnedFd);

impl Waker {
    pub fn new() -> Result<Self> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: a descriptor that the call above made and nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    pub fn wake(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of a live integer. A full counter means that a kick is pending.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes of a live integer. It does not block.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

fn check(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}
