//! The mapping that holds the books of a process and of its children.
//!
//! One region is cut into equal slots, one per process. It is shared memory, so that a parent reads
//! what its children left however they ended, or a file, so that anybody can. A process
//! that finds no free slot keeps its books in private memory and is counted.
//!
//! A process maps the header and its own slot, since containers and monitoring count address space.
//! It maps the slots of others while it reads them. No descriptor stays open for that: programs list
//! their descriptors, and close them. mremap(2) with an old size of 0 makes a second mapping of what
//! a shared mapping maps, and further parts of it.
//!
//! Knows nothing of threads and GILs. Everything here is called outside the hooks, except `claim`,
//! which a forked child calls from its fork handler: system calls only, no allocation.

use std::ffi::{CStr, c_int, c_void};
use std::mem::size_of;
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use crate::counters::book::{COMMAND_BYTES, GilBook, Name, Text, ThreadBook, state};

/// Processes that one region has room for, the owner among them.
pub const SLOTS: usize = 64;
/// GILs per process. The last stands for the sum of GILs that ended.
pub const GILS: usize = 64;
/// (thread, GIL) rows per process.
pub const BOOKS: usize = 2048;

const MAGIC: u64 = u64::from_le_bytes(*b"HEADWAY1");
/// Changes whenever a field of a book moves.
const LAYOUT: u64 = 3 << 48 | (size_of::<Slot>() as u64) << 8 | SLOTS as u64;

/// The first bytes of a region.
#[repr(C, align(4096))]
pub struct Header {
    magic: AtomicU64,
    layout: AtomicU64,
    /// Which run this is; a child that joins by path checks it. Written once, by the owner.
    pub run: AtomicU64,
    /// The next slot to claim: only ever grows. Writers: any process of the run.
    next_slot: AtomicU32,
    /// Processes that found no slot. Writers: any process of the run.
    pub unlisted: AtomicU32,
}

/// The books of one process. All zero bytes are a process that has measured nothing.
#[repr(C, align(4096))]
pub struct Slot {
    pub pid: AtomicI32,
    /// 0 disabled, 1 enabled: whether the interpreter's GIL was on when last asked.
    pub gil_enabled: AtomicU32,
    /// As last asked; in microseconds.
    pub switch_interval_us: AtomicU64,
    pub opened_ns: AtomicU64,
    /// When the process stopped measuring; 0 while it has not.
    pub closed_ns: AtomicU64,
    /// Events of threads that found no free book; writers: hooks, with an atomic addition.
    pub unmeasured: AtomicU64,
    /// Books from 0 to here have been in use.
    pub high_water: AtomicU32,
    /// The policy in force, as an index into `headway_sched::PolicyName::ALL`.
    pub policy: AtomicU32,
    /// 1 where waits of a free-threaded build are seen: see `parks`.
    pub sees_parks: AtomicU32,
    /// The CPU time of the process when its books opened.
    pub cpu_opened_ns: AtomicU64,
    /// And when they closed, or, with `closed_ns` 0, at the last snapshot that the process itself took.
    pub cpu_noted_ns: AtomicU64,
    pub python: Name,
    /// The process that this one was forked from; 0 if it was started by exec.
    pub forked_from: AtomicI32,
    /// The parent when the books opened; 0 where that is not known.
    pub parent_pid: AtomicI32,
    /// The arguments of the process as the kernel has them, separated by zero bytes; of a forked process its parent's.
    /// Empty where they cannot be read.
    pub command: Text<COMMAND_BYTES>,
    pub gils: [GilBook; GILS],
    pub books: [ThreadBook; BOOKS],
}

impl Slot {
    /// Begins clean books. The thread books are the slab's to reset.
    pub fn reset(&self, now_ns: u64, python: &str, gil_enabled: bool) {
        self.gils.iter().for_each(|book| book.state.store(state::FREE, Relaxed));
        self.gils[GILS - 1].clear();
        self.python.set(python.as_bytes());
        // A forked process that installs the meter anew is forked all the same.
        if self.parent_pid.load(Relaxed) == 0 {
            // SAFETY: no preconditions.
            self.parent_pid.store(unsafe { libc::getppid() }, Relaxed);
            self.command.set(&command_of_this_process());
        }
        self.gil_enabled.store(gil_enabled as u32, Relaxed);
        self.unmeasured.store(0, Relaxed);
        self.sees_parks.store(0, Relaxed);
        self.open_cpu_time();
        self.closed_ns.store(0, Relaxed);
        self.opened_ns.store(now_ns, Relaxed);
    }

