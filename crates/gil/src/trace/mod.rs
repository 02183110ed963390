//! The trace: every take, wait, drop and drop request as an event of its own, the last of them kept.
//!
//! Off unless begun; off, it costs each event of a book one load and a branch.
//! [`record`] runs in hooks, under their rules; a fork ends the trace in the child, whose events nobody
//! would read. How events are kept is [`ring`]'s business.

pub mod ring;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::counters;
use crate::counters::book::ThreadBook;
use crate::counters::mapping;
use crate::counters::mapping::RegionError;
use crate::registry::gil::{Gil, life};
use crate::registry::gils;
use crate::registry::threads;
use headway_measure::clock::now_ns;
use ring::{Head, KIND_BITS, MOST_PLACES, Ring, THREAD_BITS, ring_bytes};

/// What an event was. Python's side, `headway.timeline.events`, knows the numbers too.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Kind {
    /// The thread held the GIL when the trace began.
    Held = 1,
    Wait = 2,
    Take = 3,
    /// A take that had a wait.
    ContendedTake = 4,
    Drop = 5,
    ForcedDrop = 6,
    DropRequest = 7,
    /// The thread waits no more, and has not taken.
    GaveUp = 8,
    /// Both are kept when the wait is over, the first with an earlier time.
    ForcedWait = 9,
    ForcedWaitEnded = 10,
    /// The GIL is gone; the event is nobody's.
    Closed = 11,
}

const _: () = assert!((Kind::Closed as u64) < 1 << KIND_BITS);

/// The ring that hooks write to. Writers: `begin`, releasing what it made; `end`, in any thread; a forked child.
/// Readers: hooks, acquiring it. The memory is never unmapped.
///
/// | `RING` | `KEPT` | meaning | set by |
/// |---|---|---|---|
/// | null | null | there was no trace, or it is the parent's | a forked child |
/// | a ring | the same | events are kept | `begin` |
/// | null | a ring | there was a trace; or one is about to begin | `end`; `begin`, on its way |
static RING: AtomicPtr<Head> = AtomicPtr::new(std::ptr::null_mut());
/// The same, and what is left of it after the end. Writers: `begin`, before it stores `RING`; a forked child.
/// Readers: who reads the trace, or begins one.
static KEPT: AtomicPtr<Head> = AtomicPtr::new(std::ptr::null_mut());

fn ring_at(ring: &AtomicPtr<Head>) -> Option<Ring> {
    let memory = ring.load(Acquire);
    // SAFETY: not null, so it was begun, and it is never unmapped.
    (!memory.is_null()).then(|| unsafe { Ring::at(memory) })
}

/// Whether events are kept.
#[inline(always)]
pub fn is_on() -> bool {
    !RING.load(Relaxed).is_null()
}

/// Begins a trace with room for so many events, or a few more: behind the ledger in the file at `ledger`, so
/// that it can be read after a crash, or in memory. For a thread that holds the main GIL; the error is an
/// errno, `EALREADY` while a trace is on.
pub fn begin(events: u64, ledger: Option<&CStr>) -> Result<(), i32> {
    if is_on() {
        return Err(libc::EALREADY);
    }
    let places = events.max(2).checked_next_power_of_two().filter(|places| *places <= MOST_PLACES);
    let places = places.ok_or(libc::ENOMEM)?;
    let memory = match ledger {
        Some(path) => mapping::append(path, ring_bytes(places))?,
        None => private_memory(ring_bytes(places))?,
    };
    let now_ns = now_ns();
    // SAFETY: zero bytes, at a page's begin, of that length, and nobody else's.
    unsafe { Ring::begin(memory.cast(), places, now_ns) };
    KEPT.store(memory.cast(), Release);
    RING.store(memory.cast(), Release);
    // What was opened before; an opening from now on is told by itself.
    gils::all().iter().filter(|gil| gil.life.load(Relaxed) == life::OPEN).for_each(name_gil);
    if let Some(slot) = counters::slot()
        && gils::main().life.load(Relaxed) == life::OPEN
        && let Some((_, book)) = threads::of_this_thread(gils::main(), slot)
    {
        record(Kind::Held, gils::main(), book, now_ns);
    }
    Ok(())
}

/// Memory that a fork shares until one of the two writes; there at once, so that no hook waits for a page.
fn private_memory(bytes: usize) -> Result<*mut c_void, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping, wherever the kernel likes.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    match memory == libc::MAP_FAILED {
        true => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM)),
        false => Ok(memory),
    }
}

/// Ends the trace. Async-signal-safe. Events that are under way may still be kept.
pub fn end() {
    if !RING.swap(std::ptr::null_mut(), AcqRel).is_null()
        && let Some(ring) = ring_at(&KEPT)
    {
        ring.head().ended_ns.store(now_ns(), Relaxed);
    }
}

