//! Copies of the books at one moment: of this process, of its children, or of a ledger file.
//!
//! A snapshot needs no GIL and locks none of CPython's mutexes. It copies the rows of one GIL again until no
//! event of that GIL fell in between, so they are of one moment and the books balance. Other processes'
//! books are copied as they change: off by the event under way, at most.

mod copies;
pub mod holds;
pub mod totals;

use std::ffi::CStr;
use std::sync::atomic::Ordering::*;

use headway_sched::PolicyName;

use crate::aggregation;
use crate::counters;
use crate::counters::book::{COMMAND_BYTES, GilBook, NAME_BYTES, Name, ThreadBook, state};
use crate::counters::free_list;
use crate::counters::mapping;
use crate::counters::mapping::{Reader, RegionError, Slot};
use crate::parked_waits;
use crate::registry::gil::Gil;
use crate::registry::gils;
use crate::registry::threads::Registry;
use crate::snapshot::copies::Copies;
use headway_measure::Histogram;
use headway_measure::clock::{self, now_ns};

/// One GIL. Counts, and times in nanoseconds; `held_ns + handoff_ns + idle_ns == wall_ns`, and
/// `takes + held_at_open == drops + held_now`.
#[derive(Clone, Debug, Default)]
pub struct GilRow {
    /// What thread rows refer to.
    pub id: u32,
    /// What the program calls it; empty where it was not told.
    pub name: String,
    /// The interpreter that owns the GIL, `None` if unknown or for a sum of GILs that ended.
    pub interpreter: Option<i64>,
    pub alive: bool,
    /// How many ended GILs this row sums up; 0 for an ordinary row.
    pub folded: u32,
    pub held_at_open: u32,
    pub held_now: u32,
    pub wall_ns: u64,
    pub held_ns: u64,
    pub handoff_ns: u64,
    pub idle_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub voluntary_drops: u64,
    pub forced_drops: u64,
    pub drop_requests: u64,
    pub preemptions: u64,
    /// The longest wait of a thread of each class; 0 if there was none.
    pub longest_io_bound_wait_ns: u64,
    pub longest_cpu_bound_wait_ns: u64,
    /// Events that did not fit; the books were mended at each. 0 in a sound run.
    pub anomalies: u64,
}

/// One thread with one GIL, or a sum of threads that ended.
#[derive(Clone, Debug, Default)]
pub struct ThreadRow {
    pub gil: u32,
    /// `None` for a sum of threads.
    pub native_id: Option<u32>,
    pub name: String,
    pub alive: bool,
    /// How many ended threads this row sums up; 0 for an ordinary row.
    pub folded: u32,
    /// Holds that ended, and the present one so far.
    pub held_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub voluntary_drops: u64,
    pub forced_drops: u64,
    pub preemptions: u64,
    pub forced_waits: u64,
    pub forced_waited_ns: u64,
    /// The longest time from a drop request to the drop that answered it; 0 if there was none.
    pub longest_answer_ns: u64,
    /// The most CPU time that was used in such a time; 0 if none is known.
    pub longest_answer_cpu_ns: u64,
    pub wait: Histogram,
    pub hold: Histogram,
}

/// The waits of one thread of a free-threaded build, or of a sum of threads that ended: see `parks`.
#[derive(Clone, Debug, Default)]
pub struct ParkRow {
    pub native_id: Option<u32>,
    pub name: String,
    pub alive: bool,
    pub folded: u32,
    pub parked: Histogram,
    pub suspended: Histogram,
    /// Waits of a millisecond at most for others to stop, and their sum.
    pub stopping: u64,
    pub stopping_ns: u64,
}

/// What a free-threaded process did.
#[derive(Clone, Debug, Default)]
pub struct Parks {
    /// CPU time of all threads, Python or not, while the process was watched; `None` where another
    /// process ended that did not tell.
    pub cpu_ns: Option<u64>,
    pub threads: Vec<ParkRow>,
}

/// The books of one process.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub pid: i32,
    pub alive: bool,
    pub python: String,
    /// The process that this one was forked from; `None` if it was started by exec.
    pub forked_from: Option<i32>,
    /// The parent when the books opened.
    pub parent_pid: Option<i32>,
    /// The arguments of the process; of a forked process, its parent's. Empty where they are not known.
    pub command: Vec<String>,
    pub gil_enabled: bool,
    /// The name of the policy in force; the last one, once the books are closed.
    pub policy: &'static str,
    pub switch_interval_us: u64,
    pub wall_ns: u64,
    pub gils: Vec<GilRow>,
    pub threads: Vec<ThreadRow>,
    /// `None` on a build with a GIL.
    pub parks: Option<Parks>,
    /// Events of threads that there was no book for.
    pub unmeasured_events: u64,
    /// Processes that descend from this one, of those that found room.
    pub children: Vec<Snapshot>,
    /// Processes that found none.
    pub unlisted_children: u32,
}

