//! The meter and scheduler behind `headway.gil`: it observes every take, wait, hold, drop and
//! forced switch of CPython's GILs, counts them exactly per thread and per GIL, and can decide who
//! is next.
//!
//! # How
//! `take_gil` and `drop_gil` (CPython's `Python/ceval_gil.c`) call `pthread_cond_timedwait`,
//! `pthread_cond_signal` and `pthread_cond_wait` through the global offset table of the object that
//! contains the interpreter. The meter writes functions of its own into these slots. Each counts
//! what happens and calls the original. Under a policy that schedules, the waits are replaced.
//!
//! # Layout
//! An event flows from [`hook`] through [`events`] to [`counters`] and the [`queue`]:
//! - [`hook`]: the replaced functions, and how they get into the slots.
//! - [`events`]: what an event means.
//! - [`gil`]: one GIL, and how an event changes it.
//! - [`counters`]: what is counted, in memory that other processes can map.
//! - [`queue`]: the threads that wait while a policy schedules; [`kernel_hints`] for their cores.
//! - [`registry`]: which GILs, interpreters and threads exist.
//! - [`trace`]: the same events one by one, on request.
//! - [`profile`]: which Python code holds while others wait, on request.
//! - [`parked_waits`]: the waits of a free-threaded build.
//! - [`loops`]: the iterations of event loops.
//! - [`finalization`]: what the parts may do while CPython ends.
//!
//! Beside that flow are [`install`] with [`learning`] and [`installation`], [`fork`],
//! [`gil_creation`] and [`snapshot`].
//!
//! The crate knows libc and ELF, but not Python: the caller passes what it needs of CPython as a
//! [`Host`].

