//! A stack of Python calls, read from memory without calling CPython.
//!
//! A thread reads its own frames in a hook, where they stand still, with [`Own`]. The sampler reads
//! the frames of a running thread with [`Foreign`], which fails where no memory is.

use super::layout::{Layout, TAG_BITS};
use crate::errno::error_of;

/// The deepest calls of a stack that are kept.
pub const DEPTH: usize = 128;
/// Beyond this number of calls reading ends, so that a loop of frames cannot go on for ever.
const CHAIN: usize = 4 * DEPTH;

/// A call: the address of a code object, what tells it from others at the same address, and the
/// offset of the instruction in bytes (`NO_OFFSET` if it is unknown).
#[derive(Clone, Copy, Default)]
pub struct Call {
    pub code: usize,
    pub version: u64,
    pub offset: u32,
}

pub const NO_OFFSET: u32 = u32::MAX;

/// The deepest calls of a thread, the innermost first.
pub struct Calls {
    calls: [Call; DEPTH],
    count: usize,
    /// True if there were more.
    pub is_cut: bool,
}

impl Calls {
    pub const fn new() -> Self {
        let call = Call { code: 0, version: 0, offset: NO_OFFSET };
        Self { calls: [call; DEPTH], count: 0, is_cut: false }
    }

    pub fn innermost_first(&self) -> &[Call] {
        self.calls.get(..self.count).unwrap_or_default()
    }

    /// A hash of the code objects, without their instructions.
    fn hash(&self) -> u64 {
        self.innermost_first().iter().fold(0, |hash, call| {
            let mixed = hash ^ call.code as u64 ^ call.version.rotate_left(32);
            mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        })
    }

    fn push(&mut self, call: Call) {
        match self.calls.get_mut(self.count) {
            Some(place) => {
                *place = call;
                self.count += 1;
            }
            None => self.is_cut = true,
        }
    }
}

/// Memory of this process.
pub trait Memory {
    /// Copies `bytes` bytes at `from` to `to`. Returns false if they cannot be read.
    ///
    /// # Safety
    /// `to` has room for them. For [`Own`], they can be read.
    unsafe fn copy(&mut self, from: usize, to: *mut u8, bytes: usize) -> bool;

    /// # Safety
    /// As `copy`; any bytes are a `T`.
    #[inline(always)]
    unsafe fn get<T: Copy + Default>(&mut self, from: usize) -> Option<T> {
        let mut value = T::default();
        // SAFETY: the value has room for itself; the rest is the caller's.
        let is_read =
            unsafe { self.copy(from, std::ptr::from_mut(&mut value).cast(), size_of::<T>()) };
        is_read.then_some(value)
    }
}

/// The memory that the calling thread may read: its own frames, and the objects that they keep
/// alive.
pub struct Own;

impl Memory for Own {
    #[inline(always)]
    unsafe fn copy(&mut self, from: usize, to: *mut u8, bytes: usize) -> bool {
        if from < 4096 {
            return false;
        }
        // SAFETY: the bytes can be read and have room, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to, bytes) };
        true
    }
}

/// Any address, by `process_vm_readv` on this process, in blocks.
pub struct Foreign {
    /// The current frame of a thread and its callers, which CPython keeps at lower addresses: one
    /// copy, so that they are the calls of one moment.
    frames: Block<4096>,
    /// The last memory that was read beside the frames.
    other: Block<256>,
}

struct Block<const BYTES: usize> {
    start: usize,
    length: usize,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Block<BYTES> {
    const EMPTY: Self = Self { start: 0, length: 0, bytes: [0; BYTES] };

    /// Reads from `start` as far as there is memory.
    fn read(&mut self, start: usize) {
        self.start = start;
        self.length = Foreign::read(start, self.bytes.as_mut_ptr(), BYTES);
    }

    /// The bytes at `from`, if the block has so many of them.
    fn at(&self, from: usize, bytes: usize) -> Option<&[u8]> {
        let skip = from.checked_sub(self.start)?;
        self.bytes.get(..self.length)?.get(skip..skip.checked_add(bytes)?)
    }
}

impl Foreign {
    /// A frame is smaller than that, unless its function has very many variables.
    const FRAME_BYTES: usize = 256;
    const PAGE_BYTES: usize = 4096;

    pub const fn new() -> Self {
        Self { frames: Block::EMPTY, other: Block::EMPTY }
    }

    /// Forgets the blocks, so that memory is read again.
    pub fn refresh(&mut self) {
        self.frames.length = 0;
        self.other.length = 0;
    }