/// The books of this process and of those that descend from it; `None` before the first install.
/// What the process did in an image before it replaced itself by exec is one of these.
pub fn snapshot() -> Option<Snapshot> {
    let own = counters::slot()?;
    let mut snapshot = own_snapshot(own);
    let Some(header) = mapping::header() else { return Some(snapshot) };
    let pid_of = |slot: &Slot| slot.pid.load(Relaxed);
    let slots: Vec<_> = mapping::claimed(header).collect();
    // Only the process that began the run tells of the others.
    if slots.first().is_some_and(|first| pid_of(first) == snapshot.pid) {
        let is_over = |index: usize| {
            let pid = pid_of(&slots[index]);
            pid == snapshot.pid || slots[index + 1..].iter().any(|later| pid_of(later) == pid)
        };
        let others = (0..slots.len()).filter(|index| !std::ptr::eq(&raw const *slots[*index], own));
        let children = others.filter_map(|index| other_snapshot(&slots[index], is_over(index)));
        snapshot.children = children.collect();
        let unseen = mapping::claimed_count(header).saturating_sub(slots.len()) as u32;
        snapshot.unlisted_children = header.unlisted.load(Relaxed) + unseen;
    }
    Some(snapshot)
}

/// The books in the ledger file at `path`, by which a run is known after it crashed.
pub fn read_ledger(path: &CStr) -> Result<Snapshot, RegionError> {
    let reader = Reader::open(path)?;
    let opened = |slot: &&Slot| slot.opened_ns.load(Relaxed) != 0;
    let slots: Vec<&Slot> = reader.slots().filter(opened).collect();
    let pid_of = |index: usize| slots[index].pid.load(Relaxed);
    let is_over = |index| (index + 1..slots.len()).any(|later| pid_of(later) == pid_of(index));
    // The process that began the run, in its last image.
    let owner = (0..slots.len()).rfind(|index| pid_of(*index) == pid_of(0));
    let owner = owner.ok_or(RegionError::NotALedger)?;
    let snapshot_of = |index| other_snapshot(slots[index], is_over(index));
    let mut snapshot = snapshot_of(owner).ok_or(RegionError::NotALedger)?;
    let others = (0..slots.len()).filter(|index| *index != owner);
    snapshot.children = others.filter_map(snapshot_of).collect();
    snapshot.unlisted_children = reader.header().unlisted.load(Relaxed);
    Ok(snapshot)
}

fn own_snapshot(slot: &'static Slot) -> Snapshot {
    let registry = Registry::lock();
    free_list::prepare(slot);
    aggregation::fold(slot, &registry);
    let mut snapshot = head(slot);
    snapshot.alive = true;
    for (index, book) in slot.gils.iter().enumerate() {
        if book.state.load(Acquire) == state::FREE {
            continue;
        }
        let mut copies = Copies::of_gil(index as u32);
        let gil = gils::all().get(index);
        let unmeasured = gil.map_or(u32::MAX, |gil| gil.unmeasured.load(Relaxed));
        let running = |at: u32, book: &ThreadBook| {
            at == unmeasured || book.state.load(Relaxed) == state::LIVE
        };
        let mut copy_moment = || {
            let open = book.closed_ns.load(Relaxed) == 0;
            let now_ns = match open {
                true => gil.map_or_else(now_ns, Gil::moment_ns),
                false => book.changed_ns.load(Relaxed),
            };
            copies.copy(slot, || gil.map_or(0, Gil::sequence), running);
            (gil_row(index as u32, book, now_ns, open), holding(book, now_ns))
        };
        let (row, holding) = match gil {
            Some(gil) => gil.read(copy_moment),
            None => copy_moment(),
        };
        // What has ended does not change while the registry is locked. A thread that is seen running only
        // now came after the moment.
        copies.copy_others(slot, |at, book| !running(at, book));
        snapshot.threads.extend(rows(copies, holding));
        snapshot.gils.push(row);
    }
    let end_ns = match slot.closed_ns.load(Relaxed) {
        0 => {
            slot.cpu_noted_ns.store(clock::process_cpu_ns(), Relaxed);
            now_ns()
        }
        closed_ns => closed_ns,
    };
    let cpu_ns = Some(slot.cpu_noted_ns.load(Relaxed));
    snapshot.parks = parks_of(slot, cpu_ns, true);
    snapshot.wall_ns = end_ns.saturating_sub(slot.opened_ns.load(Relaxed));
    snapshot
}

