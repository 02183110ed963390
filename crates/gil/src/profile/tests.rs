//! Stacks that are made in memory, read and stored.

use std::collections::HashSet;
use std::sync::atomic::Ordering::*;

use super::frames::{self, Calls, DEPTH, Foreign, Memory, Own};
use super::layout::{Layout, LineFormat};
use super::store::{CUT, ChargeKind, EMPTY_STACK, Key, STORE_BYTES, Store};
use crate::counters::file::private_memory;

/// Words of made objects, in the order of [`LAYOUT`].
const LAYOUT: Layout = Layout {
    state_frame: 8,
    state_thread: 16,
    place_frame: None,
    frame_code: 0,
    frame_previous: 8,
    frame_instruction: 16,
    instruction_is_index: false,
    thread_instructions: None,
    frame_owner: Some((24, 3)),
    code_name: 16,
    code_file: 24,
    code_lines: 32,
    code_first_line: 40,
    code_instructions: 48,
    code_version: Some(44),
    object_type: 8,
    code_type: 0x0C0D_E000,
    text_length: 8,
    text_state: 16,
    text_kind_shift: 2,
    text_ascii: 24,
    text_other: 32,
    bytes_length: 8,
    bytes_data: 16,
    lines: LineFormat::Locations,
};

/// Objects that stay where they are.
#[derive(Default)]
struct Heap(Vec<Box<[u64]>>);

impl Heap {
    fn object(&mut self, words: &[u64]) -> u64 {
        self.0.push(words.into());
        self.0[self.0.len() - 1].as_ptr() as u64
    }

    fn text(&mut self, text: &str) -> u64 {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let ascii = 0b11 << 5 | 1 << 2;
        let data = bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let words: Vec<_> = [0, text.len() as u64, ascii].into_iter().chain(data).collect();
        self.object(&words)
    }

    fn code(&mut self, name: &str, version: u32) -> u64 {
        let (name, file) = (self.text(name), self.text("shop.py"));
        // One location: eight units, the same line.
        let lines = self.object(&[0, 2, u64::from_le_bytes([0x80 | 7, 0, 0, 0, 0, 0, 0, 0])]);
        let first_line_and_version = 40 | u64::from(version) << 32;
        let code_type = LAYOUT.code_type as u64;
        self.object(&[0, code_type, name, file, lines, first_line_and_version, 0, 0])
    }

    fn frame(&mut self, code: u64, previous: u64, owner: u64) -> u64 {
        self.object(&[code | 1, previous, code + 48 + 4, owner])
    }

    fn state(&mut self, frame: u64) -> usize {
        self.object(&[0, frame, 0]) as usize
    }
}

fn store() -> &'static Store {
    let memory = private_memory(STORE_BYTES).expect("memory");
    // SAFETY: fresh zero bytes of this length, never unmapped.
    unsafe { Store::begin(memory.cast(), [1, 2], &LAYOUT) }
}

fn read<M: Memory>(memory: &mut M, state: usize) -> Option<Box<Calls>> {
    let mut calls = Box::new(Calls::new());
    // SAFETY: the objects of the test are alive.
    unsafe { frames::read(memory, &LAYOUT, state, &mut calls) }.then_some(calls)
}

fn node(store: &Store, state: usize) -> Option<u32> {
    let calls = read(&mut Own, state)?;
    // SAFETY: the objects of the test are alive.
    unsafe { store.lock().node_of(&mut Own, &LAYOUT, &calls) }
}

#[test]
fn both_ways_of_reading_find_the_same_calls_without_frames_of_c() {
    let mut heap = Heap::default();
    let (outer, inner) = (heap.code("outer", 1), heap.code("inner", 2));
    let first = heap.frame(outer, 0, 0);
    let entry = heap.frame(0, first, 3);
    let second = heap.frame(inner, entry, 1);
    let state = heap.state(second);
    let own = read(&mut Own, state).expect("calls");
    let foreign = read(&mut Foreign::new(), state).expect("calls");
    for calls in [own, foreign] {
        let found: Vec<_> = calls.innermost_first().iter().map(|call| call.code as u64).collect();
        assert_eq!(found, [inner, outer]);
        assert!(calls.innermost_first().iter().all(|call| call.offset == 4));
        assert!(!calls.is_cut);
    }
}

