//! Beginning, ending and reading a profile. Not for hooks.

use std::ffi::{CStr, c_int};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::*;

use headway_measure::clock;
use rustix::mm::munmap;

use super::charges::Charges;
use super::frames::{self, Calls, Memory, Own};
use super::growth;
use super::layout::Layout;
use super::parked;
use super::recording::{self, is_asked_for, is_on};
use super::resolver::{Frame, Resolver};
use super::store::{ChargeKind, STORE_BYTES, Store};
use crate::counters::mapping::MappingError;
use crate::counters::{self, file, free_list, state};
use crate::registry::gils;
use crate::registry::threads::this_thread;

/// The charge of one stack of one thread. Thread IDs are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// 1: the stack was read at a forced drop, 2: at a voluntary one, 3: while the thread held.
    /// 4: the thread waited.
    pub kind: u32,
    /// The serial number of the GIL's opening.
    pub gil: u32,
    /// The index of the stack.
    pub stack: u32,
    pub thread: u32,
    /// A thread that waited; 0 if it is not known.
    pub waiter: u32,
    pub charged_ns: u64,
    pub readings: u32,
}

/// The sums of a GIL; `serial` is 0 for the GILs that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GilSums {
    pub serial: u32,
    /// -1 for the waits of a free-threaded build.
    pub interpreter: i64,
    pub name: String,
    /// The time of all waits, including those that have not ended.
    pub waited_ns: u64,
    pub handoff_ns: u64,
    /// The parts of `waited_ns` that are in no charge, on the side of holders and on that of
    /// waiters.
    pub held_not_recorded_ns: u64,
    pub waits_not_recorded_ns: u64,
}

/// A profile at one moment.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The begin of the profile in nanoseconds since 1970.
    pub began_wall_ns: u64,
    pub wall_ns: u64,
    pub frames: Vec<Frame>,
    /// Indices of frames, the outermost call first. A stack that was cut begins with
    /// `CUT_FRAME`.
    pub stacks: Vec<Vec<u32>>,
    pub charges: Vec<Charge>,
    pub gils: Vec<GilSums>,
    /// Names of threads by ID; of two with one ID, the later one is last.
    pub threads: Vec<(u32, String)>,
}

/// The reason why a profile does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// A profile is on.
    IsOn,
    /// There is no GIL, and waits without one are not counted.
    NoGil,
    /// The frames of this CPython have an unknown layout.
    UnknownFrames,
    Memory(c_int),
}

/// Begins a profile. The tables lie behind the counters in the counters file at `path`, so that
/// they can be read after a crash, or in memory. `verify` gets the calling thread's calls, as they
/// were read from memory, the innermost first, and returns whether they are right. For a thread
/// that holds the main GIL, if there is one, with the thread state at `state`.
///
/// A profile that is on for a reporter becomes this one, which begins with nothing charged.
pub fn begin(
    layout: Layout,
    state: usize,
    path: Option<&CStr>,
    verify: impl FnOnce(&[Frame]) -> bool,
) -> Result<(), NotBegun> {
    if is_on() && is_asked_for() {
        return Err(NotBegun::IsOn);
    }
    begin_as(true, layout, state, path, verify)
}

/// Begins a profile for a reporter, which reads it with [`growth::take`], or lets it read the one
/// that is on. Its tables hold what a reporter needs. The rest is as for `begin`.
pub fn begin_for_reporter(
    layout: Layout,
    state: usize,
    verify: impl FnOnce(&[Frame]) -> bool,
) -> Result<(), NotBegun> {
    if growth::is_read() {
        return Err(NotBegun::IsOn);
    }
    if !is_on() {
        begin_as(false, layout, state, None, verify)?;
    }
    if growth::start() { Ok(()) } else { Err(NotBegun::IsOn) }
}

fn begin_as(
    is_asked_for: bool,
    layout: Layout,
    state: usize,
    path: Option<&CStr>,
    verify: impl FnOnce(&[Frame]) -> bool,
) -> Result<(), NotBegun> {
    let has_gil = gils::main().cond.load(Relaxed) != 0;
    let sees_parks =
        counters::of_this_process().is_some_and(|process| process.sees_parks.load(Relaxed) != 0);
    if !has_gil && !sees_parks {
        return Err(NotBegun::NoGil);
    }
    let began = [clock::now_ns(), clock::wall_ns()];
    let store = match recording::last() {
        Some(store) => {
            stop_events();
            growth::keep_rest(store);
            let _tables = store.lock();
            store.clear(began);
            store
        }
        None => {
            let memory = match path {
                Some(path) => file::append(path, 0, STORE_BYTES),
                None => file::private_memory(STORE_BYTES),
            };
            let memory = memory.map_err(NotBegun::Memory)?;
            // SAFETY: zero bytes, aligned to a page, of that length, never unmapped.
            unsafe { Store::begin(memory.cast(), began, &layout) }
        }
    };
    // SAFETY: the caller's own thread state and frames.
    let own = unsafe { own_calls(store, &layout, state, has_gil) };
    if !own.is_some_and(|calls| verify(&calls)) {
        return Err(NotBegun::UnknownFrames);
    }
    recording::keep_layout(layout);
    recording::set_asked_for(is_asked_for);
    recording::set_knows_holders(has_gil);
    if sees_parks {
        parked::begin(store, began[0]);
    }
    recording::begin(store);
    Ok(())
}

