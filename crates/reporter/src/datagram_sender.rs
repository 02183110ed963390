//! The socket: a datagram is sent at once or not at all.
//!
//! The socket is not connected, so a receiver may start, stop and start again under the same path.
//! All kinds of datagrams share one sequence of numbers. A datagram that is not sent leaves its
//! number to the next one, so a gap means that a datagram was sent and lost.

use headway_telemetry::datagram::{Header, Writer};
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, offset_of, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The reason why a path cannot be a target.
#[derive(Debug)]
pub enum TargetError {
    /// The path, of this many bytes, does not fit into an address.
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
pub struct DatagramSender {
    socket: ManuallyDrop<OwnedFd>,
    /// Identifies the socket: a program may close any descriptor, and its next file gets the
    /// number.
    inode: Option<u64>,
    address: libc::sockaddr_un,
    pid: u32,
    /// The sequence number of the last datagram that was sent.
    seq: u32,
    writer: Writer,
    lost: u64,
}

impl DatagramSender {
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
        let socket = open_socket().map_err(TargetError::System)?;
        Ok(Self {
            inode: inode_of(&socket),
            socket: ManuallyDrop::new(socket),
            address,
            pid: std::process::id(),
            seq: 0,
            writer: Writer::default(),
            lost: 0,
        })
    }

    /// Sends the fields that `write` writes, now. Returns false if no receiver takes them.
    pub fn send(&mut self, kind: u8, write: impl FnOnce(&mut Writer)) -> bool {
        self.send_as_of(kind, wall_s(), write)
    }

    /// As `send`, with the time `stamp_s`, in seconds since 1970.
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

    fn hand_over(&mut self) -> bool {
        if self.inode.is_none() || inode_of(&self.socket) != self.inode {
            let Ok(socket) = open_socket() else { return false };
            self.inode = inode_of(&socket);
            // The descriptor with the old number is the program's now.
            self.socket = ManuallyDrop::new(socket);
        }
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

impl Drop for DatagramSender {
    fn drop(&mut self) {
        if inode_of(&self.socket) == self.inode {
            // SAFETY: the socket is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket has no preconditions.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn inode_of(socket: &OwnedFd) -> Option<u64> {
    // SAFETY: all zero bytes are a valid `stat`, which the call only writes to.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(socket.as_raw_fd(), &mut stat) == 0).then_some(stat.st_ino)
    }
}

/// Seconds since 1970.
pub fn wall_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn what_a_program_opens_under_the_same_number_is_not_touched() {
        let path = std::env::temp_dir().join(format!("headway-socket-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut post = DatagramSender::open(&path).unwrap();
        let number = post.socket.as_raw_fd();
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: two open descriptors.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), number) } >= 0);
        assert!(post.send(2, |_| ()));
        assert!(receiver.recv(&mut [0; 64]).unwrap() > 0);
        let second = post.socket.as_raw_fd();
        // SAFETY: likewise.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), second) } >= 0);
        drop(post);
        for number in [number, second] {
            // SAFETY: the duplicates that were made above, if they are there yet.
            assert_eq!(unsafe { libc::close(number) }, 0, "it was closed");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
