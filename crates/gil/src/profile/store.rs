//! The memory of a profile: code objects, stacks, and what they are charged with.
//!
//! The memory is one mapping without pointers, so a copy in a file has the same meaning. Nothing in
//! it is removed while the profile is on, unless `growth` clears the tables. A charge that finds no
//! room is not recorded, and stays in the difference of the sums of
//! [`Charges`](super::charges::Charges).
//!
//! All tables have one writer at a time, the holder of `lock`. A hook tries for a moment to get it,
//! and otherwise leaves the charge to a later event.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use headway_measure::add;

use super::charges::Charges;
use super::frames::{self, Call, Calls, Memory, NO_OFFSET, text_of};
use super::layout::Layout;
use crate::counters::{GILS, Name};

const MAGIC: u64 = u64::from_le_bytes(*b"HWPROFL4");
const CODES: usize = 1 << 13;
const NODES: usize = 1 << 16;
const ROWS: usize = 1 << 14;
const ARENA_BYTES: usize = 3 << 20;
/// Names of ended threads. The newest overwrite the oldest.
const THREADS: usize = 1024;
/// A table is full when this share of its entries is in use, so that searches stay short.
const fn limit(entries: usize) -> u32 {
    (entries / 4 * 3) as u32
}
/// How many entries a search looks at.
const PROBES: usize = 64;
/// Longer names and line tables are cut, or left out.
const MAX_TEXT_BYTES: usize = 1024;
const MAX_LINES_BYTES: usize = 1 << 16;

/// The parent of an outermost call.
pub const NO_NODE: u32 = u32::MAX;
/// The node of a thread that runs no Python.
pub const EMPTY_STACK: u32 = u32::MAX - 1;
/// The parent of the outermost kept call of a stack that was cut.
pub const CUT: u32 = u32::MAX - 2;
/// In place of the index of a code object: the garbage collector runs.
pub const COLLECTOR: u32 = CODES as u32;

/// The kinds of waits in `parked`. Their order is that of `WaitKind` in `parked_waits`.
pub const PARKED_NAMES: [&[u8]; 3] = [b"locks and events", b"stopped world", b"stopping the world"];

/// In place of the serial number of a GIL's opening, for waits of this kind.
pub const fn parked_serial(kind: usize) -> u32 {
    u32::MAX - kind as u32
}

/// A range of the arena.
#[repr(C)]
pub struct Range {
    start: AtomicU32,
    bytes: AtomicU32,
}

impl Range {
    fn set(&self, (start, bytes): (u32, u32)) {
        self.start.store(start, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }
}

/// A code object. Entry 0 of `address` is an unused entry.
#[repr(C)]
struct Code {
    address: AtomicU64,
    version: AtomicU64,
    first_line: AtomicU32,
    /// Bytes of a character: bits 0 to 7 of the name, 8 to 15 of the file.
    kinds: AtomicU32,
    name: Range,
    file: Range,
    lines: Range,
}

/// A call in a tree of calls: its caller, its code object and its instruction.
#[repr(C)]
struct Node {
    /// The index of the code plus 1; 0 in an unused entry.
    code: AtomicU32,
    offset: AtomicU32,
    parent: AtomicU32,
}

/// The reason of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChargeKind {
    /// Threads waited while a thread held the GIL. Its stack was read at a forced drop,
    Forced = 1,
    /// at a voluntary drop,
    Voluntary = 2,
    /// or while it held.
    Running = 3,
    /// A thread waited.
    Waited = 4,
}

/// The key of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub kind: u32,
    /// The serial number of the GIL's opening.
    pub serial: u32,
    pub node: u32,
    /// The kernel's thread ID of the holder, or of the thread that waited.
    pub thread: u32,
    /// That of a thread that waited for the holder; 0 if it is not known.
    pub waiter: u32,
    /// The work that the thread did; 0 if it is not known.
    pub context: u32,
}

/// The charge of one stack of one thread.
#[repr(C)]
struct Row {
    kind: AtomicU32,
    serial: AtomicU32,
    node: AtomicU32,
    thread: AtomicU32,
    waiter: AtomicU32,
    context: AtomicU32,
    readings: AtomicU32,
    charged_ns: AtomicU64,
}