    /// Copies the frame at `frame` and its callers.
    fn copy_frames(&mut self, frame: usize) {
        let end = frame.saturating_add(Self::FRAME_BYTES);
        self.frames.read(end.saturating_sub(self.frames.bytes.len()));
        if self.frames.length == 0 {
            // The memory of frames may begin with this page.
            self.frames.read(frame & !(Self::PAGE_BYTES - 1));
        }
    }

    /// Reads up to `bytes` bytes; returns how many were read.
    fn read(from: usize, to: *mut u8, bytes: usize) -> usize {
        let local = libc::iovec { iov_base: to.cast(), iov_len: bytes };
        let remote = libc::iovec { iov_base: from as *mut _, iov_len: bytes };
        let mut count = 0;
        error_of(|| {
            // SAFETY: `to` has room, and the kernel checks the other address.
            count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
            count as libc::c_long
        });
        usize::try_from(count).unwrap_or(0)
    }
}

impl Memory for Foreign {
    unsafe fn copy(&mut self, from: usize, to: *mut u8, bytes: usize) -> bool {
        if bytes > self.other.bytes.len() {
            return Self::read(from, to, bytes) == bytes;
        }
        if self.frames.at(from, bytes).is_none() && self.other.at(from, bytes).is_none() {
            self.other.read(from & !15);
        }
        let found = self.frames.at(from, bytes).or_else(|| self.other.at(from, bytes));
        let Some(found) = found else { return false };
        // SAFETY: the bytes have room, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), to, bytes) };
        true
    }
}

/// The address of the current frame of the thread with the thread state at `state`; 0 if it has
/// none.
///
/// # Safety
/// As [`read`].
unsafe fn current<M: Memory>(memory: &mut M, layout: &Layout, state: usize) -> Option<usize> {
    // SAFETY: with `Own`, the state and the place that it points to are alive.
    unsafe {
        let place: Option<usize> = memory.get(state + layout.state_frame);
        match (place, layout.place_frame) {
            (Some(place), Some(frame)) if place != 0 => memory.get(place + frame),
            (place, _) => place,
        }
    }
}

/// Reads the calls of a thread whose frames stand still. Returns false as `read` does.
pub fn read_foreign_once(
    memory: &mut Foreign,
    layout: &Layout,
    state: usize,
    calls: &mut Calls,
) -> bool {
    memory.refresh();
    // SAFETY: `Foreign` asks the kernel to read.
    unsafe {
        current(memory, layout, state).inspect(|frame| memory.copy_frames(*frame));
        read(memory, layout, state, calls)
    }
}

/// Reads the calls of another thread, which may call and return meanwhile. Returns true once two
/// readings in a row have found the same calls: others may be of several moments.
pub fn read_foreign(
    memory: &mut Foreign,
    layout: &Layout,
    state: usize,
    calls: &mut Calls,
) -> bool {
    const READINGS: u32 = 6;
    let mut before = None;
    for _ in 0..READINGS {
        let found = read_foreign_once(memory, layout, state, calls).then(|| calls.hash());
        if found.is_some() && found == before {
            return true;
        }
        before = found;
    }
    false
}

/// Reads the calls of the thread with the thread state at `state`. Returns false if some memory
/// could not be read or is no stack of calls.
///
/// # Safety
/// With [`Own`], `state` is the calling thread's own thread state.
pub unsafe fn read<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    state: usize,
    calls: &mut Calls,
) -> bool {
    calls.count = 0;
    calls.is_cut = false;
    // SAFETY: the caller's.
    let first = unsafe { current(memory, layout, state) };
    let Some(mut frame) = first else { return false };
    for _ in 0..CHAIN {
        if frame == 0 {
            return true;
        }
        // SAFETY: with `Own`, a thread's frames are alive, and so are their code objects.
        match unsafe { call_of(memory, layout, frame) } {
            Some(Some(call)) => calls.push(call),
            Some(None) => {}
            None => return false,
        }
        if calls.is_cut {
            return true;
        }
        // SAFETY: the frame is alive, as for `call_of`.
        match unsafe { memory.get(frame + layout.frame_previous) } {
            Some(previous) => frame = previous,
            None => return false,
        }
    }
    true
}