    /// Begins the books of a forked child of the process that `parent` belongs to.
    pub fn begin_like(&self, parent: &Slot, now_ns: u64) {
        self.python.copy_from(&parent.python);
        let parent_pid = parent.pid.load(Relaxed);
        self.parent_pid.store(parent_pid, Relaxed);
        self.forked_from.store(parent_pid, Relaxed);
        self.command.copy_from(&parent.command);
        self.gil_enabled.store(parent.gil_enabled.load(Relaxed), Relaxed);
        self.policy.store(parent.policy.load(Relaxed), Relaxed);
        self.switch_interval_us.store(parent.switch_interval_us.load(Relaxed), Relaxed);
        self.sees_parks.store(parent.sees_parks.load(Relaxed), Relaxed);
        self.open_cpu_time();
        self.opened_ns.store(now_ns, Relaxed);
    }

    fn open_cpu_time(&self) {
        let cpu_ns = headway_measure::clock::process_cpu_ns();
        self.cpu_opened_ns.store(cpu_ns, Relaxed);
        self.cpu_noted_ns.store(cpu_ns, Relaxed);
    }
}

/// As much as is kept of it. Not in hooks.
fn command_of_this_process() -> Vec<u8> {
    use std::io::Read;
    let mut command = Vec::new();
    if let Ok(file) = std::fs::File::open("/proc/self/cmdline") {
        // What was read before an error is the beginning all the same.
        let _ = file.take(COMMAND_BYTES as u64 + 4).read_to_end(&mut command);
    }
    command
}

/// Length of a region with `slots` slots, in bytes.
pub const fn region_bytes(slots: usize) -> usize {
    size_of::<Header>() + slots * size_of::<Slot>()
}

/// The header of this process's region. Written at install, never unmapped.
static REGION: AtomicPtr<Header> = AtomicPtr::new(std::ptr::null_mut());
static REGION_SLOTS: AtomicU32 = AtomicU32::new(0);
/// Whether the region is a file: then a write to a page without room on the disk would kill.
static FILE_BACKED: AtomicU32 = AtomicU32::new(0);
/// The slot of the region that this process has mapped for good, and its index; null and `SLOTS` if
/// it has none. Written at install and by a forked child, while no other thread reads them.
static OWN: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
static OWN_INDEX: AtomicU32 = AtomicU32::new(SLOTS as u32);

/// Why there is no region; the number is an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    Open(c_int),
    Map(c_int),
    /// The file is not a ledger of this version of Headway, or of another run.
    NotALedger,
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Makes a region in memory that has no name; with room for this process alone if there is no room
/// for more.
pub fn create_anonymous() -> Result<(), RegionError> {
    if create_in_memfd().is_ok() {
        return Ok(());
    }
    let mut error = 0;
    for slots in [SLOTS, 1] {
        // SAFETY: a fresh anonymous mapping, wherever the kernel likes.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                region_bytes(slots),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory != libc::MAP_FAILED {
            let header = size_of::<Header>().next_multiple_of(page_bytes());
            // The memory is there as long as part of it is mapped.
            // SAFETY: the rest of the mapping above, which nobody uses.
            unsafe { libc::munmap(memory.add(header), region_bytes(slots) - header) };
            adopt(memory, slots);
            begin_run();
            return Ok(());
        }
        error = errno();
    }
    Err(RegionError::Map(error))
}

/// As `create_anonymous`, and never reserves address space for more than the header.
fn create_in_memfd() -> Result<(), RegionError> {
    // SAFETY: zero bytes are a valid limit; a C string; the descriptor is ours.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        // Beyond the limit a file does not grow: the process is sent SIGXFSZ.
        if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) != 0
            || limit.rlim_cur < region_bytes(SLOTS) as libc::rlim_t
        {
            return Err(RegionError::Open(libc::EFBIG));
        }
        let fd = libc::memfd_create(c"headway-ledger".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(RegionError::Open(errno()));
        }
        let created = create_in(fd);
        libc::close(fd);
        // Pages of memory need no reservation: they are allocated when they are touched.
        FILE_BACKED.store(0, Relaxed);
        created
    }
}