/// In a forked child: the trace is the parent's.
pub fn forget() {
    RING.store(std::ptr::null_mut(), Relaxed);
    KEPT.store(std::ptr::null_mut(), Relaxed);
}

/// Ends the trace and copies it; `None` if there was none in this process.
pub fn read() -> Option<ring::Copy> {
    end();
    Some(ring_at(&KEPT)?.copy(now_ns()))
}

/// The trace that lies behind the ledger in the file at `path`; `None` if there is none.
pub fn read_file(path: &CStr) -> Result<Option<ring::Copy>, RegionError> {
    let Some((memory, bytes)) = mapping::map_behind(path)? else { return Ok(None) };
    // SAFETY: a mapping of so many bytes, which stays until the ring is read.
    let copy = unsafe { Ring::find(memory.cast(), bytes) }.map(|ring| ring.copy(0));
    // SAFETY: our own mapping, of this length.
    unsafe { libc::munmap(memory, bytes) };
    Ok(copy)
}

/// Ends the trace and writes it to `fd`, behind the ledger that is there; the error is an errno.
/// Async-signal-safe.
pub fn write_to(fd: libc::c_int) -> Result<(), libc::c_int> {
    end();
    let Some(ring) = ring_at(&KEPT) else { return Ok(()) };
    let (start, bytes) = ring.bytes();
    mapping::write_behind(fd, start, bytes)
}

/// Keeps an event of the thread that `book` belongs to. For hooks.
#[inline(always)]
pub fn record(kind: Kind, gil: &Gil, book: &ThreadBook, at_ns: u64) {
    if is_on() {
        keep(kind, gil, book.native_id.load(Relaxed), at_ns);
    }
}

/// The calling thread asks for a drop. For hooks.
#[inline(always)]
pub fn record_request(gil: &'static Gil, at_ns: u64) {
    if is_on()
        && let Some(slot) = counters::slot()
        && let Some((_, book)) = threads::of_this_thread(gil, slot)
    {
        record(Kind::DropRequest, gil, book, at_ns);
    }
}

/// Nothing more comes of this opening.
pub fn record_closed(gil: &Gil, at_ns: u64) {
    if is_on() {
        keep(Kind::Closed, gil, 0, at_ns);
    }
}

#[cold]
#[inline(never)]
fn keep(kind: Kind, gil: &Gil, native_id: u32, at_ns: u64) {
    if let Some(ring) = ring_at(&RING) {
        let thread = u64::from(native_id) & ((1 << THREAD_BITS) - 1);
        let serial = u64::from(gil.serial.load(Relaxed));
        ring.keep(at_ns, serial << 32 | (kind as u64) << THREAD_BITS | thread);
    }
}

/// A thread ends, and its name with it.
pub fn name_thread(native_id: u32, name: &[u8]) {
    if let Some(ring) = ring_at(&RING) {
        ring.name_thread(native_id, name);
    }
}

/// A GIL is open, or gets its name. May run in hooks.
pub fn name_gil(gil: &Gil) {
    if let Some(ring) = ring_at(&RING) {
        let (serial, interpreter) = (&gil.serial, &gil.interpreter_id);
        ring.name_gil(serial.load(Relaxed), interpreter.load(Relaxed), &gil.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    /// Both in one test: a process has one trace at a time.
    #[test]
    fn a_trace_begins_when_none_is_on_and_with_room_that_can_be() {
        for events in [MOST_PLACES + 1, 1 << 60, 1 << 63, u64::MAX] {
            assert_eq!(begin(events, None), Err(libc::ENOMEM), "{events}");
        }
        assert!(read().is_none());
        for _ in 0..2 {
            assert_eq!(begin(0, None), Ok(()));
            assert_eq!(begin(0, None), Err(libc::EALREADY));
            assert!(read().is_some());
        }
        forget();
    }

    /// As a followed child joins it.
    #[test]
    fn behind_a_ledger_there_is_one_trace_and_who_joins_it_leaves_that_alone() {
        let path = std::env::temp_dir().join(format!("headway-trace-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path");
        let created = mapping::create_file(&name).is_ok();
        let appended = [0; 2].map(|_| mapping::append(&name, ring_bytes(2)));
        let run = mapping::header().map_or(0, |header| header.run.load(Relaxed));
        let joined = mapping::join_file(&name, run).is_ok();
        let length = std::fs::metadata(&path).map_or(0, |file| file.len() as usize);
        std::fs::remove_file(&path).expect("a file");
        assert!(created && joined && appended[0].is_ok());
        assert_eq!(appended[1], Err(libc::EEXIST));
        assert_eq!(length, mapping::region_bytes(mapping::SLOTS) + ring_bytes(2));
    }
}