#[test]
fn a_frame_that_runs_its_threads_copy_of_the_instructions_has_an_offset_in_that_copy() {
    let mut heap = Heap::default();
    let layout = Layout { thread_instructions: Some((32, 56)), ..LAYOUT };
    let (shared, copy) = (heap.object(&[0; 4]), heap.object(&[0; 4]));
    let copies = heap.object(&[2, shared, copy]);
    let code_type = LAYOUT.code_type as u64;
    let code = heap.object(&[0, code_type, 0, 0, 0, 5 << 32, 0, copies]);
    let mut offsets_of = |index: u64, instruction: u64| {
        let frame = heap.object(&[code, 0, instruction, 0, index]);
        let (state, mut calls) = (heap.state(frame), Calls::new());
        // SAFETY: the objects of the test are alive.
        let is_read = unsafe { frames::read(&mut Own, &layout, state, &mut calls) };
        is_read.then(|| calls.innermost_first().iter().map(|call| call.offset).collect::<Vec<_>>())
    };
    assert_eq!(offsets_of(0, shared + 6), Some(vec![6]));
    assert_eq!(offsets_of(1, copy + 8), Some(vec![8]));
    assert_eq!(offsets_of(2, copy), None);
}

#[test]
fn frames_beside_memory_that_is_not_there_are_read_from_outside() {
    const PAGE: usize = 4096;
    let mut heap = Heap::default();
    let (outer, inner) = (heap.code("outer", 1), heap.code("inner", 2));
    let elsewhere = heap.frame(outer, 0, 0);
    // A page of frames between two without memory, as at the beginning of a thread's frames.
    // SAFETY: the mapping is new, and its middle page is written to within its bounds.
    let middle = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        let middle = pages.cast::<u8>().add(PAGE);
        assert_eq!(libc::mprotect(middle.cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
        middle
    };
    let mut calls_from = |place: usize, previous: u64| {
        let frame = [inner | 1, previous, inner + 48 + 4, 0];
        // SAFETY: the middle page has room for a frame at `place`.
        let frame = unsafe {
            let to = middle.add(place).cast::<[u64; 4]>();
            to.write(frame);
            to as u64
        };
        let (state, mut calls) = (heap.state(frame), Calls::new());
        assert!(frames::read_foreign(&mut Foreign::new(), &LAYOUT, state, &mut calls));
        let found: Vec<_> = calls.innermost_first().iter().map(|call| call.code as u64).collect();
        (frame, found)
    };
    let (first, calls) = calls_from(0, elsewhere);
    assert_eq!(calls, [inner, outer]);
    let (_, calls) = calls_from(PAGE - size_of::<[u64; 4]>(), first);
    assert_eq!(calls, [inner, inner, outer]);
}

#[test]
fn more_code_objects_than_there_is_room_for_are_read_from_outside() {
    let mut heap = Heap::default();
    let codes: Vec<_> = (1..30).map(|version| heap.code("deep", version)).collect();
    let innermost = codes.iter().fold(0, |previous, code| heap.frame(*code, previous, 0));
    let (state, mut calls) = (heap.state(innermost), Calls::new());
    let mut memory = Foreign::new();
    for _ in 0..2 {
        assert!(frames::read_foreign(&mut memory, &LAYOUT, state, &mut calls));
        let found = calls.innermost_first().iter().map(|call| call.code as u64);
        assert!(found.eq(codes.iter().rev().copied()));
    }
}

#[test]
fn memory_that_is_not_there_is_no_stack() {
    let mut heap = Heap::default();
    let dangling = heap.state(0xDEAD_0000);
    assert!(read(&mut Foreign::new(), dangling).is_none());
    assert!(read(&mut Foreign::new(), 0x1234_5678).is_none());
    let nowhere = heap.frame(0x7777_0000, 0, 0);
    let nowhere = heap.state(nowhere);
    assert!(read(&mut Foreign::new(), nowhere).is_none());
    // An object of another type is no code.
    let text = heap.text("no code at all, but long enough for one");
    let other = heap.frame(text, 0, 0);
    let other = heap.state(other);
    assert!(read(&mut Own, other).expect("a stack").innermost_first().is_empty());
}

#[test]
fn a_loop_of_frames_ends_and_a_deep_stack_is_cut() {
    let mut heap = Heap::default();
    let code = heap.code("recurse", 1);
    let mut frame = 0;
    for _ in 0..DEPTH {
        frame = heap.frame(code, frame, 0);
    }
    let whole = heap.state(frame);
    let deeper = heap.frame(code, frame, 0);
    let deeper = heap.state(deeper);
    let store = store();
    let [whole, deeper] = [whole, deeper].map(|state| node(store, state).expect("a node"));
    assert_ne!(whole, deeper);
    let root_of = |mut node: u32| {
        let mut depth = 0;
        while let Some((parent, ..)) = store.node(node) {
            (node, depth) = (parent, depth + 1);
        }
        (node == CUT, depth)
    };
    assert_eq!((root_of(whole), root_of(deeper)), ((false, DEPTH), (true, DEPTH)));
    let around = heap.frame(0, 0, 3);
    // SAFETY: a frame of the test, which becomes its own caller.
    unsafe { (around as *mut u64).add(1).write(around) };
    let around = heap.state(around);
    assert!(read(&mut Own, around).expect("a stack").innermost_first().is_empty());
}

#[test]
fn a_stack_has_one_node_and_another_code_at_its_address_another() {
    let mut heap = Heap::default();
    let code = heap.code("first", 1);
    let frame = heap.frame(code, 0, 0);
    let state = heap.state(frame);
    let store = store();
    let first = node(store, state).expect("a node");
    assert_eq!(node(store, state), Some(first));
    let empty = heap.state(0);
    assert_eq!(node(store, empty), Some(EMPTY_STACK));
    // The code object is freed, and another one is made at its address.
    let other = heap.text("second");
    // SAFETY: a code object of the test, which nothing reads at the same time.
    unsafe {
        (code as *mut u64).add(2).write(other);
        (code as *mut u64).add(5).write(50 | 2 << 32);
    }
    let second = node(store, state).expect("a node");
    assert_ne!(second, first);
    let name_of = |node: u32| {
        let (_, code, offset) = store.node(node).expect("a node");
        let (name, file, lines, first_line) = store.code(code).expect("a code");
        assert_eq!((file.as_str(), lines.len(), offset), ("shop.py", 2, 4));
        (name, first_line)
    };
    assert_eq!(name_of(first), ("first".into(), 40));
    assert_eq!(name_of(second), ("second".into(), 50));
}

#[test]
fn full_tables_refuse_and_keep_what_they_have() {
    let mut heap = Heap::default();
    let code = heap.code("generated", 1);
    let frame = heap.frame(code, 0, 0);
    let state = heap.state(frame);
    let store = store();
    let first = node(store, state).expect("a node");
    let mut refused = 0;
    for version in 2..20_000_u64 {
        // SAFETY: a code object of the test, which nothing reads at the same time.
        unsafe { (code as *mut u64).add(5).write(40 | version << 32) };
        refused += u32::from(node(store, state).is_none());
    }
    assert!(refused > 10_000, "{refused}");
    // SAFETY: a code object of the test, which nothing reads at the same time.
    unsafe { (code as *mut u64).add(5).write(40 | 1 << 32) };
    assert_eq!(node(store, state), Some(first));
    let kind = ChargeKind::Waited as u32;
    let key = |thread| Key { kind, serial: 1, node: first, thread, waiter: 0, context: 0 };
    let tables = store.lock();
    let kept = (1..30_000).filter(|thread| tables.charge(key(*thread), 10)).count();
    assert!(kept > 10_000 && kept < 16_384, "{kept}");
    assert!(tables.charge(key(1), 5));
    drop(tables);
    let row = store.rows().find(|(found, ..)| *found == key(1)).expect("a row");
    assert_eq!((row.1, row.2), (15, 2));
    assert!(store.is_nearly_full());
    let tables = store.lock();
    tables.clear();
    assert!(!store.is_nearly_full() && store.rows().next().is_none());
    assert!(tables.charge(Key { context: 7, ..key(1) }, 10) && tables.charge(key(1), 5));
    drop(tables);
    assert_eq!(store.rows().map(|row| (row.0.context, row.1)).collect::<HashSet<_>>().len(), 2);
    store.clear([3, 4]);
    assert_eq!(store.rows().count(), 0);
    assert!(node(store, state).is_some());
}

#[test]
fn the_lock_has_one_holder() {
    let store = store();
    let tables = store.try_lock().expect("the lock");
    assert!(store.try_lock().is_none());
    drop(tables);
    assert!(store.try_lock().is_some());
    store.name_thread(5, b"early");
    store.name_thread(5, b"late");
    assert_eq!(store.thread_names(), [(5, "early".to_owned()), (5, "late".to_owned())]);
    assert_eq!(store.began_wall_ns.load(Relaxed), 2);
}