/// The name of a thread that has ended. Writer: the thread, with the registry lock.
#[repr(C)]
struct ThreadName {
    native_id: AtomicU32,
    name: Name,
}

/// The beginning of the mapping. All zero bytes are no store.
#[repr(C, align(4096))]
pub struct Store {
    magic: AtomicU64,
    /// 1 while a thread writes to the tables. Set by swap, with acquire; cleared with release.
    lock: AtomicU32,
    /// See `LineFormat`.
    pub line_format: AtomicU32,
    pub began_ns: AtomicU64,
    /// The same moment, in nanoseconds since 1970.
    pub began_wall_ns: AtomicU64,
    /// When the profile ended; 0 while it is on.
    pub ended_ns: AtomicU64,
    codes_used: AtomicU32,
    nodes_used: AtomicU32,
    rows_used: AtomicU32,
    arena_used: AtomicU32,
    /// The next entry of `threads`.
    next_thread: AtomicU32,
    pub gils: [Charges; GILS],
    /// The sums of GILs whose entry in `gils` another GIL has got.
    pub ended: Charges,
    /// The waits of a free-threaded build; see `parked`.
    pub parked: [Charges; PARKED_NAMES.len()],
    threads: [ThreadName; THREADS],
    rows: [Row; ROWS],
    nodes: [Node; NODES],
    codes: [Code; CODES],
    arena: [AtomicU8; ARENA_BYTES],
}

pub const STORE_BYTES: usize = size_of::<Store>();

/// The lock of a store, until it is dropped.
pub struct StoreGuard<'a>(&'a Store);

impl Drop for StoreGuard<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Release);
    }
}