/// Makes a region in a new file at `path`. One that is there is replaced, never emptied: another
/// process may have it mapped, and would be killed by the page that goes.
pub fn create_file(path: &CStr) -> Result<(), RegionError> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: `path` is a C string.
    let fd = unsafe {
        libc::unlink(path.as_ptr());
        libc::open(path.as_ptr(), flags, 0o600)
    };
    if fd < 0 {
        return Err(RegionError::Open(errno()));
    }
    let created = create_in(fd);
    // SAFETY: `fd` is ours; the mapping outlives it.
    unsafe { libc::close(fd) };
    created
}

/// Makes a region in an empty file that is open, which may have no name. The file stays locked (flock,
/// shared) as long as a process maps it, whether descriptors are open or not.
pub fn create_in(fd: c_int) -> Result<(), RegionError> {
    // Sparse: only what is used takes room on the disk.
    // SAFETY: `fd` is an open file. Where the lock cannot be had, nothing depends on it.
    let truncated = unsafe {
        libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB);
        libc::ftruncate(fd, region_bytes(SLOTS) as libc::off_t)
    };
    if truncated != 0 {
        return Err(RegionError::Map(errno()));
    }
    map_file(fd)?;
    begin_run();
    Ok(())
}

/// Maps the region of a run that another process began.
pub fn join_file(path: &CStr, run: u64) -> Result<(), RegionError> {
    // SAFETY: `path` is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(RegionError::Open(errno()));
    }
    let joined = read_identity(fd).and_then(|identity| match identity == run {
        // As long as it is: behind the region its owner may have a trace.
        true if length_of(fd)? >= region_bytes(SLOTS) => {
            // SAFETY: `fd` is an open file; see `create_in`.
            unsafe { libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) };
            map_file(fd)
        }
        _ => Err(RegionError::NotALedger),
    });
    // SAFETY: `fd` is ours; the mapping outlives it.
    unsafe { libc::close(fd) };
    joined
}

/// The run that the ledger open at `fd` belongs to.
pub fn read_identity(fd: c_int) -> Result<u64, RegionError> {
    let mut head = [0_u64; 3];
    // SAFETY: the buffer is as long as said.
    let length = unsafe { libc::pread(fd, head.as_mut_ptr().cast(), size_of::<[u64; 3]>(), 0) };
    let [magic, layout, run] = head;
    match length == size_of::<[u64; 3]>() as isize && magic == MAGIC && layout == LAYOUT {
        true => Ok(run),
        false => Err(RegionError::NotALedger),
    }
}

fn map_file(fd: c_int) -> Result<(), RegionError> {
    // SAFETY: `fd` is an open file that is long enough; the mapping is fresh.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Header>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(RegionError::Map(errno()));
    }
    FILE_BACKED.store(1, Relaxed);
    if !reserve(memory.cast(), size_of::<Header>()) {
        // SAFETY: mapped above, used by nobody.
        unsafe { libc::munmap(memory, size_of::<Header>()) };
        FILE_BACKED.store(0, Relaxed);
        return Err(RegionError::Map(libc::ENOSPC));
    }
    adopt(memory, SLOTS);
    Ok(())
}

/// Takes the mapping of a header into use.
fn adopt(memory: *mut c_void, slots: usize) {
    // SAFETY: the mapping is ours; a refusal costs core-file room only. Mappings of slots inherit it.
    unsafe { libc::madvise(memory, size_of::<Header>(), libc::MADV_DONTDUMP) };
    REGION_SLOTS.store(slots as u32, Relaxed);
    REGION.store(memory.cast(), Release);
}

/// Async-signal-safe in glibc.
fn page_bytes() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Where a slot lies behind the header, in bytes.
const fn slot_offset(index: usize) -> usize {
    size_of::<Header>() + index * size_of::<Slot>()
}

/// A slot that is mapped as long as this lives; for good where `bytes` is 0.
pub struct MappedSlot {
    slot: *const Slot,
    start: *mut c_void,
    bytes: usize,
    pub index: usize,
}

impl MappedSlot {
    /// Maps a slot of this process's region. `None` without address space for it. Async-signal-safe.
    fn map(header: &'static Header, index: usize) -> Option<Self> {
        let end = slot_offset(index + 1);
        let header = std::ptr::from_ref(header).cast_mut().cast();
        // SAFETY: a shared mapping of ours that stays; the new mapping is fresh.
        let memory = unsafe { libc::mremap(header, 0, end, libc::MREMAP_MAYMOVE) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let before = slot_offset(index) & !(page_bytes() - 1);
        // SAFETY: whole pages of the mapping above, which nobody uses, and an address in the rest.
        unsafe {
            libc::munmap(memory, before);
            let slot = memory.cast::<u8>().add(slot_offset(index)).cast();
            Some(Self { slot, start: memory.add(before), bytes: end - before, index })
        }
    }

    /// The slot, mapped for good.
    fn keep(self) -> &'static Slot {
        let slot = self.slot;
        std::mem::forget(self);
        // SAFETY: mapped, as long as a slot, and never unmapped from now on.
        unsafe { &*slot }
    }
}

