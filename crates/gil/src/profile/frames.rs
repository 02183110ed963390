//! A stack of Python calls, read from memory without calling CPython.
//!
//! A thread reads its own frames in a hook, where they stand still, with [`Own`], unless CPython
//! may have freed them (`finalization`). It reads those, and the sampler the frames of a running
//! thread, with [`Foreign`], which fails where no memory is.

use std::ops::Range;

use super::layout::{Layout, TAG_BITS};
use crate::foreign_memory::{Pid, local, remote};

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
    /// Forgets copies of memory, so that it is read again.
    #[inline(always)]
    fn refresh(&mut self) {}

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
/// alive, in a phase that keeps its thread state ([`crate::finalization`]).
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

/// Any address, by `process_vm_readv` on this process, in blocks that are kept until `refresh`.
pub struct Foreign {
    /// The current frame of a thread and its callers, which CPython keeps at lower addresses: one
    /// copy, so that they are the calls of one moment.
    frames: Block<4096>,
    /// The last objects that were read, most of them code objects.
    objects: [Block<256>; OBJECTS],
    /// The first ones of `objects`, which are code objects for certain.
    code_objects: usize,
    /// The place in `objects` for the next one.
    next: usize,
    pid: Pid,
}

const OBJECTS: usize = 8;

struct Block<const BYTES: usize> {
    /// The address of the first byte of `bytes`.
    start: usize,
    /// The bytes that have been read.
    known: Range<usize>,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Block<BYTES> {
    const EMPTY: Self = Self { start: 0, known: 0..0, bytes: [0; BYTES] };

    /// Reads from `start` as far as there is memory.
    fn read(&mut self, pid: Pid, start: usize) {
        self.start = start;
        self.known = 0..pid.read(&[self.local()], &[remote(start, BYTES)]);
    }

    /// Reads from `middle`, an address in the block from `start`, to the block's end, and then from
    /// `start` to `middle`, as far as there is memory.
    fn read_from_middle(&mut self, pid: Pid, start: usize, middle: usize) {
        self.start = start;
        self.known = 0..0;
        let Some((head, tail)) = self.bytes.split_at_mut_checked(middle.wrapping_sub(start)) else {
            return;
        };
        let to = [local(tail), local(head)];
        let from = [remote(middle, tail.len()), remote(start, head.len())];
        let (head, tail) = (head.len(), tail.len());
        let bytes = pid.read(&to, &from);
        let first = if bytes == head + tail { 0 } else { head };
        self.known = first..head + bytes.min(tail);
    }

    fn local(&mut self) -> libc::iovec {
        local(&mut self.bytes)
    }

    /// The bytes at `from`, if so many of them are known.
    fn at(&self, from: usize, bytes: usize) -> Option<&[u8]> {
        let skip = from.checked_sub(self.start)?.checked_sub(self.known.start)?;
        self.bytes.get(self.known.clone())?.get(skip..skip.checked_add(bytes)?)
    }

    fn address_at(&self, from: usize) -> Option<usize> {
        self.at(from, size_of::<usize>())?.try_into().ok().map(usize::from_ne_bytes)
    }
}

impl Foreign {
    /// A frame is smaller than that, unless its function has very many variables.
    const FRAME_BYTES: usize = 256;
    const PAGE_BYTES: usize = 4096;

    pub fn new() -> Self {
        let pid = Pid::of_this_process();
        Self {
            frames: Block::EMPTY,
            objects: [const { Block::EMPTY }; OBJECTS],
            code_objects: 0,
            next: 0,
            pid,
        }
    }

    /// Forgets all but the code objects. Some frames, as those of generators, are in `objects`.
    fn refresh_frames(&mut self) {
        self.frames.known = 0..0;
        self.objects.iter_mut().skip(self.code_objects).for_each(|block| block.known = 0..0);
    }

    /// Copies the frame at `frame` and its callers. Their memory may begin with the frame's page.
    fn copy_frames(&mut self, frame: usize) {
        let end = frame.saturating_add(Self::FRAME_BYTES);
        let start = end.saturating_sub(self.frames.bytes.len());
        let page = frame & !(Self::PAGE_BYTES - 1);
        self.frames.read_from_middle(self.pid, start, page.max(start).min(end));
    }