/// Another process's books, as far as it got; `None` if it never opened them. Without a GIL there
/// are no rows, but a process all the same. It `is_over` where a later slot has its pid: it has become
/// another image by exec, or ended and its pid was given away again.
fn other_snapshot(slot: &Slot, is_over: bool) -> Option<Snapshot> {
    let mut snapshot = head(slot);
    // SAFETY: signal 0 only asks whether the process exists.
    snapshot.alive = !is_over && unsafe { libc::kill(snapshot.pid, 0) } == 0;
    let books = || slot.gils.iter().filter(|book| book.state.load(Acquire) != state::FREE);
    let opened_ns = Some(slot.opened_ns.load(Relaxed)).filter(|ns| *ns != 0)?;
    let last_ns = books().map(|book| book.changed_ns.load(Relaxed)).max().unwrap_or(opened_ns);
    let end_ns = match (slot.closed_ns.load(Relaxed), snapshot.alive) {
        (0, true) => now_ns(),
        (0, false) => last_ns,
        (closed_ns, _) => closed_ns,
    };
    for (index, book) in slot.gils.iter().enumerate() {
        if book.state.load(Acquire) == state::FREE {
            continue;
        }
        let open = book.closed_ns.load(Relaxed) == 0;
        let now_ns = if open { end_ns } else { book.changed_ns.load(Relaxed) };
        let mut copies = Copies::of_gil(index as u32);
        let row = gil_row(index as u32, book, now_ns, open && snapshot.alive);
        let holding = holding(book, now_ns);
        copies.copy_others(slot, |_, _| true);
        snapshot.threads.extend(rows(copies, holding));
        snapshot.gils.push(row);
    }
    let cpu_ns = match (slot.closed_ns.load(Relaxed), snapshot.alive) {
        (0, true) => clock::cpu_ns_of_process(snapshot.pid),
        (0, false) => None,
        _ => Some(slot.cpu_noted_ns.load(Relaxed)),
    };
    snapshot.parks = parks_of(slot, cpu_ns, snapshot.alive);
    if !snapshot.alive {
        snapshot.threads.iter_mut().for_each(|row| row.alive = false);
    }
    snapshot.wall_ns = end_ns.saturating_sub(slot.opened_ns.load(Relaxed));
    Some(snapshot)
}

/// Each row as its thread writes it: a wait that ends meanwhile may be in one figure and not in another.
fn parks_of(slot: &Slot, cpu_ns: Option<u64>, alive: bool) -> Option<Parks> {
    if slot.sees_parks.load(Relaxed) == 0 {
        return None;
    }
    let cpu_ns = cpu_ns.map(|ns| ns.saturating_sub(slot.cpu_opened_ns.load(Relaxed)));
    let mut copies = Copies::of_gil(gils::NO_GIL as u32);
    copies.copy_others(slot, |_, _| true);
    let row = |(_, book): (u32, Box<ThreadBook>)| {
        let native_id = book.native_id.load(Relaxed);
        let (stopping, stopping_ns) = parked_waits::stopping(&book);
        ParkRow {
            native_id: (native_id != 0).then_some(native_id),
            name: text_of(&book.name),
            alive: alive && book.state.load(Relaxed) == state::LIVE,
            folded: book.folded.load(Relaxed),
            parked: parked_waits::parked(&book).read(),
            suspended: parked_waits::suspended(&book).read(),
            stopping,
            stopping_ns,
        }
    };
    Some(Parks { cpu_ns, threads: copies.into_books().map(row).collect() })
}

pub(super) fn head(slot: &Slot) -> Snapshot {
    Snapshot {
        pid: slot.pid.load(Relaxed),
        python: text_of(&slot.python),
        forked_from: Some(slot.forked_from.load(Relaxed)).filter(|pid| *pid != 0),
        parent_pid: Some(slot.parent_pid.load(Relaxed)).filter(|pid| *pid != 0),
        command: arguments(slot.command.get(&mut [0; COMMAND_BYTES])),
        gil_enabled: slot.gil_enabled.load(Relaxed) != 0,
        // Only the memory of a damaged ledger holds another number.
        policy: PolicyName::ALL
            .get(slot.policy.load(Relaxed) as usize)
            .map_or("unknown", |policy| policy.as_str()),
        switch_interval_us: slot.switch_interval_us.load(Relaxed),
        unmeasured_events: slot.unmeasured.load(Relaxed),
        ..Snapshot::default()
    }
}

