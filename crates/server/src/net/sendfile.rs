//! Sends the part of a response that lies in a file.
//!
//! The kernel copies the file to the socket (sendfile), without the GIL and without a thread that
//! waits for the client. A `FileBody` has a descriptor and an offset of its own, because the
//! application closes its file as soon as it has returned. Knows nothing of HTTP or Python. One
//! thread at a time uses it.

use crate::net::socket::{self, Transfer};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// The most that one call sends to a fast client before other connections get their turn.
const BYTES_PER_CALL: u64 = 16 << 20;
/// The size of a block if the kernel cannot copy.
const BLOCK_BYTES: usize = 16_384;

pub struct FileBody {
    file: File,
    offset: u64,
    left: u64,
    /// The file system does not support sendfile, so blocks are read and sent.
    by_reading: bool,
}

impl FileBody {
    /// The part of `fd` from `offset` to its present end. `None` if the file is not regular or not
    /// open for reading, or has no bytes there. Files of /proc may have fewer bytes than their
    /// size.
    pub fn from_offset(fd: BorrowedFd, offset: u64) -> Result<Option<Self>> {
        match rustix::fs::fcntl_getfl(fd) {
            Ok(flags) if flags & OFlags::ACCMODE != OFlags::WRONLY => {}
            _ => return Ok(None),
        }
        let file = File::from(fd.try_clone_to_owned()?);
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() <= offset {
            return Ok(None);
        }
        Ok(Some(Self { file, offset, left: metadata.len() - offset, by_reading: false }))
    }

    /// The number of bytes that are still to be sent.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Limits the rest to its first `bytes` bytes.
    pub fn truncate(&mut self, bytes: u64) {
        self.left = self.left.min(bytes);
    }

    /// Sends to a non-blocking socket as much as it accepts. `Moved` means all of it. `Ended` means
    /// that the peer is gone, or that the file has become shorter.
    pub fn send(&mut self, socket: BorrowedFd) -> Transfer {
        without_sigpipe(|| self.send_some(socket))
    }

    fn send_some(&mut self, socket: BorrowedFd) -> Transfer {
        self.send_in_steps(|file| match file.by_reading {
            true => file.copy(|block| socket::send(socket, block, false)),
            false => file.sendfile(socket),
        })
    }

    /// Sends like `send`, through a function that accepts some bytes of a block.
    pub fn send_by(&mut self, mut take: impl FnMut(&[u8]) -> Transfer) -> Transfer {
        self.send_in_steps(|file| file.copy(&mut take))
    }

    fn send_in_steps(&mut self, mut step: impl FnMut(&mut Self) -> Transfer) -> Transfer {
        let begun_with = self.left;
        while self.left > 0 {
            if begun_with - self.left >= BYTES_PER_CALL {
                return Transfer::Unfinished;
            }
            match step(self) {
                Transfer::Moved(_) => {}
                other => return other,
            }
        }
        Transfer::Moved((begun_with - self.left) as usize)
    }

    fn sendfile(&mut self, socket: BorrowedFd) -> Transfer {
        let mut offset = self.offset;
        let wanted = self.left.min(BYTES_PER_CALL) as usize;
        match rustix::fs::sendfile(socket, &self.file, Some(&mut offset), wanted) {
            Ok(count) => self.moved(count),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.by_reading = true;
                Transfer::Moved(0)
            }
            Err(Errno::INTR) => Transfer::Moved(0),
            Err(Errno::AGAIN) => Transfer::WouldBlock,
            Err(_) => Transfer::Ended,
        }
    }

    fn copy(&mut self, mut take: impl FnMut(&[u8]) -> Transfer) -> Transfer {
        let mut block = [0; BLOCK_BYTES];
        let Some(read) = self.peek(&mut block) else { return Transfer::Ended };
        match take(&block[..read]) {
            Transfer::Moved(count) => self.moved(count),
            other => other,
        }
    }

    /// Reads the next bytes without advancing the offset. `None` if the file ends here or cannot be
    /// read.
    fn peek(&self, block: &mut [u8]) -> Option<usize> {
        let wanted = self.left.min(block.len() as u64) as usize;
        loop {
            match self.file.read_at(&mut block[..wanted], self.offset) {
                Ok(0) => return None,
                Ok(count) => return Some(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// Advances the offset past sent bytes. 0 bytes while some are left mean that the file has
    /// become shorter.
    fn moved(&mut self, count: usize) -> Transfer {
        self.offset += count as u64;
        self.left -= count as u64;
        if count == 0 { Transfer::Ended } else { Transfer::Moved(count) }
    }
}

/// Runs `send` so that writing to a socket that the peer has closed is an error and not a signal:
/// sendfile has no MSG_NOSIGNAL, and an application may have restored the default effect of
/// SIGPIPE.
fn without_sigpipe(send: impl FnOnce() -> Transfer) -> Transfer {
    // SAFETY: zeroed memory is a place for a signal set, and all pointers are to live sets.
    unsafe {
        let (mut pipe, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let transfer = send();
        if transfer == Transfer::Ended && libc::sigismember(&before, libc::SIGPIPE) == 0 {
            // A SIGPIPE of the call may be pending, so remove it.
            let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &no_time);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        transfer
    }
}