    /// Copies the code objects of the frame at `frame` and of its callers by one call of the
    /// kernel, as many as there is room for.
    fn copy_code_objects(&mut self, layout: &Layout, mut frame: usize) {
        let mut from = [remote(0, 0); OBJECTS];
        let mut count = 0;
        for _ in 0..CHAIN {
            let Some(code) = self.frames.address_at(frame.wrapping_add(layout.frame_code)) else {
                break;
            };
            let start = code & !(TAG_BITS | 15);
            let is_new = from.iter().all(|known| known.iov_base as usize != start);
            if is_new && start >= Self::PAGE_BYTES {
                let Some(room) = from.get_mut(count) else { break };
                *room = remote(start, size_of_val(&self.objects[0].bytes));
                count += 1;
            }
            match self.frames.address_at(frame.wrapping_add(layout.frame_previous)) {
                Some(previous) if previous != 0 => frame = previous,
                _ => break,
            }
        }
        let to = self.objects.each_mut().map(Block::local);
        let (Some(to), Some(from)) = (to.get(..count), from.get(..count)) else { return };
        let mut bytes = self.pid.read(to, from);
        for (block, range) in self.objects.iter_mut().zip(from) {
            block.start = range.iov_base as usize;
            block.known = 0..bytes.min(range.iov_len);
            bytes -= block.known.end;
        }
        self.code_objects = count;
        self.next = count % OBJECTS;
    }
}

impl Memory for Foreign {
    fn refresh(&mut self) {
        self.code_objects = 0;
        self.refresh_frames();
    }

    unsafe fn copy(&mut self, from: usize, to: *mut u8, bytes: usize) -> bool {
        if bytes > self.objects[0].bytes.len() {
            // SAFETY: the caller's.
            return unsafe { Uncopied(self.pid).copy(from, to, bytes) };
        }
        let known = self.objects.iter().find_map(|block| block.at(from, bytes));
        let found = match self.frames.at(from, bytes).or(known) {
            Some(found) => found,
            None => {
                self.code_objects = self.code_objects.min(self.next);
                let block = &mut self.objects[self.next % OBJECTS];
                self.next = (self.next + 1) % OBJECTS;
                block.read(self.pid, from & !15);
                match block.at(from, bytes) {
                    Some(found) => found,
                    None => return false,
                }
            }
        };
        // SAFETY: the bytes have room, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), to, bytes) };
        true
    }
}

/// Memory of this process as it is at the moment of each call.
struct Uncopied(Pid);

impl Memory for Uncopied {
    unsafe fn copy(&mut self, from: usize, to: *mut u8, bytes: usize) -> bool {
        let local = libc::iovec { iov_base: to.cast(), iov_len: bytes };
        self.0.read(&[local], &[remote(from, bytes)]) == bytes
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
    let Some(frame) = copy_current(memory, layout, state) else { return false };
    memory.copy_code_objects(layout, frame);
    // SAFETY: `Foreign` asks the kernel to read.
    unsafe { read_from(memory, layout, frame, calls) }
}

/// Copies the frames of a thread, and returns the address of the current one.
fn copy_current(memory: &mut Foreign, layout: &Layout, state: usize) -> Option<usize> {
    // SAFETY: `Uncopied` asks the kernel to read.
    let frame = unsafe { current(&mut Uncopied(memory.pid), layout, state)? };
    memory.refresh_frames();
    memory.copy_frames(frame);
    Some(frame)
}

/// Reads the calls of another thread, which may call and return meanwhile. Returns true once the
/// frames have the same calls before and after their code objects were read: otherwise they may be
/// of several moments.
pub fn read_foreign(
    memory: &mut Foreign,
    layout: &Layout,
    state: usize,
    calls: &mut Calls,
) -> bool {
    const READINGS: u32 = 4;
    (0..READINGS).any(|_| {
        if !read_foreign_once(memory, layout, state, calls) {
            return false;
        }
        let before = calls.hash();
        // SAFETY: `Foreign` asks the kernel to read.
        copy_current(memory, layout, state)
            .is_some_and(|frame| unsafe { read_from(memory, layout, frame, calls) })
            && calls.hash() == before
    })
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
    // SAFETY: the caller's.
    unsafe {
        current(memory, layout, state).is_some_and(|frame| read_from(memory, layout, frame, calls))
    }
}

/// Reads the calls of the frame at `frame` and of its callers. Returns false as `read` does.
///
/// # Safety
/// With [`Own`], the frame is alive.
#[inline(always)]
unsafe fn read_from<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    mut frame: usize,
    calls: &mut Calls,
) -> bool {
    calls.count = 0;
    calls.is_cut = false;
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
        // The first field of a frame comes first, so that a block that begins with it has the rest.
        let code = memory.get::<usize>(frame + layout.frame_code)? & !TAG_BITS;
        if let Some((owner, without_code)) = layout.frame_owner {
            if memory.get::<u8>(frame + owner)? >= without_code {
                return Some(None);
            }
        }
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