#[cfg(not(all(
    target_os = "linux",
    any(target_env = "gnu", target_env = "musl"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("headway-gil needs Linux with glibc or musl on x86-64 or aarch64");

mod counters;
mod errno;
mod events;
pub mod finalization;
mod foreign_memory;
mod fork;
mod gil;
mod gil_creation;
mod hook;
mod install;
mod installation;
mod kernel_hints;
mod learning;
mod loops;
mod membarrier;
mod parked_waits;
mod profile;
mod queue;
mod registry;
mod registry_lock;
mod snapshot;
mod trace;

pub use counters::LateLineRow;
pub use counters::mapping::MappingError;
pub use foreign_memory::memory_error;
pub use gil::collection::{began as collection_began, ended as collection_ended};
pub use hook::Hook;
pub use hook::slots::{SlotError, patch_for_good};
pub use install::{Host, Location, Refusal, install};
pub use installation::is_installed;
pub use learning::{probe_sleeps, probe_waits, this_thread_is_the_probe};
pub use loops::reader::{
    OwnThreadState, begin as begin_to_read_loops, prepare as prepare_to_read_loops,
    reads as loops_are_read, settle as settle_late_stacks,
};
pub use loops::{LateStack, late_stacks, leave_present_iterations};
pub use parked_waits::ThreadStates;
pub use profile::control::{
    Charge, GilSums, NotBegun, Profile, begin as begin_profile,
    begin_for_reporter as begin_reported_profile, copy as read_profile, end as end_profile,
    read_file as read_profile_in_ledger,
};
pub use profile::growth::{
    Growth as ProfileGrowth, is_read as profile_is_reported, make_room as make_room_in_profile,
    stop_reading as end_reported_profile, take as profile_growth,
};
pub use profile::layout::{Layout, LineFormat};
pub use profile::resolver::{CUT_FRAME, Frame};
pub use profile::sampler;
pub use profile::{STACK_DEPTH, is_on as profile_is_on, knows_holders as profile_knows_holders};
pub use registry::interpreter_list::{
    InterpreterList, existing as existing_interpreters, know as know_interpreter_list,
};
pub use registry::interpreters::owns_gil;
pub use registry::names::{name_gil_of, name_of, name_this_thread, name_thread};
pub use snapshot::holds::{
    Hold, ThreadTimes, cpu_of_unanswered_ns, end_of_hold_ns, holds_longer_than, is_held,
    times_of_thread,
};
pub use snapshot::loops::LoopRow;
pub use snapshot::totals::{GilTotals, LoopTotals, ThreadTotals, Totals, name_of_row};
pub use snapshot::{GilRow, ParkRow, Parks, Snapshot, ThreadRow, read_ledger, snapshot};
pub use trace::control::{
    begin as begin_trace, read as read_trace, read_file as read_trace_in_ledger,
};
pub use trace::ring::Trace;

pub use headway_sched::PolicyName;

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

use counters::ThreadCounters;
use registry::{interpreters, names, rows, threads};

/// Nanoseconds that the calling thread has waited for GILs since the meter was installed, without a
/// wait that has not ended. `None` if nothing is measured for this thread.
pub fn waited_ns_by_this_thread() -> Option<u64> {
    sum_for_this_thread(|counters| counters.wait.sum_ns.load(Relaxed))
}

/// Nanoseconds that the calling thread has held GILs since the meter was installed, without a hold
/// that has not ended. `None` if nothing is measured for this thread.
pub fn held_ns_by_this_thread() -> Option<u64> {
    sum_for_this_thread(|counters| counters.hold.sum_ns.load(Relaxed))
}

fn sum_for_this_thread(of: impl Fn(&ThreadCounters) -> u64) -> Option<u64> {
    if !is_installed() {
        return None;
    }
    rows::counters_of_this_thread().map(of).reduce(|one, other| one + other)
}

/// The times of the calling thread, without a hold or wait that has not ended. Much cheaper than
/// `times_of_thread`.
pub fn times_of_this_thread() -> Option<ThreadTimes> {
    if !is_installed() {
        return None;
    }
    let times = |counters: &ThreadCounters| ThreadTimes {
        held_ns: counters.hold.sum_ns.load(Relaxed),
        waited_ns: counters.wait.sum_ns.load(Relaxed),
        contended_takes: counters.contended_takes.load(Relaxed),
    };
    rows::counters_of_this_thread().map(times).reduce(|one, other| ThreadTimes {
        held_ns: one.held_ns + other.held_ns,
        waited_ns: one.waited_ns + other.waited_ns,
        contended_takes: one.contended_takes + other.contended_takes,
    })
}

/// Informs the policy that the next work of the calling thread is unrelated to its last, as in a
/// thread pool: a thread that computed for one client is not CPU-bound for the next. Call it
/// between the two. It has no effect on a GIL that the thread holds.
pub fn begin_anew() {
    if is_installed() {
        // The lock keeps a GIL that closes from giving its rows to other threads meanwhile.
        let _registry = registry_lock::lock();
        for row in rows::rows_without_gil_of_this_thread() {
            queue::waiters::begin_anew(row);
            kernel_hints::follow_class(row, false);
        }
    }
}

/// Gives the calling thread a switch interval of its own, from its next wait for a GIL or take, or
/// removes it. Under a policy that schedules, it is the thread's slice: how long the thread holds,
/// and so how long others wait, before their turn. Threads that Python starts in this one inherit
/// it. It has no effect under `interval`, where CPython schedules, and before the first install.
pub fn set_switch_interval_of_this_thread(interval_ns: Option<u64>) {
    threads::set_switch_interval_of_this_thread_ns(interval_ns.unwrap_or(0));
}

/// Notes what the calling thread works for from now on, in numbers of the caller; 0 for nothing.
/// The profile tells contexts apart.
pub fn set_context_of_this_thread(context: u32) {
    if profile_is_on() {
        rows::counters_of_this_thread()
            .for_each(|counters| counters.context.store(context, Relaxed));
    }
}

/// Stores what only the interpreter knows with the counters, for a report by another process.
pub fn note_interpreter(gil_enabled: bool, switch_interval_us: u64) {
    if let Some(process) = counters::of_this_process() {
        process.gil_enabled.store(gil_enabled as u32, Relaxed);
        process.switch_interval_us.store(switch_interval_us, Relaxed);
    }
}

/// The switch interval of the main interpreter that `note_interpreter` stored last.
pub fn switch_interval_ns() -> Option<u64> {
    Some(counters::of_this_process()?.switch_interval_us.load(Relaxed) * 1_000)
}

/// From which duration on an iteration of an event loop is late. Without effect before the first
/// install.
pub fn set_late_loop_ns(late_ns: u64) {
    if let Some(process) = counters::of_this_process() {
        process.late_loop_ns.store(late_ns, Relaxed);
    }
}

/// Compares with the interpreters that exist, by address and ID: closes the counters of those that
/// ended, and aggregates rows if there are many. `list` returns them and waits for nobody. The
/// caller holds the main GIL.
pub fn match_interpreters(list: impl Fn() -> Vec<(usize, i64)>) {
    names::forget_unlisted(&list);
    if let Some(process) = counters::of_this_process() {
        if is_installed() {
            interpreters::match_interpreters(&list, process);
            counters::aggregation::aggregate_if_many(process);
        }
    }
}

/// The identity of this process's run, which another process needs to join its counters.
pub fn run_identity() -> Option<u64> {
    counters::mapping::header().map(|header| header.run.load(Relaxed))
}

/// Removes the meter and its policy: CPython schedules again. The counters close and stay readable.
/// The caller holds the main GIL.
pub fn uninstall() -> Result<(), Refusal> {
    install::uninstall()?;
    queue::set_policy(PolicyName::Interval);
    kernel_hints::allow(false);
    counters::of_this_process().into_iter().for_each(kernel_hints::take_back_from_all);
    Ok(())
}

/// Sets the policy, with or without hints to the kernel. Each GIL follows at its next event. The
/// caller holds the main GIL.
pub fn set_policy(policy: PolicyName, kernel_hints: bool) {
    let hints = kernel_hints && policy != PolicyName::Interval;
    kernel_hints::allow(hints);
    queue::set_policy(policy);
    if let Some(process) = counters::of_this_process() {
        process.policy.store(policy as u32, Relaxed);
        if !hints {
            kernel_hints::take_back_from_all(process);
        }
    }
}

/// Writes the used part of the counters to a file, and the profile and the trace behind it. The
/// error is an errno. Async-signal-safe.
pub fn write_ledger(fd: c_int) -> Result<(), c_int> {
    counters::file::write_to(fd)?;
    profile::control::write_to(fd)?;
    trace::control::write_to(fd)
}
