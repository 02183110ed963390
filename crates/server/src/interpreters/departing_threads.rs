//! Waits until no thread of this process can be inside the deletion of a thread state.
//!
//! CPython takes a thread state off its interpreter's list first, and then releases the GIL,
//! leaves QSBR (on free-threaded builds) and frees the state: `tstate_delete_common` and
//! `free_threadstate` in Python/pystate.c. All three read the interpreter, so an interpreter that
//! ends as soon as its list is empty may be freed under a thread that the kernel has preempted
//! there.

use headway_measure::clock::cpu_ns_of_thread;
use std::time::{Duration, Instant};

/// The deletion takes microseconds. A thread that has run for this long since has left it.
const DELETION_CPU_NS: u64 = 1_000_000;
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Bounds the wait on a machine that gives a runnable thread no processor at all.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Waits until each other thread of the process has ended, sleeps, or has run for as long as a
/// deletion takes at most. Called detached.
pub fn wait_until_gone() {
    let deadline = Instant::now() + LONGEST_WAIT;
    // A thread that sleeps now may wait for a mutex of CPython, so it is looked at again.
    let threads: Vec<_> = other_threads()
        .into_iter()
        .filter_map(|thread| Some((thread, cpu_ns_of_thread(thread)? + DELETION_CPU_NS)))
        .collect();
    let may_delete = |&(thread, until_ns): &(u32, u64)| {
        cpu_ns_of_thread(thread).is_some_and(|used_ns| used_ns < until_ns) && is_runnable(thread)
    };
    while threads.iter().any(may_delete) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Kernel thread IDs.
fn other_threads() -> Vec<u32> {
    let caller = own_native_id();
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let threads = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    threads.filter(|&thread| thread != caller).collect()
}

fn own_native_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Whether the thread is on a processor, waits for one, or waits for a page ("R" or "D" in
/// proc_pid_stat(5)). A thread that has ended is not.
fn is_runnable(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with(['R', 'D'])))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

    #[test]
    fn sleeping_and_ended_threads_are_not_waited_for() {
        let (native_id, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                native_id.store(own_native_id(), SeqCst);
                while !is_over.load(SeqCst) {
                    std::thread::park();
                }
            });
            while native_id.load(SeqCst) == 0 || is_runnable(native_id.load(SeqCst)) {
                std::thread::yield_now();
            }
            wait_until_gone();
            assert!(!is_runnable(native_id.load(SeqCst)));
            is_over.store(true, SeqCst);
            sleeper.thread().unpark();
        });
        assert!(!is_runnable(u32::MAX >> 1));
    }

    #[test]
    fn a_thread_that_runs_is_waited_for_until_it_has_run_long_enough() {
        let (native_id, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                native_id.store(own_native_id(), SeqCst);
                while !is_over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            while native_id.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let thread = native_id.load(SeqCst);
            assert!(other_threads().contains(&thread));
            let before_ns = cpu_ns_of_thread(thread).unwrap();
            wait_until_gone();
            assert!(cpu_ns_of_thread(thread).unwrap() >= before_ns + DELETION_CPU_NS);
            is_over.store(true, SeqCst);
        });
    }
}
