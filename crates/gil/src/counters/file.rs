//! Counters files: copies of a mapping, what lies behind it, and reading.
//!
//! Users know such a file as a ledger. Behind the mapping lie the profile, if there is one, and
//! then the trace, if there is one.

use std::ffi::{CStr, c_int, c_void};
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering::*;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::mapping::{
    Header, MappingError, SLOTS, claimed, claimed_count, header, length_of, mapping_bytes,
    read_identity, reserve, slot_offset,
};
use super::process::ProcessCounters;
use super::thread::ThreadCounters;

/// Writes the used part of the mapping to `fd`, at the same offsets; the error is an errno.
/// Async-signal-safe.
pub fn write_to(fd: c_int) -> Result<(), c_int> {
    let header = header().ok_or(libc::ENOENT)?;
    write_from(fd, std::ptr::from_ref(header).cast(), size_of::<Header>(), 0)?;
    for slot in claimed(header) {
        let rows = slot.high_water.load(Relaxed) as usize;
        let used =
            std::mem::offset_of!(ProcessCounters, threads) + rows * size_of::<ThreadCounters>();
        write_from(fd, slot.slot.cast(), used, slot_offset(slot.index))?;
    }
    // SAFETY: no pointers.
    match unsafe { libc::ftruncate(fd, mapping_bytes(SLOTS) as libc::off_t) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Writes `bytes` bytes to `fd`, `skip` bytes behind the mapping that `write_to` wrote; the error
/// is an errno. Async-signal-safe.
pub fn write_behind(fd: c_int, skip: usize, start: *const u8, bytes: usize) -> Result<(), c_int> {
    write_from(fd, start, bytes, mapping_bytes(SLOTS) + skip)
}

fn write_from(fd: c_int, start: *const u8, bytes: usize, offset: usize) -> Result<(), c_int> {
    let mut done = 0;
    while done < bytes {
        let at = (offset + done) as libc::off_t;
        // Other threads write to the range, so it cannot be a slice.
        // SAFETY: the range lies in memory that stays mapped.
        let wrote = unsafe { libc::pwrite(fd, start.add(done).cast(), bytes - done, at) };
        match usize::try_from(wrote) {
            Ok(0) => return Err(libc::EIO),
            Ok(wrote) => done += wrote,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(errno()),
        }
    }
    Ok(())
}

fn errno() -> c_int {
    Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Appends `bytes` zero bytes, with space on the disk, to a counters file and maps them. The file
/// has `skip` bytes, whole pages, behind the mapping. The error is an errno; `EEXIST` if it has
/// more.
pub fn append(path: &CStr, skip: usize, bytes: usize) -> Result<*mut c_void, c_int> {
    let fd = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Errno::raw_os_error)?;
    let offset = mapping_bytes(SLOTS) + skip;
    if length_of(fd.as_fd()).is_ok_and(|length| length > offset) {
        return Err(libc::EEXIST);
    }
    let appended = map_appended(fd.as_fd(), offset, bytes);
    if appended.is_err() {
        // Without space on the disk, the file keeps its old length.
        let _ = fs::ftruncate(&fd, offset as u64);
    }
    appended
}

/// Memory of this process. It is allocated at once, so that no hook waits for a page. A forked
/// child finds it zeroed. The error is an errno.
pub fn private_memory(bytes: usize) -> Result<*mut c_void, c_int> {
    map_private(bytes, MapFlags::POPULATE)
}

/// As `private_memory`, for what no hook writes to: a page is allocated when it is touched.
pub fn private_memory_on_demand(bytes: usize) -> Result<*mut c_void, c_int> {
    map_private(bytes, MapFlags::NORESERVE)
}

fn map_private(bytes: usize, allocation: MapFlags) -> Result<*mut c_void, c_int> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | allocation;
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }
        .map_err(Errno::raw_os_error)?;
    // A fork does not copy the pages' table then, which takes it longer than all the rest of its
    // work. Without this advice (before Linux 4.14) the child has a copy, and uses neither.
    // SAFETY: the mapping above, which no process but this one reads.
    let _ = unsafe { madvise(memory, bytes, Advice::LinuxWipeOnFork) };
    Ok(memory)
}

fn map_appended(fd: BorrowedFd, offset: usize, bytes: usize) -> Result<*mut c_void, c_int> {
    // glibc writes zero bytes where the file system cannot allocate; the system call fails.
    // SAFETY: an open file and no pointers.
    let allocated = unsafe {
        libc::posix_fallocate(fd.as_raw_fd(), offset as libc::off_t, bytes as libc::off_t)
    };
    if allocated != 0 {
        return Err(allocated);
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping of an open file that is long enough; the offset is whole pages.
    let memory =
        unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, fd, offset as u64) }
            .map_err(Errno::raw_os_error)?;
    match reserve(memory.cast(), bytes) {
        true => Ok(memory),
        false => Err(libc::ENOSPC),
    }
}

/// Maps the bytes behind the mapping in an open counters file for reading, and returns their
/// address and number; `None` if there are none.
pub fn map_behind(fd: BorrowedFd) -> Result<Option<(*mut c_void, usize)>, MappingError> {
    read_identity(fd)?;
    let bytes = length_of(fd)?.saturating_sub(mapping_bytes(SLOTS));
    if bytes == 0 {
        return Ok(None);
    }
    Ok(Some((map_to_read(fd, bytes, mapping_bytes(SLOTS))?, bytes)))
}

/// The file has bytes up to there, and the offset is whole pages.
fn map_to_read(fd: BorrowedFd, bytes: usize, offset: usize) -> Result<*mut c_void, MappingError> {
    let (access, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping of an open file.
    unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, fd, offset as u64) }
        .map_err(MappingError::map)
}

/// A counters file that is only read, with the slots that were claimed when it was opened.
pub struct Reader {
    header: *const Header,
    slots: usize,
}

impl Reader {
    /// Maps an open file, which the caller may close afterwards.
    pub fn map_all(fd: BorrowedFd) -> Result<Self, MappingError> {
        read_identity(fd)?;
        if length_of(fd)? < mapping_bytes(SLOTS) {
            return Err(MappingError::NotALedger);
        }
        // The header has the number of slots.
        let slots = claimed_count(Self::map(fd, 0)?.header());
        Self::map(fd, slots)
    }

    fn map(fd: BorrowedFd, slots: usize) -> Result<Self, MappingError> {
        Ok(Self { header: map_to_read(fd, mapping_bytes(slots), 0)?.cast(), slots })
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped until drop.
        unsafe { &*self.header }
    }

    pub fn slots(&self) -> impl Iterator<Item = &ProcessCounters> {
        // SAFETY: each of these slots is mapped until drop.
        (0..self.slots).map(|index| unsafe { &*self.header.byte_add(slot_offset(index)).cast() })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length.
        let _ = unsafe { munmap(self.header as *mut c_void, mapping_bytes(self.slots)) };
    }
}
