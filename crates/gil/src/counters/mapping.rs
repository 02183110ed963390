//! The shared mapping that holds the counters of a process and of its children.
//!
//! The mapping is divided into equal slots, one per process. It is shared memory, so that a parent
//! reads what its children counted however they ended, or a file, so that any process can read it.
//! A process that finds no free slot counts in private memory, and is itself counted as unlisted.
//!
//! A process maps the header and its own slot, because containers and monitoring count address
//! space. It maps the slots of other processes while it reads them. No descriptor stays open for
//! that, because programs list and close their descriptors: mremap(2) with an old size of 0 makes a
//! second mapping of a shared mapping, and of further parts of it.
//!
//! Nothing here runs in hooks except `reserve`. A forked child calls `claim` from its fork handler,
//! which therefore makes system calls only and allocates nothing.

use std::ffi::{CStr, c_int, c_void};
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use headway_measure::clock;
use rustix::fs::{self, FlockOperation, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, pread};
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap, munmap,
};
use rustix::process::{Resource, getrlimit};

use super::process::ProcessCounters;

/// Processes that one mapping has room for, including the owner.
pub const SLOTS: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"HEADWAY1");
/// Changes whenever a field of the counters moves.
const LAYOUT: u64 = 7 << 48 | (size_of::<ProcessCounters>() as u64) << 8 | SLOTS as u64;

/// The first bytes of a mapping.
#[repr(C, align(4096))]
pub struct Header {
    magic: AtomicU64,
    layout: AtomicU64,
    /// The identity of the run. A child that joins by path checks it. Written once, by the owner.
    pub run: AtomicU64,
    /// The next slot to claim; only grows. Writers: any process of the run, by compare-and-swap.
    next_slot: AtomicU32,
    /// Processes that found no slot. Writers: any process of the run, by atomic addition.
    pub unlisted: AtomicU32,
}

/// Length of a mapping with `slots` slots, in bytes.
pub const fn mapping_bytes(slots: usize) -> usize {
    size_of::<Header>() + slots * size_of::<ProcessCounters>()
}

/// The header of this process's mapping; null before the first install. Written once, at install,
/// with release; read with acquire. Never unmapped.
static HEADER: AtomicPtr<Header> = AtomicPtr::new(std::ptr::null_mut());
/// The number of slots that the mapping has. Written at install, before `HEADER`.
static MAPPED_SLOTS: AtomicU32 = AtomicU32::new(0);
/// 1 if the mapping is a file: then a write to a page without room on the disk raises SIGBUS.
/// Written at install.
static FILE_BACKED: AtomicU32 = AtomicU32::new(0);
/// The slot of this process, which stays mapped, and its index; null and `SLOTS` if it has none.
/// Written at install and by a forked child, while no other thread reads them.
static OWN: AtomicPtr<ProcessCounters> = AtomicPtr::new(std::ptr::null_mut());
static OWN_INDEX: AtomicU32 = AtomicU32::new(SLOTS as u32);

/// Why there is no mapping; the number is an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingError {
    Open(c_int),
    Map(c_int),
    /// The file was not written by this version of Headway, or belongs to another run.
    NotALedger,
}

impl MappingError {
    fn open(error: Errno) -> Self {
        Self::Open(error.raw_os_error())
    }

    pub(super) fn map(error: Errno) -> Self {
        Self::Map(error.raw_os_error())
    }
}

/// Creates a mapping in memory without a name. If there is no room for all slots, it has one.
pub fn create_anonymous() -> Result<(), MappingError> {
    if create_in_memfd().is_ok() {
        return Ok(());
    }
    let mut error = 0;
    for slots in [SLOTS, 1] {
        match map_anonymous(mapping_bytes(slots), MapFlags::SHARED) {
            Ok(memory) => {
                let header = size_of::<Header>().next_multiple_of(page_bytes());
                // The memory stays as long as part of it is mapped.
                // SAFETY: the rest of the mapping above, to which there is no reference.
                let _ = unsafe { munmap(memory.add(header), mapping_bytes(slots) - header) };
                adopt(memory, slots);
                begin_run();
                return Ok(());
            }
            Err(errno) => error = errno.raw_os_error(),
        }
    }
    Err(MappingError::Map(error))
}

/// Creates the mapping in a memfd, which never needs address space for more than the header.
fn create_in_memfd() -> Result<(), MappingError> {
    // A file that grows beyond the limit has the process receive SIGXFSZ.
    let limit_bytes = getrlimit(Resource::Fsize).current;
    if limit_bytes.is_some_and(|limit_bytes| limit_bytes < mapping_bytes(SLOTS) as u64) {
        return Err(MappingError::Open(libc::EFBIG));
    }
    let fd =
        fs::memfd_create(c"headway-ledger", MemfdFlags::CLOEXEC).map_err(MappingError::open)?;
    let created = create_in(fd.as_fd());
    // Pages of memory need no reservation: the kernel allocates them when they are touched.
    FILE_BACKED.store(0, Relaxed);
    created
}