impl Deref for MappedSlot {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        // SAFETY: mapped until drop, and as long as a slot.
        unsafe { &*self.slot }
    }
}

impl Drop for MappedSlot {
    fn drop(&mut self) {
        if self.bytes != 0 {
            // SAFETY: our own mapping, of this length.
            unsafe { libc::munmap(self.start, self.bytes) };
        }
    }
}

fn begin_run() {
    // SAFETY: `adopt` just stored a mapping that starts with a header.
    let header = unsafe { &*REGION.load(Acquire) };
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() } as u64;
    header.run.store(headway_measure::clock::now_ns() << 8 ^ pid << 40, Relaxed);
    header.layout.store(LAYOUT, Relaxed);
    header.magic.store(MAGIC, Release);
}

/// The header of this process's region, once there is one.
pub fn header() -> Option<&'static Header> {
    // SAFETY: either null or a mapping that is never unmapped.
    unsafe { REGION.load(Acquire).as_ref() }
}

/// Takes a slot for this process: of the region if one is free, else in private memory. `None`
/// only if there is no memory at all. Async-signal-safe.
pub fn claim() -> Option<&'static Slot> {
    let slot = match header().and_then(claim_shared) {
        Some(slot) => slot,
        None => {
            // SAFETY: a fresh private mapping of the size of a slot.
            let memory = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    size_of::<Slot>(),
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if memory == libc::MAP_FAILED {
                return None;
            }
            // SAFETY: zeroed, aligned, as long as a slot, and never unmapped.
            unsafe { &*memory.cast::<Slot>() }
        }
    };
    // SAFETY: getpid has no preconditions.
    slot.pid.store(unsafe { libc::getpid() }, Relaxed);
    Some(slot)
}

