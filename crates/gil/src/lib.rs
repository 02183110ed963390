//! The live engine under `headway.gil`: it sees every take, wait, hold, drop and forced switch of
//! CPython's GILs and keeps exact books of them, per thread and per GIL.
//!
//! # How
//! `take_gil` and `drop_gil` (CPython's `Python/ceval_gil.c`) call `pthread_cond_timedwait`,
//! `pthread_cond_signal` and `pthread_cond_wait` through the global offset table of the object
//! that holds the interpreter. The engine puts functions of its own into those slots. Each one
//! keeps the books and calls what was there before. It watches and changes nothing.
//!
//! # Layout
//! - `ledger`: where the books are kept: memory that a reader, or another process, can map.
//! - `gil`, `gils`, `threads`: which GILs and threads exist, and which book is whose; `names`: what GILs
//!   are called; `folding`: how their number stays bounded.
//! - `account`: the rules by which an event changes a book; `parks`: those of a build without a GIL.
//! - `trace`: the same events, one by one, where they are asked for.
//! - `hook`: the replaced functions, and the slots that they are put into.
//! - `learning`: which address is what.
//! - `install`, `fork`, `snapshot` with `copies`, `totals`, `holds`: from outside the hooks.
//!
//! The crate knows libc and ELF, and nothing of Python: what it needs of CPython (one address,
//! one contended take) its caller hands it as a [`Host`].

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("headway-gil needs Linux with glibc on x86-64 or aarch64");

mod aggregation;
mod counters;
mod events;
mod fork;
mod hook;
mod install;
mod kernel_hints;
mod learning;
mod parked_waits;
mod queue;
mod registry;
mod snapshot;
mod trace;

pub use counters::mapping::RegionError;
pub use hook::Hook;
pub use hook::slots::{SlotError, patch_for_good};
pub use install::{
    Host, Place, Refusal, install, is_installed, probe_waits, this_thread_is_the_probe,
};
pub use parked_waits::ThreadStates;
pub use registry::names::name_gil_of;
pub use registry::threads::{name_of, name_this_thread, name_thread};
pub use snapshot::holds::{
    Hold, ThreadTimes, cpu_of_unanswered_ns, end_of_hold_ns, holds_longer_than, is_held,
    times_of_thread,
};
pub use snapshot::totals::{GilTotals, ThreadTotals, Totals, name_of_book};
pub use snapshot::{GilRow, ParkRow, Parks, Snapshot, ThreadRow, read_ledger, snapshot};
pub use trace::ring::Copy as Trace;
pub use trace::{begin as begin_trace, read as read_trace, read_file as read_trace_in_ledger};

pub use headway_sched::PolicyName;

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

/// Nanoseconds that the calling thread has waited for GILs since the meter was installed: exact,
/// completed waits only. `None` while nothing is measured for this thread.
pub fn waited_ns_by_this_thread() -> Option<u64> {
    sum_for_this_thread(|book| book.wait.sum_ns.load(Relaxed))
}

/// The same of its holds, completed ones only.
pub fn held_ns_by_this_thread() -> Option<u64> {
    sum_for_this_thread(|book| book.hold.sum_ns.load(Relaxed))
}

/// All of that, of holds and waits that are over; cheap, unlike `times_of_thread`.
pub fn times_of_this_thread() -> Option<ThreadTimes> {
    if !is_installed() {
        return None;
    }
    let times = |book: &counters::book::ThreadBook| ThreadTimes {
        held_ns: book.hold.sum_ns.load(Relaxed),
        waited_ns: book.wait.sum_ns.load(Relaxed),
        contended_takes: book.contended_takes.load(Relaxed),
    };
    registry::threads::books_of_this_thread().map(times).reduce(|one, other| ThreadTimes {
        held_ns: one.held_ns + other.held_ns,
        waited_ns: one.waited_ns + other.waited_ns,
        contended_takes: one.contended_takes + other.contended_takes,
    })
}

fn sum_for_this_thread(of: impl Fn(&counters::book::ThreadBook) -> u64) -> Option<u64> {
    if !is_installed() {
        return None;
    }
    registry::threads::books_of_this_thread().map(of).reduce(|one, other| one + other)
}

/// Tells the policy that the calling thread's next work has nothing to do with its last, as in a
/// pool: a thread that computed for one client is not CPU-bound for the next. To be called between the
/// two, with no GIL held.
pub fn begin_anew() {
    if is_installed() {
        // No book changes hands meanwhile, should its GIL close.
        let _registry = registry::threads::Registry::lock();
        for book in registry::threads::books_of_this_thread_by_index() {
            queue::waiters::begin_anew(book);
            kernel_hints::follow_class(book, false);
        }
    }
}

/// Gives the calling thread a switch interval of its own, from when it next waits for a GIL or takes one,
/// or takes it back. It is the thread's slice under a policy that schedules: how long it holds, and so how
/// long others wait, before it is their turn. Threads that Python starts in this one inherit it. Nothing under
/// `interval`, where scheduling is CPython's, and before the first install.
pub fn set_switch_interval_of_this_thread(interval_ns: Option<u64>) {
    registry::threads::set_switch_interval_of_this_thread_ns(interval_ns.unwrap_or(0));
}

/// Tells the ledger what only the interpreter knows, so that a report by another process has it.
pub fn note_interpreter(gil_enabled: bool, switch_interval_us: u64) {
    if let Some(slot) = counters::slot() {
        slot.gil_enabled.store(gil_enabled as u32, Relaxed);
        slot.switch_interval_us.store(switch_interval_us, Relaxed);
    }
}

/// What the ledger was told last of the main interpreter's switch interval.
pub fn switch_interval_ns() -> Option<u64> {
    Some(counters::slot()?.switch_interval_us.load(Relaxed) * 1_000)
}

/// Tells the meter which interpreters exist, by address and id, so that the books of those that ended
/// close, and their rows are folded where there are many. The caller holds the main GIL, and nobody makes
/// interpreters without it.
pub fn match_interpreters(existing: &[(usize, i64)]) {
    registry::names::keep_only(existing);
    if let Some(slot) = counters::slot()
        && is_installed()
    {
        registry::gils::match_interpreters(existing, slot);
        aggregation::fold_if_many(slot);
    }
}

/// The identity of this process's run, by which another joins its ledger.
pub fn run_identity() -> Option<u64> {
    counters::mapping::header().map(|header| header.run.load(Relaxed))
}

/// Removes the meter, and with it the policy: scheduling is CPython's own again. The books close and stay
/// readable. The caller holds the main GIL.
pub fn uninstall() -> Result<(), Refusal> {
    install::uninstall()?;
    queue::set_policy(PolicyName::Interval);
    kernel_hints::allow(false);
    counters::slot().into_iter().for_each(kernel_hints::take_back_from_all);
    Ok(())
}

/// Puts a policy in force where the meter is installed, with or without hints to the kernel: each GIL
/// follows at its next event. The caller holds the main GIL.
pub fn set_policy(policy: PolicyName, kernel_hints: bool) {
    let hints = kernel_hints && policy != PolicyName::Interval;
    kernel_hints::allow(hints);
    queue::set_policy(policy);
    if let Some(slot) = counters::slot() {
        slot.policy.store(policy as u32, Relaxed);
        if !hints {
            kernel_hints::take_back_from_all(slot);
        }
    }
}

/// Copies the used part of the ledger to a file, and the trace, if there is one, behind it; the error is
/// an errno. Async-signal-safe.
pub fn write_ledger(fd: c_int) -> Result<(), c_int> {
    counters::mapping::write_to(fd)?;
    trace::write_to(fd)
}