/// Creates a mapping of a new file at `path`. A present file is replaced, never truncated: another
/// process may have it mapped, and would be killed by a page that disappears.
pub fn create_file(path: &CStr) -> Result<(), MappingError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let _ = fs::unlink(path);
    let fd = fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(MappingError::open)?;
    create_in(fd.as_fd())
}

/// Creates a mapping of an empty, open file, which may have no name. The file stays locked (flock,
/// shared) as long as a process maps it, even without an open descriptor.
pub fn create_in(fd: BorrowedFd) -> Result<(), MappingError> {
    // Nothing depends on the lock.
    let _ = fs::flock(fd, FlockOperation::NonBlockingLockShared);
    // The file is sparse: only used pages take room on the disk.
    fs::ftruncate(fd, mapping_bytes(SLOTS) as u64).map_err(MappingError::map)?;
    map_file(fd)?;
    begin_run();
    Ok(())
}

/// Maps the file of a run that another process began.
pub fn join_file(path: &CStr, run: u64) -> Result<(), MappingError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty()).map_err(MappingError::open)?;
    // The file may be longer: its owner may have a trace behind the counters.
    if read_identity(fd.as_fd())? != run || length_of(fd.as_fd())? < mapping_bytes(SLOTS) {
        return Err(MappingError::NotALedger);
    }
    // As in `create_in`.
    let _ = fs::flock(&fd, FlockOperation::NonBlockingLockShared);
    map_file(fd.as_fd())
}

/// The identity of the run that the open counters file belongs to.
pub fn read_identity(fd: BorrowedFd) -> Result<u64, MappingError> {
    let mut head = [[0_u8; 8]; 3];
    let length = pread(fd, head.as_flattened_mut(), 0);
    let [magic, layout, run] = head.map(u64::from_ne_bytes);
    match length == Ok(size_of_val(&head)) && magic == MAGIC && layout == LAYOUT {
        true => Ok(run),
        false => Err(MappingError::NotALedger),
    }
}

fn map_file(fd: BorrowedFd) -> Result<(), MappingError> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: `fd` is an open file that is long enough; the mapping is fresh.
    let memory =
        unsafe { mmap(std::ptr::null_mut(), size_of::<Header>(), access, MapFlags::SHARED, fd, 0) }
            .map_err(MappingError::map)?;
    FILE_BACKED.store(1, Relaxed);
    if !reserve(memory.cast(), size_of::<Header>()) {
        // SAFETY: mapped above, used by nobody.
        let _ = unsafe { munmap(memory, size_of::<Header>()) };
        FILE_BACKED.store(0, Relaxed);
        return Err(MappingError::Map(libc::ENOSPC));
    }
    adopt(memory, SLOTS);
    Ok(())
}

/// Publishes the mapping of a header.
fn adopt(memory: *mut c_void, slots: usize) {
    // A refusal only makes core files larger. Mappings of slots inherit the advice.
    // SAFETY: the mapping is ours.
    let _ = unsafe { madvise(memory, size_of::<Header>(), Advice::LinuxDontDump) };
    MAPPED_SLOTS.store(slots as u32, Relaxed);
    HEADER.store(memory.cast(), Release);
}

/// Async-signal-safe in glibc. For hooks.
fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// A mapping of zero bytes without a reservation of memory.
fn map_anonymous(bytes: usize, sharing: MapFlags) -> Result<*mut c_void, Errno> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, sharing | MapFlags::NORESERVE);
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }
}

/// The offset of a slot from the header, in bytes.
pub(super) const fn slot_offset(index: usize) -> usize {
    size_of::<Header>() + index * size_of::<ProcessCounters>()
}

/// A slot that is mapped as long as this value lives, or permanently where `bytes` is 0.
pub struct MappedSlot {
    pub(super) slot: *const ProcessCounters,
    start: *mut c_void,
    bytes: usize,
    pub index: usize,
}

impl MappedSlot {
    /// Maps a slot of this process's mapping; `None` without address space for it.
    /// Async-signal-safe.
    fn map(header: &'static Header, index: usize) -> Option<Self> {
        let end = slot_offset(index + 1);
        let header = std::ptr::from_ref(header).cast_mut().cast();
        // SAFETY: the old mapping is ours, shared, and stays; the new mapping is fresh.
        let memory = unsafe { mremap(header, 0, end, MremapFlags::MAYMOVE) }.ok()?;
        let before = slot_offset(index) & !(page_bytes() - 1);
        // SAFETY: whole pages of the mapping above, to which there is no reference, and an address
        // in the rest.
        unsafe {
            let _ = munmap(memory, before);
            let slot = memory.cast::<u8>().add(slot_offset(index)).cast();
            Some(Self { slot, start: memory.add(before), bytes: end - before, index })
        }
    }