/// The calls of the calling thread, the innermost first; `None` if `state`, or its place in the
/// GIL, is not as expected.
///
/// # Safety
/// `state` is the calling thread's thread state, which holds the main GIL if `has_gil` is true.
unsafe fn own_calls(
    store: &Store,
    layout: &Layout,
    state: usize,
    has_gil: bool,
) -> Option<Vec<Frame>> {
    let mut calls = Calls::new();
    // SAFETY: `cond` of the main GIL lies in CPython's static memory, behind other fields. The
    // thread state is the caller's, and so are the frames.
    let node = unsafe {
        let holder: usize =
            if has_gil { Own.get(gils::main().addresses().last_holder())? } else { state };
        let thread: usize = Own.get(state.checked_add(layout.state_thread)?)?;
        if holder != state || thread != this_thread() {
            return None;
        }
        if !frames::read(&mut Own, layout, state, &mut calls) {
            return None;
        }
        store.lock().node_of(&mut Own, layout, &calls)?
    };
    let mut resolver = Resolver::new(store);
    let stack = resolver.stack_of(node);
    let frames = stack.iter().rev().filter_map(|index| resolver.frames.get(*index as usize));
    Some(frames.cloned().collect())
}

/// Ends the profile and copies it; `None` if there was none in this process. If a reporter reads
/// the profile, it continues for the reporter.
pub fn end() -> Option<Profile> {
    if is_on() && growth::is_read() {
        let copied = copy();
        recording::set_asked_for(false);
        return copied;
    }
    stop_events();
    copy()
}

/// Ends charging. Afterwards no event uses the tables.
fn stop_events() {
    recording::end(clock::now_ns());
    // Events that began earlier may still use the tables. They hold a GIL's mutex for a moment.
    gils::all().iter().for_each(|gil| gil.wait_for_event());
}

/// A copy of the present or last profile; `None` if there is none in this process.
pub fn copy() -> Option<Profile> {
    let store = recording::last()?;
    let now_ns = match store.ended_ns.load(Relaxed) {
        0 => clock::now_ns(),
        ended_ns => ended_ns,
    };
    let mut copied = {
        let _tables = store.lock();
        copy_of(store, now_ns, true)
    };
    if let Some(process) = counters::of_this_process() {
        let live =
            free_list::used(process).filter(|(_, row)| row.state.load(Relaxed) == state::LIVE);
        copied
            .threads
            .extend(live.map(|(_, row)| (row.native_id.load(Relaxed), row.name.to_text())));
    }
    Some(copied)
}

/// The profile in an open counters file; `None` if there is none.
pub fn read_file(fd: BorrowedFd) -> Result<Option<Profile>, MappingError> {
    let Some((memory, bytes)) = file::map_behind(fd)? else { return Ok(None) };
    // SAFETY: a mapping of this length, which stays until the profile is copied.
    let copied = unsafe { Store::find(memory.cast(), bytes) }.map(|store| {
        let charges = store.gils.iter().chain(&store.parked);
        let last_ns = charges.map(|charges| charges.changed_ns.load(Relaxed)).max();
        let ended_ns = store.ended_ns.load(Relaxed);
        copy_of(store, if ended_ns == 0 { last_ns.unwrap_or(0) } else { ended_ns }, false)
    });
    // SAFETY: our own mapping, of this length.
    let _ = unsafe { munmap(memory, bytes) };
    Ok(copied)
}

/// The number of bytes of the profile behind the counters in a file; 0 if there is none.
pub fn bytes_behind(memory: *const Store, bytes: usize) -> usize {
    // SAFETY: the caller has mapped these bytes.
    unsafe { Store::find(memory, bytes) }.map_or(0, |_| STORE_BYTES)
}

