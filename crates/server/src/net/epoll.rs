//! epoll and eventfd, with the operations that workers need.

use crate::net::socket::duration_of_ms;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub const EVENTS_PER_WAIT: usize = 64;

/// Edge-triggered for connections: each is registered once and never changed, so no request pays
/// an `epoll_ctl`. RDHUP reports a FIN that arrives together with data.
const CONNECTION_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
const HANGUP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

pub struct Epoll(OwnedFd);

/// One event: the data that was registered, and whether the peer hung up.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub data: u64,
    pub hangup: bool,
}

impl Epoll {
    pub fn new() -> Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Registers a connection, edge-triggered. The first event comes at once: it is writable.
    pub fn add_connection(&self, fd: BorrowedFd, data: u64) -> Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(data), CONNECTION_EVENTS)?)
    }

    /// Registers an eventfd, level-triggered.
    pub fn add(&self, fd: BorrowedFd, data: u64) -> Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(data), EventFlags::IN)?)
    }

    /// Registers a listener, level-triggered. A new connection wakes one of the processes that
    /// share the listener (EPOLLEXCLUSIVE). Such a registration can be removed and not changed.
    pub fn add_listener(&self, fd: BorrowedFd, data: u64) -> Result<()> {
        let events = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.0, fd, EventData::new_u64(data), events)?)
    }

    /// Must be called before the descriptor is closed: a forked child may hold the same open file,
    /// and closing the descriptor alone would then leave the file registered.
    pub fn remove(&self, fd: BorrowedFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits like `wait`, with a resolution below a millisecond if the kernel supports it (Linux
    /// 5.11).
    pub fn wait_ns(&self, timeout_ns: u64, events: &mut Vec<Event>) {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_WAIT];
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as _,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // rustix uses epoll_pwait2 only in builds that require Linux 5.11.
        // SAFETY: `raw` has room for that many events, and `timeout` lives until the call returns.
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
        // An old kernel lacks the call, and a seccomp profile that does not know it forbids it.
        if count < 0 && !is_interrupted(&Error::last_os_error()) {
            return self.wait(timeout_ns.div_ceil(1_000_000) as i32, events);
        }
        events.extend(raw[..count.max(0) as usize].iter().map(|event| Event {
            data: event.u64,
            hangup: HANGUP.intersects(EventFlags::from_bits_retain(event.events)),
        }));
    }

    /// Waits up to `timeout_ms` (-1: without limit) and appends the events to `events`. A signal
    /// ends the wait.
    pub fn wait(&self, timeout_ms: i32, events: &mut Vec<Event>) {
        let mut raw = [MaybeUninit::uninit(); EVENTS_PER_WAIT];
        let timeout = duration_of_ms(timeout_ms);
        let Ok((ready, _)) = epoll::wait(&self.0, &mut raw, timeout.as_ref()) else { return };
        events.extend(ready.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            Event { data: data.u64(), hangup: flags.intersects(HANGUP) }
        }));
    }
}

fn is_interrupted(error: &Error) -> bool {
    error.kind() == std::io::ErrorKind::Interrupted
}

/// Ends a thread's `Epoll::wait`.
pub struct Waker(OwnedFd);

impl Waker {
    pub fn new() -> Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Does nothing if the counter is full: then a wake-up is pending.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Does not block.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forbids `epoll_pwait2` to the calling thread, as seccomp profiles do that are older than it.
    fn forbid_epoll_pwait2() {
        let statement =
            |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            statement(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                1,
                libc::SYS_epoll_pwait2 as u32,
            ),
            statement(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            statement(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: a filter that returns for every call, which the kernel copies.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(result, 0, "{}", Error::last_os_error());
    }

    #[test]
    fn without_epoll_pwait2_a_wait_has_its_events() {
        let (epoll, waker) = (Epoll::new().unwrap(), Waker::new().unwrap());
        epoll.add(waker.fd(), 7).unwrap();
        waker.wake();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                forbid_epoll_pwait2();
                let mut events = Vec::new();
                epoll.wait_ns(60_000_000_000, &mut events);
                assert_eq!(events.iter().map(|event| event.data).collect::<Vec<_>>(), [7]);
            });
        });
    }
}
