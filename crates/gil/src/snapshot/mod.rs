//! Copies of the counters at one moment: of this process, of its children, or of a counters file.
//!
//! A snapshot needs no GIL and locks none of CPython's mutexes. It copies the rows of one GIL until
//! no event of that GIL ran in between, so they are of one moment and balance. Counters of other
//! processes are copied while they change, and are off by at most the running event.

mod copies;
pub mod holds;
pub mod loops;
mod rows;
pub mod totals;

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::*;

use headway_measure::clock::{self, now_ns};
use headway_sched::PolicyName;

use crate::counters::file::Reader;
use crate::counters::mapping::{self, MappingError};
use crate::counters::{
    self, GilCounters, LateLine, LateLineRow, NO_GIL, ProcessCounters, ThreadCounters,
};
use crate::counters::{aggregation, free_list, state};
use crate::gil::Gil;
use crate::registry::{gils, threads};
use crate::registry_lock;
use copies::Copies;
use loops::{LoopRow, loop_rows};
pub use rows::{GilRow, ParkRow, ThreadRow};
use rows::{gil_row, holding, park_row, thread_row};

/// The waits of a free-threaded process.
#[derive(Clone, Debug, Default)]
pub struct Parks {
    /// CPU time of all threads, Python or not, while the process was measured; `None` if another
    /// process ended without storing it.
    pub cpu_ns: Option<u64>,
    pub threads: Vec<ParkRow>,
}

/// The counters of one process.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub pid: i32,
    pub alive: bool,
    pub python: String,
    /// The process that forked this one; `None` if it was started by exec.
    pub forked_from: Option<i32>,
    /// The parent process when the counters opened.
    pub parent_pid: Option<i32>,
    /// The arguments of the process; of a forked process, those of its parent. Empty if they are
    /// not known.
    pub command: Vec<String>,
    pub gil_enabled: bool,
    /// The name of the policy in force, or the last one after the counters closed.
    pub policy: &'static str,
    pub switch_interval_us: u64,
    pub wall_ns: u64,
    pub gils: Vec<GilRow>,
    pub threads: Vec<ThreadRow>,
    /// `None` on a build with a GIL.
    pub parks: Option<Parks>,
    pub loops: Vec<LoopRow>,
    /// The lines that loops were late for.
    pub late_lines: Vec<LateLineRow>,
    /// From which duration on an iteration of a loop is late.
    pub late_loop_ns: u64,
    /// Threads that waited for events and found no room for a loop.
    pub unmeasured_loops: u32,
    /// Events of threads that found no free row.
    pub unmeasured_events: u64,
    /// Own GILs that found no room.
    pub unmeasured_gils: u32,
    /// The descendants of this process that found a slot.
    pub children: Vec<Snapshot>,
    /// The number of descendants that found none.
    pub unlisted_children: u32,
}