/// The bytes of the present or last profile that was asked for, which a file has behind the
/// counters. That of a reporter alone is in memory and stays there.
pub fn bytes() -> Option<(*const u8, usize)> {
    let store = recording::last().filter(|_| is_asked_for())?;
    Some((std::ptr::from_ref(store).cast(), STORE_BYTES))
}

/// Ends a profile that was asked for and writes it to `fd`, behind the counters that are there; the
/// error is an errno. Async-signal-safe.
pub fn write_to(fd: c_int) -> Result<(), c_int> {
    let Some((start, bytes)) = bytes() else { return Ok(()) };
    recording::end(clock::now_ns());
    file::write_behind(fd, 0, start, bytes)
}

/// The caller holds the lock, so nothing is charged meanwhile. `is_own` is true if events of this
/// process may change the sums.
fn copy_of(store: &Store, now_ns: u64, is_own: bool) -> Profile {
    let mut resolver = Resolver::new(store);
    let charges = store.rows().map(|(key, charged_ns, readings)| Charge {
        kind: key.kind,
        gil: key.serial,
        stack: resolver.index_of(key.node),
        thread: key.thread,
        waiter: key.waiter,
        charged_ns,
        readings,
    });
    let charges: Vec<_> = charges.collect();
    let gils = all_sums(store, now_ns, is_own);
    Profile {
        began_wall_ns: store.began_wall_ns.load(Relaxed),
        wall_ns: now_ns.saturating_sub(store.began_ns.load(Relaxed)),
        frames: resolver.frames,
        stacks: resolver.stacks,
        charges,
        gils,
        threads: store.thread_names(),
    }
}

/// The sums of all GILs, and of those that ended. An event that begins the sums of another GIL in
/// the place of one adds the former sums to those of ended GILs, so all are read again if these
/// have changed meanwhile.
fn all_sums(store: &Store, now_ns: u64, is_own: bool) -> Vec<GilSums> {
    const TRIES: u32 = 1_000;
    let sums =
        |charges: &Charges| (charges.serial.load(Acquire) != 0).then(|| sums_of(charges, now_ns));
    let sums_of_gil = |(index, charges): (usize, &Charges)| match gils::all().get(index) {
        Some(gil) if is_own => gil.read(|| sums(charges)),
        _ => sums(charges),
    };
    let mut tries = 0;
    loop {
        let ended = sums_of(&store.ended, now_ns);
        let gils = store.gils.iter().enumerate().filter_map(sums_of_gil);
        let mut found: Vec<_> = gils.chain(store.parked.iter().filter_map(sums)).collect();
        tries += 1;
        if tries == TRIES || sums_of(&store.ended, now_ns) == ended {
            found.push(ended);
            return found;
        }
    }
}

fn sums_of(charges: &Charges, now_ns: u64) -> GilSums {
    let get = |sum: &std::sync::atomic::AtomicU64| sum.load(Relaxed);
    let present_ns = now_ns.saturating_sub(get(&charges.changed_ns));
    let waiting_ns = present_ns * u64::from(charges.waiters.load(Relaxed));
    let is_held = charges.held.load(Relaxed) != 0;
    // The sampler may have charged what was waited after `now_ns`.
    let charged_ns = get(&charges.charged_held_ns);
    let held_ns = (get(&charges.held_ns) + if is_held { waiting_ns } else { 0 }).max(charged_ns);
    let handoff_ns = get(&charges.handoff_ns) + if is_held { 0 } else { waiting_ns };
    let waited_ns = held_ns + handoff_ns;
    GilSums {
        serial: charges.serial.load(Relaxed),
        interpreter: charges.interpreter.load(Relaxed),
        name: charges.name.to_text(),
        waited_ns,
        handoff_ns,
        held_not_recorded_ns: held_ns - charged_ns + get(&charges.lost_held_ns),
        waits_not_recorded_ns: waited_ns.saturating_sub(get(&charges.charged_waits_ns))
            + get(&charges.lost_waits_ns),
    }
}

const _: () = assert!(ChargeKind::Waited as u32 == 4 && ChargeKind::Forced as u32 == 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_charged_after_the_moment_of_a_copy_was_waited_too() {
        // SAFETY: all zero bytes are unused sums.
        let charges: Box<Charges> = unsafe { Box::new(std::mem::zeroed()) };
        charges.begin(7, 1, true, 100);
        charges.charged_held_ns.store(50, Relaxed);
        for (now_ns, waited_ns, not_recorded_ns) in [(120, 50, 0), (150, 50, 0), (180, 80, 30)] {
            let sums = sums_of(&charges, now_ns);
            assert_eq!((sums.waited_ns, sums.held_not_recorded_ns), (waited_ns, not_recorded_ns));
        }
    }
}
