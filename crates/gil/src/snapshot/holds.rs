//! Long holds: for a watchdog, which must not need the GIL.
//!
//! The functions read what hooks write, in any thread, and never wait for the holder, because a
//! thread that never drops the GIL is what they look for. They cost a few loads for each GIL, and
//! read the threads only if a hold is long.

use std::sync::atomic::Ordering::*;

use headway_measure::clock::now_ns;

use crate::counters::{self, ProcessCounters, ThreadCounters, free_list, state};
use crate::gil::{Gil, LONG_HOLD_NS, life};
use crate::installation::is_installed;
use crate::registry::{gils, names};

/// A hold that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The index of the GIL in this process; together with `began_ns` it identifies the hold.
    pub gil: usize,
    /// The name that the program gave the GIL.
    pub gil_name: String,
    /// The ID of the interpreter that owns the GIL, if it is known.
    pub interpreter: Option<i64>,
    /// The kernel thread ID of the holder; `None` for a thread without a row.
    pub native_id: Option<u32>,
    /// The name of the holder, from Python or the kernel.
    pub name: String,
    /// A time of CLOCK_MONOTONIC.
    pub began_ns: u64,
    pub held_ns: u64,
    /// The longest present wait of a thread, which may have begun before this hold.
    pub waited_ns: u64,
}

impl Hold {
    /// Returns whether the two are the same hold.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.gil, self.began_ns) == (other.gil, other.began_ns)
    }
}

/// The holds that have lasted longer than `held_ns` while one thread waited for longer than
/// `waited_ns`. A computing thread drops the GIL at the first drop request. So if `waited_ns` is
/// longer than the switch interval, its holds are not included, however long no other thread needed
/// the GIL.
pub fn holds_longer_than(held_ns: u64, waited_ns: u64) -> Vec<Hold> {
    let Some(process) = counters::of_this_process().filter(|_| is_installed()) else {
        return Vec::new();
    };
    gils::all().iter().filter_map(|gil| long_hold(gil, process, held_ns, waited_ns)).collect()
}

/// Returns whether the hold has not ended.
pub fn is_held(hold: &Hold) -> bool {
    let Some(gil) = gils::all().get(hold.gil) else { return false };
    present_hold(gil).is_some_and(|(began_ns, _)| began_ns == hold.began_ns)
}

/// The end of a hold of 10 ms or more: exact if no hold of this length has followed, and otherwise
/// the beginning of the last one. `None` if the hold has not ended.
pub fn end_of_hold_ns(hold: &Hold) -> Option<u64> {
    const { assert!(LONG_HOLD_NS <= 10_000_000) };
    let gil = gils::all().get(hold.gil)?;
    let [began, ended] = &gil.last_long_hold_ns;
    let (began_ns, ended_ns) = gil.read(|| (began.load(Relaxed), ended.load(Relaxed)));
    match began_ns {
        _ if began_ns == hold.began_ns => Some(ended_ns),
        _ if began_ns > hold.began_ns => Some(began_ns),
        _ => None,
    }
}

/// The CPU time that the holder used in an ended hold of 10 ms or more, while a drop request was
/// pending for longer than Python code takes to answer. `None` if it is not known, or if another
/// long hold has followed.
pub fn cpu_of_unanswered_ns(hold: &Hold) -> Option<u64> {
    let gil = gils::all().get(hold.gil)?;
    let (began_ns, cpu_ns) = gil
        .read(|| (gil.last_long_hold_ns[0].load(Relaxed), gil.last_long_hold_cpu_ns.load(Relaxed)));
    (began_ns == hold.began_ns && cpu_ns != 0).then_some(cpu_ns)
}

/// The times of one thread on all GILs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    pub held_ns: u64,
    pub waited_ns: u64,
    pub contended_takes: u64,
}

/// The times of any thread, including its present hold or wait; `None` if it has no row. A hold or
/// wait that ends meanwhile may be counted twice or not at all.
pub fn times_of_thread(native_id: u32) -> Option<ThreadTimes> {
    let process = counters::of_this_process().filter(|_| is_installed())?;
    let now_ns = now_ns();
    let mut times = None;
    for (index, counters) in free_list::used(process) {
        if counters.state.load(Acquire) != state::LIVE
            || counters.native_id.load(Relaxed) != native_id
        {
            continue;
        }
        let times = times.get_or_insert_with(ThreadTimes::default);
        times.held_ns += counters.hold.sum_ns.load(Relaxed);
        times.waited_ns += counters.wait.sum_ns.load(Relaxed);
        times.contended_takes += counters.contended_takes.load(Relaxed);
        let present = gils::all().get(counters.gil.load(Relaxed) as usize).and_then(present_hold);
        if let Some((since_ns, _)) = present.filter(|(_, holder)| *holder == index) {
            times.held_ns += now_ns.saturating_sub(since_ns);
        }
        match counters.wait_began_ns.load(Relaxed) {
            0 => {}
            began_ns => times.waited_ns += now_ns.saturating_sub(began_ns),
        }
    }
    times
}

fn long_hold(
    gil: &'static Gil,
    process: &'static ProcessCounters,
    held_limit_ns: u64,
    waited_limit_ns: u64,
) -> Option<Hold> {
    let (since_ns, holder) = present_hold(gil)?;
    if now_ns().saturating_sub(since_ns) <= held_limit_ns {
        return None;
    }
    let waiting_since_ns = free_list::used(process)
        .filter(|(_, counters)| is_of(counters, gil))
        .map(|(_, counters)| counters.wait_began_ns.load(Relaxed))
        .filter(|began_ns| *began_ns != 0)
        .min()?;
    let waited_ns = now_ns().saturating_sub(waiting_since_ns);
    if waited_ns <= waited_limit_ns {
        return None;
    }
    let native_id = process.threads.get(holder as usize)?.native_id.load(Relaxed);
    let name = names::name_of(native_id).unwrap_or_default();
    let gil_name = gil.name.to_text();
    let interpreter = gil.interpreter_id.load(Relaxed);
    // A thread that dropped the GIL meanwhile is not stuck.
    (present_hold(gil) == Some((since_ns, holder))).then(|| Hold {
        gil: gil.index,
        gil_name,
        interpreter: (interpreter >= 0).then_some(interpreter),
        native_id: (native_id != 0).then_some(native_id),
        name,
        began_ns: since_ns,
        held_ns: now_ns().saturating_sub(since_ns),
        waited_ns,
    })
}

fn is_of(counters: &ThreadCounters, gil: &'static Gil) -> bool {
    counters.state.load(Acquire) == state::LIVE && counters.gil.load(Relaxed) == gil.index as u32
}

/// When the present hold began, and the row of the holder.
pub fn present_hold(gil: &'static Gil) -> Option<(u64, u32)> {
    if gil.life.load(Acquire) != life::OPEN {
        return None;
    }
    let counters = gil.counters();
    let (held, since_ns, holder) = gil.read(|| {
        let held = counters.held_now.load(Relaxed) == 1;
        (held, counters.changed_ns.load(Relaxed), counters.holder.load(Relaxed))
    });
    held.then_some((since_ns, holder))
}
