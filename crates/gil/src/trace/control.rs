//! Beginning, ending and reading a trace. Not for hooks.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::*;

use headway_measure::clock::now_ns;
use rustix::mm::munmap;

use super::recording::{self, EventKind, is_on, name_gil, record};
use super::ring::{self, MAX_ENTRIES, Ring, ring_bytes};
use crate::counters::mapping::MappingError;
use crate::counters::{self, file};
use crate::gil::life;
use crate::profile;
use crate::registry::{gils, rows};

/// Begins a trace with room for this number of events, or a few more. The ring lies behind the
/// counters in the counters file at `path`, so that it can be read after a crash, or in memory. For
/// a thread that holds the main GIL. The error is an errno, `EALREADY` while a trace is on.
pub fn begin(events: u64, path: Option<&CStr>) -> Result<(), i32> {
    if is_on() {
        return Err(libc::EALREADY);
    }
    let entries =
        events.max(2).checked_next_power_of_two().filter(|entries| *entries <= MAX_ENTRIES);
    let entries = entries.ok_or(libc::ENOMEM)?;
    let memory = match path {
        Some(path) => file::append(path, profile_bytes(), ring_bytes(entries))?,
        None => file::private_memory(ring_bytes(entries))?,
    };
    let now_ns = now_ns();
    // SAFETY: zero bytes, aligned to a page, of that length, never unmapped, and used by no other.
    unsafe {
        Ring::begin(memory.cast(), entries, now_ns);
        recording::begin(memory.cast());
    }
    // GILs that open from now on record their names themselves.
    for gil in gils::all().iter().filter(|gil| gil.life.load(Relaxed) == life::OPEN) {
        name_gil(gil.serial.load(Relaxed), gil.interpreter_id.load(Relaxed), &gil.name);
    }
    let main = gils::main();
    if let Some(process) = counters::of_this_process() {
        if main.life.load(Relaxed) == life::OPEN {
            if let Some((_, counters)) = rows::of_this_thread(main, process) {
                record(EventKind::Held, &main.serial, counters, now_ns);
            }
        }
    }
    Ok(())
}

/// Ends the trace and copies it; `None` if there was none in this process.
pub fn read() -> Option<ring::Trace> {
    recording::end();
    Some(recording::last()?.copy(now_ns()))
}

/// The trace in an open counters file; `None` if there is none.
pub fn read_file(fd: BorrowedFd) -> Result<Option<ring::Trace>, MappingError> {
    let Some((memory, bytes)) = file::map_behind(fd)? else { return Ok(None) };
    // SAFETY: a mapping of this length, which stays until the ring is copied.
    let skip = profile::control::bytes_behind(memory.cast(), bytes);
    let ring = unsafe { Ring::find(memory.byte_add(skip).cast(), bytes - skip) };
    let copy = ring.map(|ring| ring.copy(0));
    // SAFETY: our own mapping, of this length.
    let _ = unsafe { munmap(memory, bytes) };
    Ok(copy)
}

/// Ends the trace and writes it to `fd`, behind the counters that are there; the error is an errno.
/// Async-signal-safe.
pub fn write_to(fd: libc::c_int) -> Result<(), libc::c_int> {
    recording::end();
    let Some(ring) = recording::last() else { return Ok(()) };
    let (start, bytes) = ring.bytes();
    file::write_behind(fd, profile_bytes(), start, bytes)
}

/// The bytes between the counters and the trace in a file.
fn profile_bytes() -> usize {
    profile::control::bytes().map_or(0, |(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::mapping;
    use crate::trace::forget;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    /// Both in one test: a process has one trace at a time.
    #[test]
    fn a_trace_begins_when_none_is_on_and_with_room_that_can_be() {
        for events in [MAX_ENTRIES + 1, 1 << 60, 1 << 63, u64::MAX] {
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

    /// A followed child joins the counters file.
    #[test]
    fn a_counters_file_has_one_trace_and_joining_it_leaves_that_alone() {
        let path = std::env::temp_dir().join(format!("headway-trace-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path");
        let created = mapping::create_file(&name).is_ok();
        let appended = [0; 2].map(|_| file::append(&name, 0, ring_bytes(2)));
        let run = mapping::header().map_or(0, |header| header.run.load(Relaxed));
        let joined = mapping::join_file(&name, run).is_ok();
        let length = std::fs::metadata(&path).map_or(0, |file| file.len() as usize);
        std::fs::remove_file(&path).expect("a file");
        assert!(created && joined && appended[0].is_ok());
        assert_eq!(appended[1], Err(libc::EEXIST));
        assert_eq!(length, mapping::mapping_bytes(mapping::SLOTS) + ring_bytes(2));
    }
}