impl Store {
    /// Makes a store of new memory.
    ///
    /// # Safety
    /// `memory` is a mapping of `STORE_BYTES` zero bytes, aligned to a page, which is never
    /// unmapped.
    pub unsafe fn begin(memory: *mut Store, began: [u64; 2], layout: &Layout) -> &'static Self {
        // SAFETY: as the caller promises; all zero bytes are a valid store.
        let store = unsafe { &*memory };
        store.line_format.store(layout.lines as u32, Relaxed);
        store.began_ns.store(began[0], Relaxed);
        store.began_wall_ns.store(began[1], Relaxed);
        store.magic.store(MAGIC, Release);
        store
    }

    /// The store in the `length` bytes at `memory`, if there is one.
    ///
    /// # Safety
    /// `memory` is a mapping of this length, aligned to a page, that outlives the store.
    pub unsafe fn find<'a>(memory: *const Store, length: usize) -> Option<&'a Self> {
        if length < STORE_BYTES {
            return None;
        }
        // SAFETY: the bytes are mapped, as the caller promises.
        let store = unsafe { &*memory };
        (store.magic.load(Acquire) == MAGIC).then_some(store)
    }

    /// Empties the tables, for another profile in the same memory.
    pub fn clear(&self, began: [u64; 2]) {
        self.clear_tables();
        self.next_thread.store(0, Relaxed);
        self.threads.iter().for_each(|thread| thread.native_id.store(0, Relaxed));
        self.gils.iter().chain([&self.ended]).chain(&self.parked).for_each(Charges::clear);
        self.ended_ns.store(0, Relaxed);
        self.began_ns.store(began[0], Relaxed);
        self.began_wall_ns.store(began[1], Relaxed);
    }

    fn clear_tables(&self) {
        self.rows.iter().for_each(|row| row.kind.store(0, Relaxed));
        self.nodes.iter().for_each(|node| node.code.store(0, Relaxed));
        self.codes.iter().for_each(|code| code.address.store(0, Relaxed));
        for used in [&self.codes_used, &self.nodes_used, &self.rows_used, &self.arena_used] {
            used.store(0, Relaxed);
        }
    }

    /// Whether a table is so full that it should be cleared before the next charges.
    pub fn is_nearly_full(&self) -> bool {
        [
            (&self.rows_used, limit(ROWS)),
            (&self.nodes_used, limit(NODES)),
            (&self.codes_used, limit(CODES)),
            (&self.arena_used, ARENA_BYTES as u32),
        ]
        .iter()
        .any(|(used, limit)| used.load(Relaxed) > limit / 2)
    }

    /// Takes the lock if that is possible within a moment. For hooks.
    #[inline]
    pub fn try_lock(&self) -> Option<StoreGuard<'_>> {
        const TRIES: u32 = 200;
        for _ in 0..TRIES {
            if self.lock.load(Relaxed) == 0 && self.lock.swap(1, Acquire) == 0 {
                return Some(StoreGuard(self));
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Takes the lock, whose holders hold it for microseconds. Not for hooks.
    pub fn lock(&self) -> StoreGuard<'_> {
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            std::thread::yield_now();
        }
    }

    /// A thread ends; its name is kept.
    pub fn name_thread(&self, native_id: u32, name: &[u8]) {
        let next = self.next_thread.fetch_add(1, Relaxed) as usize % THREADS;
        if let Some(thread) = self.threads.get(next) {
            thread.name.set(name);
            thread.native_id.store(native_id, Release);
        }
    }

    /// The names of ended threads; of two with one ID, the later one is last.
    pub fn thread_names(&self) -> Vec<(u32, String)> {
        let next = self.next_thread.load(Relaxed) as usize % THREADS;
        let (newer, older) = self.threads.split_at(next);
        let named = older.iter().chain(newer);
        named
            .map(|thread| (thread.native_id.load(Acquire), thread.name.to_text()))
            .filter(|(native_id, _)| *native_id != 0)
            .collect()
    }

    /// The rows: keys, charges in nanoseconds and numbers of readings.
    pub fn rows(&self) -> impl Iterator<Item = (Key, u64, u32)> {
        self.rows_by_index().map(|(_, key, charged_ns, readings)| (key, charged_ns, readings))
    }

    /// The rows with their indices, which stay until the tables are cleared.
    pub fn rows_by_index(&self) -> impl Iterator<Item = (usize, Key, u64, u32)> {
        let used = self.rows.iter().enumerate().filter(|(_, row)| row.kind.load(Relaxed) != 0);
        used.map(|(index, row)| {
            let key = Key {
                kind: row.kind.load(Relaxed),
                serial: row.serial.load(Relaxed),
                node: row.node.load(Relaxed),
                thread: row.thread.load(Relaxed),
                waiter: row.waiter.load(Relaxed),
                context: row.context.load(Relaxed),
            };
            (index, key, row.charged_ns.load(Relaxed), row.readings.load(Relaxed))
        })
    }

    /// A call: its caller's node, its code's index and the offset of its instruction.
    pub fn node(&self, index: u32) -> Option<(u32, u32, u32)> {
        let node = self.nodes.get(index as usize)?;
        let code = node.code.load(Relaxed).checked_sub(1)?;
        Some((node.parent.load(Relaxed), code, node.offset.load(Relaxed)))
    }

    /// A code object: its name, its file, its line table and its first line.
    pub fn code(&self, index: u32) -> Option<(String, String, Vec<u8>, u32)> {
        let code = self.codes.get(index as usize)?;
        let kinds = code.kinds.load(Relaxed);
        Some((
            to_text(&self.bytes(&code.name), kinds as u8),
            to_text(&self.bytes(&code.file), (kinds >> 8) as u8),
            self.bytes(&code.lines),
            code.first_line.load(Relaxed),
        ))
    }

    fn bytes(&self, range: &Range) -> Vec<u8> {
        let start = range.start.load(Relaxed) as usize;
        let bytes = range.bytes.load(Relaxed) as usize;
        let found = self.arena.get(start..start.saturating_add(bytes)).unwrap_or_default();
        found.iter().map(|byte| byte.load(Relaxed)).collect()
    }
}