    /// Keeps the slot mapped permanently.
    fn keep(self) -> &'static ProcessCounters {
        let slot = self.slot;
        std::mem::forget(self);
        // SAFETY: mapped in its whole length, and never unmapped from now on.
        unsafe { &*slot }
    }
}

impl Deref for MappedSlot {
    type Target = ProcessCounters;

    fn deref(&self) -> &ProcessCounters {
        // SAFETY: mapped until drop, in its whole length.
        unsafe { &*self.slot }
    }
}

impl Drop for MappedSlot {
    fn drop(&mut self) {
        if self.bytes != 0 {
            // SAFETY: our own mapping, of this length.
            let _ = unsafe { munmap(self.start, self.bytes) };
        }
    }
}

fn begin_run() {
    // SAFETY: `adopt` just stored a mapping that starts with a header.
    let header = unsafe { &*HEADER.load(Acquire) };
    let pid = u64::from(std::process::id());
    header.run.store(clock::now_ns() << 8 ^ pid << 40, Relaxed);
    header.layout.store(LAYOUT, Relaxed);
    header.magic.store(MAGIC, Release);
}

/// The header of this process's mapping; `None` before the first install.
pub fn header() -> Option<&'static Header> {
    // SAFETY: null, or a mapping that is never unmapped.
    unsafe { HEADER.load(Acquire).as_ref() }
}

/// Takes a slot of the mapping for this process if one is free, else private memory. `None` only if
/// there is no memory. Async-signal-safe.
pub fn claim() -> Option<&'static ProcessCounters> {
    let slot = match header().and_then(claim_shared) {
        Some(slot) => slot,
        None => {
            let memory = map_anonymous(size_of::<ProcessCounters>(), MapFlags::PRIVATE).ok()?;
            // SAFETY: zeroed, aligned, as long as a slot, and never unmapped.
            unsafe { &*memory.cast::<ProcessCounters>() }
        }
    };
    slot.pid.store(std::process::id() as i32, Relaxed);
    Some(slot)
}

fn claim_shared(header: &'static Header) -> Option<&'static ProcessCounters> {
    // A forked child has its parent's slot mapped.
    OWN_INDEX.store(SLOTS as u32, Relaxed);
    let slots = MAPPED_SLOTS.load(Relaxed);
    let mut index = header.next_slot.load(Relaxed);
    loop {
        let mapped = match index < slots {
            true => MappedSlot::map(header, index as usize),
            false => None,
        };
        // The counters of the process and its GILs get memory before the claim, because readers
        // look at every claimed slot.
        let reserved = mapped.filter(|slot| {
            reserve(slot.slot.cast(), std::mem::offset_of!(ProcessCounters, threads))
        });
        let Some(slot) = reserved else {
            header.unlisted.fetch_add(1, Relaxed);
            return None;
        };
        match header.next_slot.compare_exchange(index, index + 1, AcqRel, Relaxed) {
            Ok(_) => {
                let slot = slot.keep();
                OWN.store(std::ptr::from_ref(slot).cast_mut(), Relaxed);
                OWN_INDEX.store(index, Relaxed);
                return Some(slot);
            }
            Err(now) => index = now,
        }
    }
}

/// Requests memory or disk space behind a part of the mapping, so that a hook that writes there
/// neither blocks for long nor is killed for lack of space. Pages of memory are allocated when they
/// are touched, like those of a stack. Async-signal-safe.
pub fn reserve(start: *const u8, bytes: usize) -> bool {
    if FILE_BACKED.load(Relaxed) == 0 {
        return true;
    }
    let page = page_bytes();
    let first = start as usize & !(page - 1);
    let length = ((start as usize + bytes + page - 1) & !(page - 1)) - first;
    // Fails cleanly (EFAULT, ENOMEM, EINVAL before Linux 5.14) where a plain write would raise
    // SIGBUS for lack of space.
    // SAFETY: the range lies in our mapping.
    let populated = unsafe { madvise(first as *mut c_void, length, Advice::LinuxPopulateWrite) };
    matches!(populated, Ok(()) | Err(Errno::INVAL))
}

/// The slots that processes have claimed, including this one, as far as there is address space for
/// them. Async-signal-safe.
pub fn claimed(header: &'static Header) -> impl Iterator<Item = MappedSlot> {
    let claimed = header.next_slot.load(Acquire).min(SLOTS as u32) as usize;
    let own = OWN_INDEX.load(Relaxed) as usize;
    (0..claimed).filter_map(move |index| match index == own {
        true => {
            let start = std::ptr::null_mut();
            Some(MappedSlot { slot: OWN.load(Relaxed), start, bytes: 0, index })
        }
        false => MappedSlot::map(header, index),
    })
}

/// The number of slots that processes have claimed.
pub fn claimed_count(header: &Header) -> usize {
    header.next_slot.load(Relaxed).min(SLOTS as u32) as usize
}

pub(super) fn length_of(fd: BorrowedFd) -> Result<usize, MappingError> {
    Ok(fs::fstat(fd).map_err(MappingError::map)?.st_size as usize)
}
