//! The socket of the reporter. A datagram is sent immediately or not at all.
//!
//! The socket is not connected, so a receiver may start, stop and start again under the same path.
//! All kinds of datagrams share one sequence of numbers. A datagram that is not sent leaves its
//! number to the next one, so a gap means that a datagram was sent and lost.

use headway_measure::clock::wall_s;
use headway_telemetry::datagram::{Header, Writer};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, offset_of, size_of};
use std::os::fd::OwnedFd;
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

/// The size of a path in an address without the terminating zero byte.
const MAX_PATH_BYTES: usize =
    size_of::<libc::sockaddr_un>() - offset_of!(libc::sockaddr_un, sun_path) - 1;

/// Sends the datagrams of this process. Used by one thread at a time.
pub struct DatagramSender {
    socket: ManuallyDrop<OwnedFd>,
    /// Identifies the socket, because a program may close any descriptor and reuse its number.
    inode: Option<u64>,
    address: SocketAddrUnix,
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
        let system = |error: Errno| TargetError::System(error.into());
        let address = SocketAddrUnix::new(path).map_err(system)?;
        let socket = open_socket().map_err(system)?;
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

    /// Sends the fields that `write` writes, with the current time. Returns false if no receiver
    /// accepts them.
    pub fn send(&mut self, kind: u8, write: impl FnOnce(&mut Writer)) -> bool {
        self.send_as_of(kind, wall_s(), write)
    }

    /// Does the same as `send`, with the time `stamp_s` in seconds since 1970.
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
            // The old descriptor belongs to the program now and must not be closed.
            self.socket = ManuallyDrop::new(socket);
        }
        let bytes = self.writer.bytes();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        retry_on_intr(|| net::sendto(&*self.socket, bytes, flags, &self.address)).is_ok()
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

fn open_socket() -> Result<OwnedFd, Errno> {
    net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

fn inode_of(socket: &OwnedFd) -> Option<u64> {
    Some(rustix::fs::fstat(socket).ok()?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn what_a_program_opens_under_the_same_number_is_not_touched() {
        let path = std::env::temp_dir().join(format!("headway-socket-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut sender = DatagramSender::open(&path).unwrap();
        let number = sender.socket.as_raw_fd();
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: two open descriptors.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), number) } >= 0);
        assert!(sender.send(2, |_| ()));
        assert!(receiver.recv(&mut [0; 64]).unwrap() > 0);
        let second = sender.socket.as_raw_fd();
        // SAFETY: two open descriptors.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), second) } >= 0);
        drop(sender);
        for number in [number, second] {
            // SAFETY: the duplicates that were made above, if they are there yet.
            assert_eq!(unsafe { libc::close(number) }, 0, "it was closed");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