/// The call of a frame; `Some(None)` for a frame without code.
///
/// # Safety
/// With [`Own`], the frame is alive.
#[inline(always)]
unsafe fn call_of<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    frame: usize,
) -> Option<Option<Call>> {
    // SAFETY: the frame is alive, as the caller promises, and keeps its code object alive.
    unsafe {
        if let Some((owner, without_code)) = layout.frame_owner
            && memory.get::<u8>(frame + owner)? >= without_code
        {
            return Some(None);
        }
        let code = memory.get::<usize>(frame + layout.frame_code)? & !TAG_BITS;
        let instruction: usize = if layout.instruction_is_index {
            memory.get::<i32>(frame + layout.frame_instruction)? as isize as usize
        } else {
            memory.get(frame + layout.frame_instruction)?
        };
        if code == 0 {
            return Some(None);
        }
        if memory.get::<usize>(code + layout.object_type)? != layout.code_type {
            return Some(None);
        }
        let offset = if layout.instruction_is_index {
            instruction.wrapping_mul(2)
        } else {
            instruction.wrapping_sub(instructions_of(memory, layout, frame, code)?)
        };
        let offset = u32::try_from(offset).ok().filter(|offset| *offset < 1 << 28);
        Some(Some(Call {
            code,
            version: version_of(memory, layout, code)?,
            offset: offset.unwrap_or(NO_OFFSET),
        }))
    }
}

/// The address of the first instruction that the frame's thread runs of the code object at `code`.
///
/// # Safety
/// With [`Own`], the frame is alive.
#[inline(always)]
unsafe fn instructions_of<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    frame: usize,
    code: usize,
) -> Option<usize> {
    let Some((index_at, copies_at)) = layout.thread_instructions else {
        return Some(code + layout.code_instructions);
    };
    // SAFETY: a frame keeps its code object alive, and that its array, which grows only.
    unsafe {
        let index = memory.get::<i32>(frame + index_at)?;
        let copies = memory.get::<usize>(code + copies_at)?;
        // `struct _PyCodeArray`: the number of entries, and the entries.
        let count = memory.get::<usize>(copies)?;
        let index = usize::try_from(index).ok().filter(|index| *index < count)?;
        memory.get(copies + size_of::<usize>() * (1 + index))
    }
}

/// A number that distinguishes the code object at `code` from others that were, or will be, at the
/// same address.
///
/// # Safety
/// With [`Own`], the code object is alive.
#[inline(always)]
pub unsafe fn version_of<M: Memory>(memory: &mut M, layout: &Layout, code: usize) -> Option<u64> {
    // SAFETY: the code object is alive, as the caller promises.
    unsafe {
        if let Some(version) = layout.code_version {
            let version = memory.get::<u32>(code + version)?;
            if version != 0 {
                return Some(u64::from(version) | 1 << 32);
            }
        }
        contents_of(memory, layout, code)
    }
}

/// A hash of a code object's first line, name, file and line table.
///
/// # Safety
/// As `version_of`.
#[inline(never)]
unsafe fn contents_of<M: Memory>(memory: &mut M, layout: &Layout, code: usize) -> Option<u64> {
    let mut hash = 0_u64;
    let mut mix =
        |value: u64| hash = (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    // SAFETY: the code object is alive, as the caller promises, and keeps these objects alive.
    unsafe {
        mix(u64::from(memory.get::<u32>(code + layout.code_first_line)?));
        for (field, length, data) in [
            (layout.code_name, layout.text_length, layout.text_ascii),
            (layout.code_file, layout.text_length, layout.text_ascii),
            (layout.code_lines, layout.bytes_length, layout.bytes_data),
        ] {
            let object = memory.get::<usize>(code + field)?;
            let length = memory.get::<usize>(object + length)?;
            mix(object as u64);
            mix(length as u64);
            // The last bytes of a text in ASCII; of another text, some of its bytes.
            let words = length / 8;
            for word in words.saturating_sub(2)..words {
                mix(memory.get::<u64>(object + data + 8 * word)?);
            }
            if words > 0 {
                mix(memory.get::<u64>(object + data + length - 8)?);
            }
        }
    }
    Some(hash & !(1 << 32) | 1)
}

/// A text object: where its characters are, and how many bytes each has.
pub struct Text {
    pub at: usize,
    pub bytes: usize,
    pub kind: u8,
}

/// The text of the string object at `object`.
///
/// # Safety
/// With [`Own`], the object is alive.
pub unsafe fn text_of<M: Memory>(memory: &mut M, layout: &Layout, object: usize) -> Option<Text> {
    // SAFETY: the object is alive, as the caller promises.
    let (state, length) = unsafe {
        (
            memory.get::<u32>(object + layout.text_state)?,
            memory.get::<usize>(object + layout.text_length)?,
        )
    };
    let bits = state >> layout.text_kind_shift;
    let (kind, is_compact, is_ascii) = (bits as u8 & 7, bits >> 3 & 1 == 1, bits >> 4 & 1 == 1);
    if !is_compact || !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    let at = object + if is_ascii { layout.text_ascii } else { layout.text_other };
    Some(Text { at, bytes: length.checked_mul(kind as usize)?, kind })
}
