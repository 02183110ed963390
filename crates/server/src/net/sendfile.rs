//! The end of a response that lies in a file: how it gets from there to the socket.
//!
//! The kernel copies it (sendfile), without the GIL and without a thread that waits for the
//! client. Owns a descriptor of its own, since the application closes its file as soon as it has
//! returned; the offset is its own too. Knows nothing of HTTP or Python. One thread at a time.

use crate::net::socket::{self, Transfer};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// The most that one call sends to a client that takes it as fast as it comes, before other
/// connections get their turn.
const BYTES_PER_CALL: u64 = 16 << 20;
/// The size of a block where the kernel does not copy.
const BLOCK_BYTES: usize = 16_384;

pub struct FileBody {
    file: File,
    offset: u64,
    left: u64,
    /// The file system does not know sendfile: read and send.
    by_reading: bool,
}

impl FileBody {
    /// The part of `fd` from `offset` to the end as it is now. `None` if nothing is known to be
    /// there: no regular file, not opened for reading, empty from there on (which files of /proc
    /// only claim to be).
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

    /// Sends no more than the first `bytes` of what is left.
    pub fn truncate(&mut self, bytes: u64) {
        self.left = self.left.min(bytes);
    }

    /// Sends to a non-blocking socket what it takes. `Moved` means all; `Ended` that the peer is
    /// gone, or that the file has become shorter than it was.
    pub fn send(&mut self, socket: BorrowedFd) -> Transfer {
        without_sigpipe(|| self.send_some(socket))
    }

    fn send_some(&mut self, socket: BorrowedFd) -> Transfer {
        self.send_in_steps(|file| match file.by_reading {
            true => file.copy(|block| socket::send(socket, block, false)),
            false => file.sendfile(socket),
        })
    }

    /// As `send`, through a function that takes over some bytes of a block.
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

    /// Reads the next bytes without passing over them; `None` if the file ends or fails here.
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

    /// Passes over bytes that were sent. 0 bytes although some are left: the file ended early.
    fn moved(&mut self, count: usize) -> Transfer {
        self.offset += count as u64;
        self.left -= count as u64;
        if count == 0 { Transfer::Ended } else { Transfer::Moved(count) }
    }
}

/// Runs `send` so that writing to a socket that the peer has closed is an error and no signal:
/// sendfile knows no MSG_NOSIGNAL, and an application may have given SIGPIPE its default effect.
fn without_sigpipe(send: impl FnOnce() -> Transfer) -> Transfer {
    // SAFETY: zeroed memory is a place for a signal set, and all pointers are to live sets.
    unsafe {
        let (mut pipe, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let transfer = send();
        if transfer == Transfer::Ended && libc::sigismember(&before, libc::SIGPIPE) == 0 {
            // Perhaps it is pending: take it away.
            let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &no_time);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        transfer
    }
}