fn claim_shared(header: &'static Header) -> Option<&'static Slot> {
    // Until there is another: a forked child has mapped its parent's.
    OWN_INDEX.store(SLOTS as u32, Relaxed);
    let slots = REGION_SLOTS.load(Relaxed);
    let mut index = header.next_slot.load(Relaxed);
    loop {
        let mapped = match index < slots {
            true => MappedSlot::map(header, index as usize),
            false => None,
        };
        // Room for the head and the GILs first: readers look at every slot that is claimed.
        let reserved =
            mapped.filter(|slot| reserve(slot.slot.cast(), std::mem::offset_of!(Slot, books)));
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

/// Asks for real memory or disk behind a part of the region, so that a hook that writes there can
/// neither block for long nor be killed for want of room. Pages of plain memory come when they are
/// touched, as those of a stack do. Async-signal-safe.
pub fn reserve(start: *const u8, bytes: usize) -> bool {
    if FILE_BACKED.load(Relaxed) == 0 {
        return true;
    }
    const MADV_POPULATE_WRITE: c_int = 23;
    let page = page_bytes();
    let first = start as usize & !(page - 1);
    let length = (start as usize + bytes).next_multiple_of(page) - first;
    // SAFETY: the range lies in our mapping. Fails cleanly (EFAULT, ENOMEM, EINVAL before Linux
    // 5.14) where a plain write would raise SIGBUS for want of room.
    let populated = unsafe { libc::madvise(first as *mut c_void, length, MADV_POPULATE_WRITE) };
    populated == 0 || errno() == libc::EINVAL
}

/// The slots of the region that processes have claimed, this one's among them, as far as there is
/// address space for them. Async-signal-safe.
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

/// How many slots processes have claimed.
pub fn claimed_count(header: &Header) -> usize {
    header.next_slot.load(Relaxed).min(SLOTS as u32) as usize
}

/// Writes the used part of the region, at its places, to `fd`; the error is an errno.
/// Async-signal-safe.
pub fn write_to(fd: c_int) -> Result<(), c_int> {
    let header = header().ok_or(libc::ENOENT)?;
    write_from(fd, std::ptr::from_ref(header).cast(), size_of::<Header>(), 0)?;
    for slot in claimed(header) {
        let books = slot.high_water.load(Relaxed) as usize;
        let used = std::mem::offset_of!(Slot, books) + books * size_of::<ThreadBook>();
        write_from(fd, slot.slot.cast(), used, slot_offset(slot.index))?;
    }
    // SAFETY: `fd` is the caller's open file.
    match unsafe { libc::ftruncate(fd, region_bytes(SLOTS) as libc::off_t) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Writes `bytes` behind the region that `write_to` wrote to `fd`; the error is an errno.
/// Async-signal-safe.
pub fn write_behind(fd: c_int, start: *const u8, bytes: usize) -> Result<(), c_int> {
    write_from(fd, start, bytes, region_bytes(SLOTS))
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

/// Makes a ledger file longer by `bytes` zero bytes that have room on the disk, and maps these; the error is
/// an errno, `EEXIST` if something lies there.
pub fn append(path: &CStr, bytes: usize) -> Result<*mut c_void, c_int> {
    // SAFETY: `path` is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(errno());
    }
    let offset = region_bytes(SLOTS) as libc::off_t;
    if length_of(fd).is_ok_and(|length| length > region_bytes(SLOTS)) {
        // SAFETY: `fd` is ours.
        unsafe { libc::close(fd) };
        return Err(libc::EEXIST);
    }
    // SAFETY: `fd` is an open file, and nothing lies behind the region; the offset is whole pages.
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
    // SAFETY: `fd` is ours; the mapping outlives it. Where there was no room the file is as it was.
    unsafe {
        if memory.is_err() {
            libc::ftruncate(fd, offset);
        }
        libc::close(fd);
    }
    memory
}

/// Maps what lies behind the region in a ledger file, to be read: where, and how many bytes. `None` if
/// nothing does.
pub fn map_behind(path: &CStr) -> Result<Option<(*mut c_void, usize)>, RegionError> {
    // SAFETY: `path` is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(RegionError::Open(errno()));
    }
    let mapped = read_identity(fd).and_then(|_| {
        let bytes = length_of(fd)?.saturating_sub(region_bytes(SLOTS));
        if bytes == 0 {
            return Ok(None);
        }
        let offset = region_bytes(SLOTS) as libc::off_t;
        // SAFETY: a fresh mapping of an open file that is long enough; the offset is whole pages.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, offset)
        };
        match memory == libc::MAP_FAILED {
            true => Err(RegionError::Map(errno())),
            false => Ok(Some((memory, bytes))),
        }
    });
    // SAFETY: `fd` is ours; the mapping outlives it.
    unsafe { libc::close(fd) };
    mapped
}

fn length_of(fd: c_int) -> Result<usize, RegionError> {
    // SAFETY: zeroed memory is a valid `stat`, and `fd` is open.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(fd, &mut stat) {
            0 => Ok(stat.st_size as usize),
            _ => Err(RegionError::Map(errno())),
        }
    }
}

/// A ledger file that is only read, as far as it was in use when it was opened.
pub struct Reader {
    header: *const Header,
    slots: usize,
}

impl Reader {
    pub fn open(path: &CStr) -> Result<Self, RegionError> {
        // SAFETY: `path` is a C string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(RegionError::Open(errno()));
        }
        let reader = read_identity(fd).and_then(|_| Self::map(fd));
        // SAFETY: `fd` is ours; the mapping outlives it.
        unsafe { libc::close(fd) };
        reader
    }

    fn map(fd: c_int) -> Result<Self, RegionError> {
        if length_of(fd)? < region_bytes(SLOTS) {
            return Err(RegionError::NotALedger);
        }
        // The header alone tells how many slots there are.
        let slots = claimed_count(Self::map_slots(fd, 0)?.header());
        Self::map_slots(fd, slots)
    }

    fn map_slots(fd: c_int, slots: usize) -> Result<Self, RegionError> {
        let bytes = region_bytes(slots);
        // SAFETY: a fresh mapping of an open file that is long enough.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
        };
        match memory == libc::MAP_FAILED {
            true => Err(RegionError::Map(errno())),
            false => Ok(Self { header: memory.cast(), slots }),
        }
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped until drop.
        unsafe { &*self.header }
    }

    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        // SAFETY: each of these slots is mapped until drop.
        (0..self.slots).map(|index| unsafe { &*self.header.byte_add(slot_offset(index)).cast() })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length.
        unsafe { libc::munmap(self.header as *mut c_void, region_bytes(self.slots)) };
    }
}
