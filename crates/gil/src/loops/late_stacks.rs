//! The stacks that late iterations are charged to, in tables of their own that are as those of a
//! contention profile.
//!
//! The reader of stacks is the only writer, so no hook waits for the lock of the tables.

use std::sync::atomic::{AtomicPtr, Ordering::*};

use headway_measure::clock;

use super::runners;
use crate::counters::file;
use crate::profile::layout::Layout;
use crate::profile::resolver::{CUT_FRAME, Frame, Resolver};
use crate::profile::store::{Key, STORE_BYTES, Store};

/// The parts of an iteration, by which stacks are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    Computed = 0,
    Waited = 1,
    Blocked = 2,
}

pub const PARTS: [Part; 3] = [Part::Computed, Part::Waited, Part::Blocked];

/// A stack that late iterations are charged to, since the first one of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateStack {
    /// The number of the loop's counters; see `LoopCounters::serial`.
    pub serial: u32,
    /// The kernel's ID of the loop's thread.
    pub native_id: u32,
    /// See [`Part`].
    pub part: u32,
    /// The outermost call first; for `Waited`, those of the thread that held the GIL. Empty if
    /// they could not be read.
    pub stack: Vec<Frame>,
    /// The coroutine or callback that the loop ran.
    pub callback: Option<String>,
    /// The kernel's ID of the thread that held the GIL; 0 if it is not known.
    pub holder: u32,
    pub late_ns: u64,
    pub readings: u64,
}

/// The tables; null before the first late iteration that was read. The memory is never unmapped,
/// and a forked child finds it zeroed. Writers: the reader, with release, and a forked child.
static STORE: AtomicPtr<Store> = AtomicPtr::new(std::ptr::null_mut());

/// The tables, which the first call makes; `None` without memory for them.
pub(super) fn tables(layout: &Layout) -> Option<&'static Store> {
    if let Some(store) = present() {
        return Some(store);
    }
    let memory = file::private_memory_on_demand(STORE_BYTES).ok()?;
    let began = [clock::now_ns(), clock::wall_ns()];
    // SAFETY: zero bytes, aligned to a page, of that length, never unmapped.
    let store = unsafe { Store::begin(memory.cast(), began, layout) };
    STORE.store(std::ptr::from_ref(store).cast_mut(), Release);
    Some(store)
}

fn present() -> Option<&'static Store> {
    // SAFETY: null, or a store that is never unmapped.
    unsafe { STORE.load(Acquire).as_ref() }
}

/// Forgets what was read, in a forked child, because it is the parent's.
pub fn forget() {
    STORE.store(std::ptr::null_mut(), Relaxed);
}

/// Empties the tables. Not for hooks.
pub(super) fn clear() {
    if let Some(store) = present() {
        let tables = store.lock();
        tables.clear();
    }
}

/// The key of a part of the iterations of a loop, with this number and kernel's ID of its thread:
/// the stack `node` is charged, while the loop ran `own`.
pub(super) fn key(of_loop: [u32; 2], part: Part, node: u32, own: u32, holder: u32) -> Key {
    let [serial, thread] = of_loop;
    Key { kind: part as u32 + 1, serial, node, thread, waiter: holder, context: own }
}

/// The frames of a stack, the outermost call first. A cut stack begins with a frame without a file.
pub(super) fn frames_of(resolver: &mut Resolver, node: u32) -> Vec<Frame> {
    let stack = resolver.stack_of(node);
    let frame = |index: &u32| match *index {
        CUT_FRAME => Some(Frame { function: "(cut)".into(), file: String::new(), line: 0 }),
        index => resolver.frames.get(index as usize).cloned(),
    };
    stack.iter().filter_map(frame).collect()
}

/// Not for hooks.
pub fn late_stacks() -> Vec<LateStack> {
    let Some(store) = present() else { return Vec::new() };
    let _tables = store.lock();
    let mut resolver = Resolver::new(store);
    let row = |(key, charged_ns, readings): (Key, u64, u32)| {
        let callback = runners::callback(&frames_of(&mut resolver, key.context)).map(str::to_owned);
        LateStack {
            serial: key.serial,
            native_id: key.thread,
            part: key.kind - 1,
            stack: frames_of(&mut resolver, key.node),
            callback,
            holder: key.waiter,
            late_ns: charged_ns,
            readings: u64::from(readings),
        }
    };
    store.rows().map(row).collect()
}
