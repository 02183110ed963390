//! The socket: datagrams go out at once or not at all.
//!
//! It is connected to nobody, so that a receiver may come, go and come again under the same path. One
//! sequence of numbers for all kinds; a datagram that does not go out leaves its number to the next, so that a gap
//! means one that was sent and lost.

use headway_telemetry::datagram::{Header, Writer};
use std::fmt;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why nothing can be sent to a path.
#[derive(Debug)]
pub enum TargetError {
    /// A path of so many bytes does not fit into an address.
    TooLong(usize),
    System(io::Error),
}

impl fmt::Display for TargetError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(
                formatter,
                "the path has {bytes} bytes, and the address of a UNIX socket has room for {MAX_PATH_BYTES}"
            ),
            Self::System(error) => error.fmt(formatter),
        }
    }
}

/// The last byte of an address is 0.
const MAX_PATH_BYTES: usize =
    size_of::<libc::sockaddr_un>() - offset_of!(libc::sockaddr_un, sun_path) - 1;

/// Sends the datagrams of this process. One thread at a time.
pub struct Post {
    socket: OwnedFd,
    address: libc::sockaddr_un,
    pid: u32,
    /// Of the last datagram that went out.
    seq: u32,
    writer: Writer,
    lost: u64,
}

impl Post {
    pub fn open(path: &Path) -> Result<Self, TargetError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() > MAX_PATH_BYTES {
            return Err(TargetError::TooLong(bytes.len()));
        }
        // SAFETY: all zero bytes are a valid address.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = *byte as libc::c_char;
        }
        // SAFETY: no preconditions.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(TargetError::System(io::Error::last_os_error()));
        }
        Ok(Self {
            // SAFETY: just opened, and nobody else's.
            socket: unsafe { OwnedFd::from_raw_fd(fd) },
            address,
            pid: std::process::id(),
            seq: 0,
            writer: Writer::default(),
            lost: 0,
        })
    }

    /// Sends what `write` writes, now. False if nobody listens or has room for it.
    pub fn send(&mut self, kind: u8, write: impl FnOnce(&mut Writer)) -> bool {
        self.send_as_of(kind, wall_s(), write)
    }

    /// The same, as of another moment: seconds since 1970.
    pub fn send_as_of(&mut self, kind: u8, stamp_s: f64, write: impl FnOnce(&mut Writer)) -> bool {
        let seq = self.seq.wrapping_add(1);
        self.writer.begin(&Header { kind, pid: self.pid, seq, stamp_s });
        write(&mut self.writer);
        let sent = self.hand_over();
        if sent {
            self.seq = seq;
        }
        sent
    }

    /// Counts records that will not be sent.
    pub fn lose(&mut self, records: u64) {
        self.lost += records;
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn hand_over(&self) -> bool {
        let bytes = self.writer.bytes();
        loop {
            // SAFETY: the pointers and lengths are those of live values.
            let count = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                    (&raw const self.address).cast(),
                    size_of::<libc::sockaddr_un>() as libc::socklen_t,
                )
            };
            if count >= 0 {
                return true;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }
}

/// Seconds since 1970.
pub fn wall_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