impl StoreGuard<'_> {
    /// Empties the tables of what is charged; the sums of the GILs stay.
    pub fn clear(&self) {
        self.0.clear_tables();
        self.0.gils.iter().for_each(Charges::forget_reading);
    }

    /// The node of a stack; `None` if there is no room for it.
    ///
    /// # Safety
    /// As [`read`](super::frames::read), with which `calls` was read.
    pub unsafe fn node_of<M: Memory>(
        &self,
        memory: &mut M,
        layout: &Layout,
        calls: &Calls,
    ) -> Option<u32> {
        let mut node = if calls.is_cut { CUT } else { NO_NODE };
        for call in calls.innermost_first().iter().rev() {
            // SAFETY: the caller's.
            let code = unsafe { self.code_of(memory, layout, call)? };
            node = self.child_of(node, code, call.offset)?;
        }
        Some(if node == NO_NODE { EMPTY_STACK } else { node })
    }

    /// The node of the garbage collector that this stack called; `None` if there is no room for it.
    pub fn collector_in(&self, stack: u32) -> Option<u32> {
        self.child_of(if stack == EMPTY_STACK { NO_NODE } else { stack }, COLLECTOR, NO_OFFSET)
    }

    fn child_of(&self, parent: u32, code: u32, offset: u32) -> Option<u32> {
        let hash = hash_of(&[u64::from(parent) << 32 | u64::from(code), u64::from(offset)]);
        for index in probes(hash, NODES) {
            let node = self.0.nodes.get(index)?;
            let stored = node.code.load(Relaxed);
            if stored == 0 {
                take_entry(&self.0.nodes_used, limit(NODES))?;
                node.parent.store(parent, Relaxed);
                node.offset.store(offset, Relaxed);
                node.code.store(code + 1, Release);
                return Some(index as u32);
            }
            if stored == code + 1
                && node.parent.load(Relaxed) == parent
                && node.offset.load(Relaxed) == offset
            {
                return Some(index as u32);
            }
        }
        None
    }

    /// The index of a code object, which is copied when it is first seen.
    ///
    /// # Safety
    /// As `node_of`.
    unsafe fn code_of<M: Memory>(
        &self,
        memory: &mut M,
        layout: &Layout,
        call: &Call,
    ) -> Option<u32> {
        let hash = hash_of(&[call.code as u64, call.version]);
        for index in probes(hash, CODES) {
            let code = self.0.codes.get(index)?;
            let stored = code.address.load(Relaxed);
            if stored == 0 {
                // SAFETY: the caller's.
                unsafe { self.copy_code(memory, layout, call, code)? };
                return Some(index as u32);
            }
            if stored == call.code as u64 && code.version.load(Relaxed) == call.version {
                return Some(index as u32);
            }
        }
        None
    }

    /// # Safety
    /// As `node_of`.
    #[cold]
    #[inline(never)]
    unsafe fn copy_code<M: Memory>(
        &self,
        memory: &mut M,
        layout: &Layout,
        call: &Call,
        code: &Code,
    ) -> Option<()> {
        if self.0.codes_used.load(Relaxed) >= limit(CODES) {
            return None;
        }
        let at = call.code;
        // SAFETY: a code object keeps its name, its file and its line table alive.
        unsafe {
            let first_line = memory.get::<u32>(at + layout.code_first_line)?;
            let mut kinds = 0;
            for (shift, field, range) in
                [(0, layout.code_name, &code.name), (8, layout.code_file, &code.file)]
            {
                let object = memory.get::<usize>(at + field)?;
                let text = text_of(memory, layout, object)?;
                let kept = text.bytes.min(MAX_TEXT_BYTES) & !(text.kind as usize - 1);
                // Of a long path, the end says more.
                let skip = if shift == 8 { text.bytes - kept } else { 0 };
                range.set(self.copy(memory, text.at + skip, kept)?);
                kinds |= u32::from(text.kind) << shift;
            }
            let lines = memory.get::<usize>(at + layout.code_lines)?;
            let bytes = memory.get::<usize>(lines + layout.bytes_length)?;
            let kept = if bytes <= MAX_LINES_BYTES { bytes } else { 0 };
            code.lines.set(self.copy(memory, lines + layout.bytes_data, kept).unwrap_or((0, 0)));
            // A code object that is read from outside may have been freed meanwhile.
            memory.refresh();
            if frames::version_of(memory, layout, at)? != call.version {
                return None;
            }
            take_entry(&self.0.codes_used, limit(CODES))?;
            code.first_line.store(first_line, Relaxed);
            code.kinds.store(kinds, Relaxed);
        }
        code.version.store(call.version, Relaxed);
        code.address.store(at as u64, Release);
        Some(())
    }

    /// Copies bytes into the arena; `None` without room.
    ///
    /// # Safety
    /// With `Own`, the bytes can be read.
    unsafe fn copy<M: Memory>(
        &self,
        memory: &mut M,
        from: usize,
        bytes: usize,
    ) -> Option<(u32, u32)> {
        let start = self.0.arena_used.load(Relaxed) as usize;
        let room = self.0.arena.get(start..start.checked_add(bytes)?)?;
        // SAFETY: the range lies in the arena, which only the holder of the lock writes to.
        let is_copied = bytes == 0
            || unsafe { memory.copy(from, room.as_ptr().cast_mut().cast::<u8>(), bytes) };
        if !is_copied {
            return None;
        }
        self.0.arena_used.store((start + bytes) as u32, Relaxed);
        Some((start as u32, bytes as u32))
    }

    /// Adds to the row with this key. Returns false if there is no room for one.
    pub fn charge(&self, key: Key, charged_ns: u64) -> bool {
        let Key { kind, serial, node, thread, waiter, context } = key;
        let first = u64::from(node) << 32 | u64::from(serial);
        let second = u64::from(thread) << 32 | u64::from(waiter);
        let hash = hash_of(&[first, second, u64::from(context) << 32 | u64::from(kind)]);
        for index in probes(hash, ROWS) {
            let Some(row) = self.0.rows.get(index) else { return false };
            let stored = row.kind.load(Relaxed);
            let is_same = stored == kind
                && row.serial.load(Relaxed) == serial
                && row.node.load(Relaxed) == node
                && row.thread.load(Relaxed) == thread
                && row.waiter.load(Relaxed) == waiter
                && row.context.load(Relaxed) == context;
            if stored == 0 {
                if take_entry(&self.0.rows_used, limit(ROWS)).is_none() {
                    return false;
                }
                row.serial.store(serial, Relaxed);
                row.node.store(node, Relaxed);
                row.thread.store(thread, Relaxed);
                row.waiter.store(waiter, Relaxed);
                row.context.store(context, Relaxed);
                row.readings.store(0, Relaxed);
                row.charged_ns.store(0, Relaxed);
                row.kind.store(kind, Release);
            } else if !is_same {
                continue;
            }
            add(&row.charged_ns, charged_ns);
            row.readings.store(row.readings.load(Relaxed).saturating_add(1), Relaxed);
            return true;
        }
        false
    }
}

/// Counts an entry of a table that has one writer; `None` if the table is full.
fn take_entry(used: &AtomicU32, limit: u32) -> Option<()> {
    let count = used.load(Relaxed);
    used.store(count + u32::from(count < limit), Relaxed);
    (count < limit).then_some(())
}

fn hash_of(words: &[u64]) -> u64 {
    let mix =
        |hash: u64, word: &u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    let hash = words.iter().fold(0, mix);
    hash ^ hash >> 32
}

fn probes(hash: u64, entries: usize) -> impl Iterator<Item = usize> {
    (0..PROBES).map(move |step| (hash as usize).wrapping_add(step) & (entries - 1))
}

/// Characters of `kind` bytes as text.
fn to_text(bytes: &[u8], kind: u8) -> String {
    let characters: Vec<u32> = match kind {
        2 => bytes
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]])))
            .collect(),
        4 => bytes
            .chunks_exact(4)
            .map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
            .collect(),
        _ => bytes.iter().map(|byte| u32::from(*byte)).collect(),
    };
    let replaced = char::REPLACEMENT_CHARACTER;
    characters.into_iter().map(|each| char::from_u32(each).unwrap_or(replaced)).collect()
}
