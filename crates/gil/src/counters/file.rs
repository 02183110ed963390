//! Counters files: copies of a mapping, what lies behind it, and reading.
//!
//! Users know such a file as a ledger. The trace, if there is one, lies behind the mapping.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::*;

use super::mapping::{
    Header, MappingError, SLOTS, claimed, claimed_count, errno, header, length_of, mapping_bytes,
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
    // SAFETY: `fd` is the caller's open file.
    match unsafe { libc::ftruncate(fd, mapping_bytes(SLOTS) as libc::off_t) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Writes `bytes` bytes to `fd` behind the mapping that `write_to` wrote; the error is an errno.
/// Async-signal-safe.
pub fn write_behind(fd: c_int, start: *const u8, bytes: usize) -> Result<(), c_int> {
    write_from(fd, start, bytes, mapping_bytes(SLOTS))
}

fn write_from(fd: c_int, start: *const u8, bytes: usize, offset: usize) -> Result<(), c_int> {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the range lies in memory that stays mapped.
        let wrote = unsafe {
            libc::pwrite(fd, start.add(done).cast(), bytes - done, (offset + done) as libc::off_t)
        };
        match wrote {
            ..=0 if errno() == libc::EINTR => {}
            ..=0 => return Err(errno()),
            _ => done += wrote as usize,
        }
    }
    Ok(())
}

/// Appends `bytes` zero bytes, with space on the disk, to a counters file and maps them. The error
/// is an errno; `EEXIST` if something lies behind the mapping already.
pub fn append(path: &CStr, bytes: usize) -> Result<*mut c_void, c_int> {
    // SAFETY: `path` is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(errno());
    }
    let offset = mapping_bytes(SLOTS) as libc::off_t;
    if length_of(fd).is_ok_and(|length| length > mapping_bytes(SLOTS)) {
        // SAFETY: `fd` is ours.
        unsafe { libc::close(fd) };
        return Err(libc::EEXIST);
    }
    // SAFETY: `fd` is an open file, and nothing lies behind the mapping; the offset is whole pages.
    let memory = unsafe {
        match libc::posix_fallocate(fd, offset, bytes as libc::off_t) {
            0 => Ok(libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                offset,
            )),
            error => Err(error),
        }
    };
    let memory = match memory {
        Ok(libc::MAP_FAILED) => Err(errno()),
        Ok(memory) if reserve(memory.cast(), bytes) => Ok(memory),
        Ok(_) => Err(libc::ENOSPC),
        Err(error) => Err(error),
    };
    // Without space on the disk, the file keeps its old length.
    // SAFETY: `fd` is ours; the mapping outlives it.
    unsafe {
        if memory.is_err() {
            libc::ftruncate(fd, offset);
        }
        libc::close(fd);
    }
    memory
}

/// Maps the bytes behind the mapping in a counters file for reading, and returns their address and
/// number; `None` if there are none.
pub fn map_behind(path: &CStr) -> Result<Option<(*mut c_void, usize)>, MappingError> {
    // SAFETY: `path` is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(MappingError::Open(errno()));
    }
    let mapped = read_identity(fd).and_then(|_| {
        let bytes = length_of(fd)?.saturating_sub(mapping_bytes(SLOTS));
        if bytes == 0 {
            return Ok(None);
        }
        let offset = mapping_bytes(SLOTS) as libc::off_t;
        // SAFETY: a fresh mapping of an open file that is long enough; the offset is whole pages.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, offset)
        };
        match memory == libc::MAP_FAILED {
            true => Err(MappingError::Map(errno())),
            false => Ok(Some((memory, bytes))),
        }
    });
    // SAFETY: `fd` is ours; the mapping outlives it.
    unsafe { libc::close(fd) };
    mapped
}

/// A counters file that is only read, with the slots that were claimed when it was opened.
pub struct Reader {
    header: *const Header,
    slots: usize,
}

impl Reader {
    pub fn open(path: &CStr) -> Result<Self, MappingError> {
        // SAFETY: `path` is a C string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(MappingError::Open(errno()));
        }
        let reader = read_identity(fd).and_then(|_| Self::map(fd));
        // SAFETY: `fd` is ours; the mapping outlives it.
        unsafe { libc::close(fd) };
        reader
    }

    fn map(fd: c_int) -> Result<Self, MappingError> {
        if length_of(fd)? < mapping_bytes(SLOTS) {
            return Err(MappingError::NotALedger);
        }
        // The header knows how many slots there are.
        let slots = claimed_count(Self::map_slots(fd, 0)?.header());
        Self::map_slots(fd, slots)
    }

    fn map_slots(fd: c_int, slots: usize) -> Result<Self, MappingError> {
        let bytes = mapping_bytes(slots);
        // SAFETY: a fresh mapping of an open file that is long enough.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
        };
        match memory == libc::MAP_FAILED {
            true => Err(MappingError::Map(errno())),
            false => Ok(Self { header: memory.cast(), slots }),
        }
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
        unsafe { libc::munmap(self.header as *mut c_void, mapping_bytes(self.slots)) };
    }
}
