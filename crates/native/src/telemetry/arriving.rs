//! `_native.telemetry_arrived()`: receives datagrams from a socket without the GIL, and returns
//! those of some milliseconds at a time.
//!
//! The queue of a UNIX datagram socket may be as short as ten (`net.unix.max_dgram_qlen`), and a
//! sender that finds it full drops its datagram. So the queue must be emptied at once, even while
//! Python merges and compresses; and entering Python for each datagram would cost more than
//! Python's work on it. Only the recorder's receiving thread calls it.

use headway_python::attached::Attached;
use headway_python::convert::{arguments, tuple};
use headway_python::exception::raise_errno;
use headway_python::object::{Object, PyResult};
use headway_telemetry::datagram::peek;
use headway_telemetry::fields::kind;
use libc::{
    CMSG_DATA, CMSG_FIRSTHDR, CMSG_LEN, CMSG_NXTHDR, CMSG_SPACE, MSG_CMSG_CLOEXEC, MSG_DONTWAIT,
    MSG_TRUNC, POLLIN, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET, c_int, iovec, msghdr, pollfd,
    recvmsg, ucred,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{Error, ErrorKind};
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

const MAX_DATAGRAM_BYTES: usize = 65_536;
/// Limits of one batch.
const MAX_DATAGRAMS: usize = 2_000;
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The control data of one ucred, which the kernel writes first. It closes the descriptors of a
/// datagram that find no room (`scm_detach_fds`, net/core/scm.c).
// SAFETY: arithmetic.
const CONTROL_BYTES: usize = unsafe { CMSG_SPACE(size_of::<ucred>() as _) } as usize;

struct Arrived {
    /// The datagram's position in `Batch::bytes`.
    end: usize,
    credentials: Option<Credentials>,
    is_cut: bool,
}

/// The sender of a datagram, as the kernel attests it.
#[derive(Clone, Copy)]
struct Credentials {
    /// 0 for a process of a PID namespace that is not visible from ours.
    pid: i32,
    uid: u32,
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    datagrams: Vec<Arrived>,
    /// Datagrams beyond the rates of `admission`.
    refused: u64,
}

thread_local! {
    /// The rates of the senders to the one socket that this thread reads.
    static ADMISSION: RefCell<Admission> = RefCell::new(Admission::new(Instant::now()));
}

pub fn arrived<'py>(py: Attached<'py>, given: &[Object<'py>]) -> PyResult<Object<'py>> {
    let (socket, wake, timeout_ns): (c_int, c_int, i64) =
        arguments(py, "telemetry_arrived", given)?;
    let timeout = Duration::from_nanos(timeout_ns.max(0) as u64);
    match py.detach(|| take(socket, wake, timeout)) {
        Ok((batch, is_woken)) => objects(py, &batch, is_woken),
        Err(error) => Err(raise_errno(py, error.raw_os_error().unwrap_or(0))),
    }
}

/// Waits for a first datagram, and takes all datagrams that arrive within `timeout`. Returns true
/// if `wake` is readable, which ends the wait; datagrams that have arrived by then are taken too.
fn take(socket: c_int, wake: c_int, timeout: Duration) -> Result<(Batch, bool), Error> {
    ADMISSION.with_borrow_mut(|admission| take_admitted(socket, wake, timeout, admission))
}

fn take_admitted(
    socket: c_int,
    wake: c_int,
    timeout: Duration,
    admission: &mut Admission,
) -> Result<(Batch, bool), Error> {
    let mut batch = Batch::default();
    let mut scratch = vec![0_u8; MAX_DATAGRAM_BYTES];
    let mut end = None;
    loop {
        let left: Option<Duration> =
            end.map(|end: Instant| end.saturating_duration_since(Instant::now()));
        let is_woken = wait(socket, wake, left)?;
        let has_room = batch.receive_all(socket, &mut scratch, admission)?;
        if end.is_none() && !batch.is_empty() {
            end = Some(Instant::now() + timeout);
        }
        if is_woken || !has_room || end.is_some_and(|end| Instant::now() >= end) {
            return Ok((batch, is_woken));
        }
    }
}

/// Waits until a descriptor is readable, or for `left`. Returns whether `wake` is readable.
fn wait(socket: c_int, wake: c_int, left: Option<Duration>) -> Result<bool, Error> {
    let of = |fd| pollfd { fd, events: POLLIN, revents: 0 };
    let mut fds = [of(socket), of(wake)];
    // Rounded up: a timeout of 0 would spin through the last millisecond.
    let timeout_ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000) as c_int);
    // SAFETY: pointer and length are those of `fds`.
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
    fn is_empty(&self) -> bool {
        self.datagrams.is_empty() && self.refused == 0
    }

    /// Takes the datagrams that are in the queue now, up to `MAX_DATAGRAMS` of them, refused ones
    /// included, so that a flood does not keep the caller here. Returns whether there is room for
    /// more.
    fn receive_all(
        &mut self,
        socket: c_int,
        scratch: &mut [u8],
        admission: &mut Admission,
    ) -> Result<bool, Error> {
        let now = Instant::now();
        for _ in 0..MAX_DATAGRAMS {
            if self.datagrams.len() >= MAX_DATAGRAMS || self.bytes.len() >= MAX_BYTES {
                return Ok(false);
            }
            match receive(socket, scratch) {
                Ok((length, credentials, is_cut)) => {
                    let datagram = &scratch[..length];
                    if credentials.is_some_and(|from| !admission.admits(from, datagram, now)) {
                        self.refused += 1;
                        continue;
                    }
                    self.bytes.extend_from_slice(datagram);
                    self.datagrams.push(Arrived { end: self.bytes.len(), credentials, is_cut });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Receives one datagram: its length, its sender, and whether it was longer than the buffer.
fn receive(socket: c_int, buffer: &mut [u8]) -> Result<(usize, Option<Credentials>, bool), Error> {
    // Aligned for a cmsghdr.
    let mut control = [0_u64; CONTROL_BYTES / size_of::<u64>()];
    let mut part = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zero bytes are a msghdr without a name; its pointers and lengths are those of memory
    // that outlives the call.
    unsafe {
        let mut message: msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        let length = recvmsg(socket, &raw mut message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if length < 0 {
            return Err(Error::last_os_error());
        }
        let is_cut = message.msg_flags & MSG_TRUNC != 0;
        Ok((length as usize, take_control(&message), is_cut))
    }
}

/// Returns the credentials in the control data of a message, and closes its descriptors: without
/// SO_PASSCRED there is room for some.
///
/// # Safety
/// recvmsg has filled `message` and the memory that it points to, and nothing else has used its
/// control data.
unsafe fn take_control(message: &msghdr) -> Option<Credentials> {
    let mut sender = None;
    // SAFETY: the kernel has written whole entries, and their length; the descriptors are new.
    unsafe {
        let mut entry = CMSG_FIRSTHDR(message);
        while !entry.is_null() {
            let data = CMSG_DATA(entry);
            match ((*entry).cmsg_level, (*entry).cmsg_type) {
                (SOL_SOCKET, SCM_CREDENTIALS) => {
                    let from = ptr::read_unaligned(data.cast::<ucred>());
                    sender = Some(Credentials { pid: from.pid, uid: from.uid });
                }
                (SOL_SOCKET, SCM_RIGHTS) => {
                    let bytes = (*entry).cmsg_len as usize - CMSG_LEN(0) as usize;
                    for place in 0..bytes / size_of::<c_int>() {
                        let fd = ptr::read_unaligned(data.cast::<c_int>().add(place));
                        drop(OwnedFd::from_raw_fd(fd));
                    }
                }
                _ => {}
            }
            entry = CMSG_NXTHDR(message, entry);
        }
    }
    sender
}

/// Drops datagrams beyond a sender's rate before Python sees them, so that a sender that sends more
/// than any process has to report does not crowd out others. The kernel attests the sender. A
/// process of another PID namespace has the attested pid 0, and is identified by its uid and the
/// pid that it claims.
struct Admission {
    began: Instant,
    senders: HashMap<(u32, bool, u32), Rates>,
    users: HashMap<u32, Rates>,
}

/// The rate of ticks, and the rate of all other datagrams, including malformed ones.
#[derive(Clone, Copy, Default)]
struct Rates {
    ticks: Rate,
    others: Rate,
}

/// A rate with a burst, by the generic cell rate algorithm: the time at which a sender at exactly
/// the rate would be due.
#[derive(Clone, Copy, Default)]
struct Rate {
    due: Duration,
}

/// Datagrams per second, and the size of a burst.
type Limit = (u32, u32);

/// A process reports twice a second at most; the burst is for a recorder that is late.
const TICKS_OF_SENDER: Limit = (20, 600);
/// Processes in different containers can have the same pid, so that many processes of one user may
/// share an entry.
const TICKS_OF_CLAIMED: Limit = (500, 2_000);
/// mod_wsgi sends a datagram for each garbage collection.
const OTHERS_OF_SENDER: Limit = (500, 2_000);
/// All processes of one user: 500 that report twice a second, and more.
const TICKS_OF_USER: Limit = (1_500, 5_000);
const OTHERS_OF_USER: Limit = (3_000, 10_000);
/// At this number of entries, idle ones are removed; if none is idle, unknown senders are refused.
const MAX_RATES: usize = 8_192;

impl Rate {
    fn admits(&mut self, (per_second, burst): Limit, now: Duration) -> bool {
        let each = Duration::from_secs(1) / per_second;
        let due = self.due.max(now);
        let admits = due - now <= each * (burst - 1);
        if admits {
            self.due = due + each;
        }
        admits
    }
}

impl Admission {
    fn new(began: Instant) -> Self {
        Self { began, senders: HashMap::new(), users: HashMap::new() }
    }

    fn admits(&mut self, from: Credentials, datagram: &[u8], now: Instant) -> bool {
        let now = now.saturating_duration_since(self.began);
        let (of_kind, claimed) = peek(datagram).unwrap_or_default();
        let is_attested = from.pid > 0;
        let key = (from.uid, is_attested, if is_attested { from.pid as u32 } else { claimed });
        let is_tick = of_kind == kind::REQUEST_METRICS;
        let ticks_of_sender = if is_attested { TICKS_OF_SENDER } else { TICKS_OF_CLAIMED };
        let Some(sender) = rates(&mut self.senders, key, now) else { return false };
        let Some(user) = rates(&mut self.users, from.uid, now) else { return false };
        if is_tick {
            sender.ticks.admits(ticks_of_sender, now) && user.ticks.admits(TICKS_OF_USER, now)
        } else {
            sender.others.admits(OTHERS_OF_SENDER, now) && user.others.admits(OTHERS_OF_USER, now)
        }
    }
}

fn rates<K: Eq + Hash>(known: &mut HashMap<K, Rates>, key: K, now: Duration) -> Option<&mut Rates> {
    if known.len() >= MAX_RATES && !known.contains_key(&key) {
        known.retain(|_, rates| rates.ticks.due > now || rates.others.due > now);
        if known.len() >= MAX_RATES {
            return None;
        }
    }
    Some(known.entry(key).or_default())
}

fn objects<'py>(py: Attached<'py>, batch: &Batch, is_woken: bool) -> PyResult<Object<'py>> {
    let rows = Object::new_list(py)?;
    let mut start = 0;
    for datagram in &batch.datagrams {
        let bytes = Object::from_bytes(py, &batch.bytes[start..datagram.end])?;
        start = datagram.end;
        let credentials = datagram
            .credentials
            .map(|Credentials { pid, uid }| tuple(py, &[&pid, &uid]))
            .transpose()?;
        rows.append(&tuple(py, &[&bytes, &credentials, &datagram.is_cut])?)?;
    }
    tuple(py, &[&rows, &is_woken, &batch.refused])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    /// Sends a datagram with four descriptors of one end of a pair, and returns the other end.
    fn send_descriptors(socket: &UnixDatagram) -> UnixStream {
        let (kept, sent) = UnixStream::pair().unwrap();
        let mut bytes = *b"datagram";
        let mut part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let fds = [sent.as_raw_fd(); 4];
        let mut control = [0_u64; 8];
        // SAFETY: pointers and lengths are those of memory that outlives the calls.
        unsafe {
            let mut message: msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = CMSG_SPACE(size_of_val(&fds) as _) as _;
            let entry = CMSG_FIRSTHDR(&raw const message);
            (*entry).cmsg_level = SOL_SOCKET;
            (*entry).cmsg_type = SCM_RIGHTS;
            (*entry).cmsg_len = CMSG_LEN(size_of_val(&fds) as _) as _;
            ptr::write_unaligned(CMSG_DATA(entry).cast(), fds);
            let length = libc::sendmsg(socket.as_raw_fd(), &raw const message, 0);
            assert_eq!(length, bytes.len() as isize);
        }
        kept
    }

    #[test]
    fn descriptors_that_arrive_are_closed() {
        for passes_credentials in [0, 1] {
            let (sender, receiver) = UnixDatagram::pair().unwrap();
            // SAFETY: a pointer to an int and its size.
            let set = unsafe {
                let value: *const c_int = &raw const passes_credentials;
                let option = libc::SO_PASSCRED;
                libc::setsockopt(receiver.as_raw_fd(), SOL_SOCKET, option, value.cast(), 4)
            };
            assert_eq!(set, 0);
            let mut other_end = send_descriptors(&sender);
            let (length, credentials, is_cut) =
                receive(receiver.as_raw_fd(), &mut [0; 64]).unwrap();
            assert_eq!((length, is_cut), (8, false));
            assert_eq!(
                credentials.map(|from| from.pid as u32),
                (passes_credentials == 1).then(std::process::id)
            );
            // Without its end it would have to wait.
            other_end.set_nonblocking(true).unwrap();
            assert_eq!(other_end.read(&mut [0; 1]).unwrap(), 0);
        }
    }

    fn header(kind: u8, pid: u32) -> Vec<u8> {
        let mut bytes = b"WSGI\x01".to_vec();
        bytes.extend_from_slice(&[kind, 0, 0]);
        bytes.extend_from_slice(&pid.to_le_bytes());
        bytes.resize(24, 0);
        bytes
    }

    fn admitted(admission: &mut Admission, from: Credentials, datagram: &[u8], at: Instant) -> u32 {
        (0..20_000).filter(|_| admission.admits(from, datagram, at)).count() as u32
    }

    #[test]
    fn a_sender_has_a_burst_and_then_its_rate() {
        let began = Instant::now();
        let mut admission = Admission::new(began);
        let from = Credentials { pid: 7, uid: 33 };
        let tick = header(kind::REQUEST_METRICS, 7);
        assert_eq!(admitted(&mut admission, from, &tick, began), TICKS_OF_SENDER.1);
        let later = began + Duration::from_secs(2);
        assert_eq!(admitted(&mut admission, from, &tick, later), 2 * TICKS_OF_SENDER.0);
        // A claimed pid does not change the sender's identity.
        assert_eq!(admitted(&mut admission, from, &header(2, 8), later), 0);
        let other = Credentials { pid: 8, uid: 33 };
        assert_eq!(admitted(&mut admission, other, &tick, later), TICKS_OF_SENDER.1);
        assert_eq!(admitted(&mut admission, from, b"garbage", later), OTHERS_OF_SENDER.1);
    }

    #[test]
    fn claimed_pids_have_rates_of_their_own_and_their_user_is_bounded() {
        let began = Instant::now();
        let mut admission = Admission::new(began);
        let from = Credentials { pid: 0, uid: 33 };
        let of = |admission: &mut Admission, pid: u32| {
            admitted(admission, from, &header(kind::REQUEST_METRICS, pid), began)
        };
        assert_eq!(of(&mut admission, 1), TICKS_OF_CLAIMED.1);
        assert_eq!(of(&mut admission, 2), TICKS_OF_CLAIMED.1);
        assert_eq!(of(&mut admission, 3), TICKS_OF_USER.1 - 2 * TICKS_OF_CLAIMED.1);
        assert_eq!(of(&mut admission, 4), 0);
    }

    #[test]
    fn invented_pids_take_a_bounded_number_of_entries() {
        let began = Instant::now();
        let mut admission = Admission::new(began);
        for pid in 1..=3 * MAX_RATES as u32 {
            let at = began + Duration::from_millis(pid.into());
            let from = Credentials { pid: 0, uid: 33 };
            admission.admits(from, &header(kind::PROCESS_STARTED, pid), at);
            assert!(admission.senders.len() <= MAX_RATES);
        }
        let late = began + Duration::from_secs(60);
        let from = Credentials { pid: 5, uid: 34 };
        assert!(admission.admits(from, &header(kind::PROCESS_STARTED, 5), late));
    }
}