/// The counters of this process and of its descendants; `None` before the first install. If the
/// process replaced itself by exec, its earlier image is one of the descendants.
pub fn snapshot() -> Option<Snapshot> {
    let own = counters::of_this_process()?;
    let mut snapshot = own_snapshot(own);
    let Some(header) = mapping::header() else { return Some(snapshot) };
    let pid_of = |process: &ProcessCounters| process.pid.load(Relaxed);
    let slots: Vec<_> = mapping::claimed(header).collect();
    // Only the process that began the run reports the others.
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

/// The counters in the counters file at `path`, also after a crash.
pub fn read_ledger(fd: BorrowedFd) -> Result<Snapshot, MappingError> {
    let reader = Reader::map_all(fd)?;
    let opened = |process: &&ProcessCounters| process.opened_ns.load(Relaxed) != 0;
    let slots: Vec<&ProcessCounters> = reader.slots().filter(opened).collect();
    let pid_of = |index: usize| slots[index].pid.load(Relaxed);
    let is_over = |index| (index + 1..slots.len()).any(|later| pid_of(later) == pid_of(index));
    // The process that began the run, in its last image.
    let owner = (0..slots.len()).rfind(|index| pid_of(*index) == pid_of(0));
    let owner = owner.ok_or(MappingError::NotALedger)?;
    let snapshot_of = |index| other_snapshot(slots[index], is_over(index));
    let mut snapshot = snapshot_of(owner).ok_or(MappingError::NotALedger)?;
    let others = (0..slots.len()).filter(|index| *index != owner);
    snapshot.children = others.filter_map(snapshot_of).collect();
    snapshot.unlisted_children = reader.header().unlisted.load(Relaxed);
    Ok(snapshot)
}

fn own_snapshot(process: &'static ProcessCounters) -> Snapshot {
    let registry = registry_lock::lock();
    free_list::prepare(process);
    aggregation::aggregate(process, &registry);
    let mut snapshot = head(process);
    snapshot.alive = true;
    for (index, counters) in process.gils.iter().enumerate() {
        if counters.state.load(Acquire) == state::FREE {
            continue;
        }
        let mut copies = Copies::of_gil(index as u32);
        let gil = gils::all().get(index);
        let unmeasured = gil.map_or(u32::MAX, |gil| gil.unmeasured.load(Relaxed));
        let is_running = |row: u32, thread: &ThreadCounters| {
            row == unmeasured || thread.state.load(Relaxed) == state::LIVE
        };
        let mut copy_moment = || {
            let open = counters.closed_ns.load(Relaxed) == 0;
            let now_ns = match open {
                true => gil.map_or_else(now_ns, Gil::moment_ns),
                false => counters.changed_ns.load(Relaxed),
            };
            copies.copy(process, || gil.map_or(0, Gil::sequence), is_running);
            let row = gil_row(index as u32, counters, now_ns, open);
            // A GIL that has closed has no waits.
            (row, holding(counters, now_ns), if open { now_ns } else { 0 })
        };
        let (row, holding, now_ns) = match gil {
            Some(gil) => gil.read(copy_moment),
            None => copy_moment(),
        };
        // Ended rows do not change while the registry is locked. A thread that runs only now came
        // after the moment.
        copies.copy_others(process, |row, thread| !is_running(row, thread));
        snapshot.threads.extend(thread_rows(copies, holding, now_ns));
        snapshot.gils.push(row);
    }
    let end_ns = match process.closed_ns.load(Relaxed) {
        0 => {
            process.cpu_noted_ns.store(clock::process_cpu_ns(), Relaxed);
            now_ns()
        }
        closed_ns => closed_ns,
    };
    let cpu_ns = Some(process.cpu_noted_ns.load(Relaxed));
    snapshot.parks = parks_of(process, cpu_ns, true);
    snapshot.loops = loop_rows(process, true, end_ns, |native_id| {
        threads::with_native_id(native_id, &registry).map(|thread| thread.name.to_text())
    });
    snapshot.wall_ns = end_ns.saturating_sub(process.opened_ns.load(Relaxed));
    snapshot
}

/// The counters of another process; `None` if it never opened them. A process without a GIL has no
/// rows, but is a process. It `is_over` if a later slot has its pid: then it became another image
/// by exec, or ended and its pid was used again.
fn other_snapshot(process: &ProcessCounters, is_over: bool) -> Option<Snapshot> {
    let mut snapshot = head(process);
    // SAFETY: signal 0 only checks whether the process exists.
    snapshot.alive = !is_over && unsafe { libc::kill(snapshot.pid, 0) } == 0;
    let in_use = |counters: &&GilCounters| counters.state.load(Acquire) != state::FREE;
    let opened_ns = Some(process.opened_ns.load(Relaxed)).filter(|ns| *ns != 0)?;
    let last_ns = process.gils.iter().filter(in_use).map(GilCounters::last_event_ns).max();
    let end_ns = match (process.closed_ns.load(Relaxed), snapshot.alive) {
        (0, true) => now_ns(),
        (0, false) => last_ns.unwrap_or(opened_ns),
        (closed_ns, _) => closed_ns,
    };
    for (index, counters) in process.gils.iter().enumerate() {
        if !in_use(&counters) {
            continue;
        }
        let open = counters.closed_ns.load(Relaxed) == 0;
        let now_ns = if open { end_ns } else { counters.changed_ns.load(Relaxed) };
        let mut copies = Copies::of_gil(index as u32);
        let row = gil_row(index as u32, counters, now_ns, open && snapshot.alive);
        let holding = holding(counters, now_ns);
        copies.copy_others(process, |_, _| true);
        let waits_until_ns = if open { now_ns } else { 0 };
        snapshot.threads.extend(thread_rows(copies, holding, waits_until_ns));
        snapshot.gils.push(row);
    }
    let cpu_ns = match (process.closed_ns.load(Relaxed), snapshot.alive) {
        (0, true) => clock::cpu_ns_of_process(snapshot.pid),
        (0, false) => None,
        _ => Some(process.cpu_noted_ns.load(Relaxed)),
    };
    snapshot.parks = parks_of(process, cpu_ns, snapshot.alive);
    snapshot.loops = loop_rows(process, snapshot.alive, end_ns, |_| None);
    if !snapshot.alive {
        snapshot.threads.iter_mut().for_each(|row| row.alive = false);
    }
    snapshot.wall_ns = end_ns.saturating_sub(process.opened_ns.load(Relaxed));
    Some(snapshot)
}

/// A wait that ends meanwhile may be in one figure of a row and not in another.
fn parks_of(process: &ProcessCounters, cpu_ns: Option<u64>, alive: bool) -> Option<Parks> {
    if process.sees_parks.load(Relaxed) == 0 {
        return None;
    }
    let cpu_ns = cpu_ns.map(|ns| ns.saturating_sub(process.cpu_opened_ns.load(Relaxed)));
    let mut copies = Copies::of_gil(NO_GIL as u32);
    copies.copy_others(process, |_, _| true);
    let threads = copies.into_rows().map(|(_, counters)| park_row(&counters, alive)).collect();
    Some(Parks { cpu_ns, threads })
}

/// A snapshot without rows.
fn head(process: &ProcessCounters) -> Snapshot {
    Snapshot {
        pid: process.pid.load(Relaxed),
        python: process.python.to_text(),
        forked_from: Some(process.forked_from.load(Relaxed)).filter(|pid| *pid != 0),
        parent_pid: Some(process.parent_pid.load(Relaxed)).filter(|pid| *pid != 0),
        command: process.arguments(),
        gil_enabled: process.gil_enabled.load(Relaxed) != 0,
        // Only a damaged counters file has another number.
        policy: PolicyName::ALL
            .get(process.policy.load(Relaxed) as usize)
            .map_or("unknown", |policy| policy.as_str()),
        switch_interval_us: process.switch_interval_us.load(Relaxed),
        unmeasured_events: process.unmeasured.load(Relaxed),
        unmeasured_gils: process.unmeasured_gils.load(Relaxed),
        late_lines: process.late_lines.iter().filter_map(LateLine::row).collect(),
        late_loop_ns: crate::loops::late_ns(process),
        unmeasured_loops: process.unmeasured_loops.load(Relaxed),
        ..Snapshot::default()
    }
}

fn thread_rows(
    copies: Copies,
    holding: Option<(u32, u64)>,
    now_ns: u64,
) -> impl Iterator<Item = ThreadRow> {
    copies.into_rows().filter_map(move |(row, counters)| {
        let present_ns = holding.filter(|(holder, _)| *holder == row).map_or(0, |(_, ns)| ns);
        thread_row(&counters, present_ns, now_ns)
    })
}