/// Each of them ends with a zero byte, if it is there in full.
fn arguments(command: &[u8]) -> Vec<String> {
    let command = command.strip_suffix(b"\0").unwrap_or(command);
    match command.is_empty() {
        true => Vec::new(),
        false => command.split(|byte| *byte == 0).map(text).collect(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn text_of(name: &Name) -> String {
    text(name.get(&mut [0; NAME_BYTES]))
}

/// The present holder's book and how long it has held, if anybody holds.
pub(super) fn holding(book: &GilBook, now_ns: u64) -> Option<(u32, u64)> {
    let held = book.held_now.load(Relaxed) == 1 && book.closed_ns.load(Relaxed) == 0;
    let since_ns = now_ns.saturating_sub(book.changed_ns.load(Relaxed));
    held.then(|| (book.holder.load(Relaxed), since_ns))
}

pub(super) fn gil_row(id: u32, book: &GilBook, now_ns: u64, alive: bool) -> GilRow {
    let mut row = GilRow {
        id,
        name: text_of(&book.name),
        interpreter: Some(book.interpreter.load(Relaxed)).filter(|id| *id >= 0),
        alive,
        folded: book.folded.load(Relaxed),
        held_at_open: book.held_at_open.load(Relaxed),
        held_now: book.held_now.load(Relaxed),
        wall_ns: book.wall_ns.load(Relaxed),
        held_ns: book.held_ns.load(Relaxed),
        handoff_ns: book.handoff_ns.load(Relaxed),
        idle_ns: book.idle_ns.load(Relaxed),
        takes: book.takes.load(Relaxed),
        contended_takes: book.contended_takes.load(Relaxed),
        voluntary_drops: book.voluntary_drops.load(Relaxed),
        forced_drops: book.forced_drops.load(Relaxed),
        drop_requests: book.drop_requests.load(Relaxed),
        preemptions: book.preemptions.load(Relaxed),
        longest_io_bound_wait_ns: book.longest_io_bound_wait_ns.load(Relaxed),
        longest_cpu_bound_wait_ns: book.longest_cpu_bound_wait_ns.load(Relaxed),
        anomalies: book.anomalies.load(Relaxed),
    };
    if book.state.load(Relaxed) != state::FOLDED {
        let open = book.closed_ns.load(Relaxed) == 0;
        let present_ns = now_ns.saturating_sub(book.changed_ns.load(Relaxed));
        match (open, row.held_now, book.gap.load(Relaxed)) {
            (false, ..) => {}
            (_, 1, _) => row.held_ns += present_ns,
            (_, _, crate::counters::book::gap::HANDOFF) => row.handoff_ns += present_ns,
            _ => row.idle_ns += present_ns,
        }
        let end_ns = book.changed_ns.load(Relaxed).max(now_ns);
        row.wall_ns = end_ns.saturating_sub(book.opened_ns.load(Relaxed));
    }
    row
}

fn rows(copies: Copies, holding: Option<(u32, u64)>) -> impl Iterator<Item = ThreadRow> {
    copies.into_books().filter_map(move |(index, book)| {
        let present_ns = holding.filter(|(holder, _)| *holder == index).map_or(0, |(_, ns)| ns);
        thread_row(&book, present_ns)
    })
}

/// The row of a book; `None` for a sum that nothing was added to.
fn thread_row(book: &ThreadBook, present_ns: u64) -> Option<ThreadRow> {
    let state = book.state.load(Relaxed);
    let takes = book.takes.load(Relaxed);
    let folded = book.folded.load(Relaxed);
    if state == state::FOLDED && takes == 0 && folded == 0 {
        return None;
    }
    let native_id = book.native_id.load(Relaxed);
    Some(ThreadRow {
        gil: book.gil.load(Relaxed),
        native_id: (native_id != 0).then_some(native_id),
        name: text_of(&book.name),
        alive: state == state::LIVE,
        folded,
        held_ns: book.hold.sum_ns.load(Relaxed) + book.held_at_close_ns.load(Relaxed) + present_ns,
        takes,
        contended_takes: book.contended_takes.load(Relaxed),
        voluntary_drops: book.voluntary_drops.load(Relaxed),
        forced_drops: book.forced_drops.load(Relaxed),
        preemptions: book.preemptions.load(Relaxed),
        forced_waits: book.forced_waits.load(Relaxed),
        forced_waited_ns: book.forced_waited_ns.load(Relaxed),
        longest_answer_ns: book.longest_answer_ns.load(Relaxed),
        longest_answer_cpu_ns: book.longest_answer_cpu_ns.load(Relaxed),
        wait: book.wait.read(),
        hold: book.hold.read(),
    })
}
