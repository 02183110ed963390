//! The history of the GIL in virtual time: the defects of CPython's GIL before 3.2, the effects of
//! the new GIL and of the two remedies of 2009 and 2010, the failures of these remedies, and the
//! behaviour of Headway's policies in the same cases.
//!
//! Sources: Antoine Pitrou, "Reworking the GIL" (python-dev, October 2009), whose three points the
//! first tests check; David Beazley's "Inside the Python GIL" (2009) and bpo-7946.

mod replay;
mod scenario;

use headway_simulation::{Outcome, PolicyName, Scenario, ThreadSetting};
use replay::Replay;
use scenario::*;

const SECOND_NS: u64 = 1_000 * MS;
/// The time from a drop request until the waiter has the GIL, with this machine's constants and
/// timer slack.
const SWITCH_NS: u64 = 150 * US;
/// The kernel's tick.
const TICK_NS: u64 = 4 * MS;

const REMEDIES: [PolicyName; 2] = [PolicyName::Requests, PolicyName::Beazley];
const OURS: [PolicyName; 2] = [PolicyName::PRIORITY, PolicyName::DEADLINE];

/// Waits for a millisecond, then needs the GIL for a moment.
fn io() -> ThreadSetting {
    repeats(vec![sleep(MS), compute(50 * US)])
}

/// Computes as much as other threads let it, and is without the GIL for a moment now and then.
fn masquerader(compute_ns: u64, away_ns: u64) -> ThreadSetting {
    repeats(vec![compute(compute_ns), system(away_ns)])
}

/// Returns the longest wait of each thread, including a wait that has not ended, and the outcome.
fn waits(
    policy: PolicyName,
    cores: usize,
    threads: Vec<ThreadSetting>,
    end_ns: u64,
) -> (Vec<u64>, Outcome) {
    let gils = vec![gil(policy, INTERVAL_NS)];
    let scenario = Scenario {
        timeline_events: ALL_MOMENTS,
        ..scenario(machine(cores), gils, threads, end_ns)
    };
    let outcome = run(scenario.clone());
    let replay = Replay::of(&scenario, &outcome);
    (replay.threads.iter().map(|thread| thread.longest_wait_ns).collect(), outcome)
}

/// Returns the first thread's share of the time in which the GIL was held.
fn share(outcome: &Outcome) -> f64 {
    outcome.threads[0].held_ns as f64 / outcome.gils[0].held_ns as f64
}

/// Point 1: a hundred bytecodes can take a microsecond or a second.
#[test]
fn ticks_count_bytecodes_however_long_they_are_and_an_interval_counts_time() {
    let calls = repeats(vec![compute(50), call(10 * MS)]);
    let hundred_calls_ns = 100 * 10 * MS;
    let longest_ns =
        |policy, cores| waits(policy, cores, vec![calls.clone(), io()], 10 * SECOND_NS).0[1];
    for cores in [1, 2] {
        assert!(longest_ns(PolicyName::Ticks, cores) > hundred_calls_ns * 9 / 10);
        // No request cuts a call short: the wait is an interval and a call. On one core, the kernel
        // may let the other thread use its slice first.
        let longest_ns = longest_ns(PolicyName::INTERVAL, cores);
        assert!(longest_ns <= INTERVAL_NS + 10 * MS + TICK_NS + SWITCH_NS, "{cores}: {longest_ns}");
    }
}

/// Point 2, the Beazley effect: on two cores, each check wakes a thread that finds the GIL taken
/// again.
#[test]
fn two_cpu_bound_threads_are_slower_than_one_on_two_cores_under_ticks() {
    let slower = |policy, cores| {
        let took_ns = |threads, ns| {
            let threads = vec![does_once(vec![compute(ns)]); threads];
            run_under(policy, machine(cores), threads, 60 * SECOND_NS).ended_ns as f64
        };
        took_ns(2, 100 * MS) / took_ns(1, 200 * MS)
    };
    assert!(slower(PolicyName::Ticks, 2) > 1.03, "{}", slower(PolicyName::Ticks, 2));
    assert!(slower(PolicyName::Ticks, 1) < 1.005, "{}", slower(PolicyName::Ticks, 1));
    for cores in [1, 2] {
        let slower = slower(PolicyName::INTERVAL, cores);
        assert!(slower < 1.01, "{cores}: {slower}");
    }
}

/// Point 3: the holder drops a hundred thousand times a second and takes the GIL again before the
/// waiter has woken. With one core, the kernel lets the waiter run.
#[test]
fn ticks_starve_a_waiting_io_thread_over_many_checks() {
    let (longest_ns, outcome) = waits(PolicyName::Ticks, 2, vec![hog(), io()], SECOND_NS / 4);
    assert!(outcome.threads[0].voluntary_drops > 100_000 / 4);
    assert_eq!(outcome.threads[1].takes, 0);
    assert!(longest_ns[1] > SECOND_NS / 4 * 9 / 10);
    let (longest_ns, outcome) = waits(PolicyName::Ticks, 1, vec![hog(), io()], SECOND_NS);
    assert!(outcome.threads[1].takes > 800 && longest_ns[1] < 4 * MS, "{longest_ns:?}");
}

#[test]
fn the_new_gil_bounds_the_wait_by_about_an_interval_for_each_cpu_bound_thread() {
    for hogs in 1..=4 {
        let mut threads = vec![hog(); hogs];
        threads.push(io());
        let (longest_ns, outcome) = waits(PolicyName::INTERVAL, 8, threads, 4 * SECOND_NS);
        let bound_ns = (hogs as u64 + 1) * (INTERVAL_NS + SWITCH_NS);
        assert!(longest_ns[hogs] <= bound_ns, "{hogs}: {longest_ns:?}");
        // The operating system chooses the thread that is woken, so some threads are overtaken.
        let twice_ns = 2 * bound_ns;
        assert!(longest_ns[..hogs].iter().all(|ns| *ns <= twice_ns), "{hogs}: {longest_ns:?}");
        assert!(outcome.threads[hogs].takes > 100, "{hogs}: {}", outcome.threads[hogs].takes);
    }
}

/// An I/O operation of a millisecond takes an interval longer beside one CPU-bound thread, however
/// many cores there are. The two remedies and Headway's policies prevent that.
#[test]
fn the_convoy_remains_under_the_new_gil_and_not_under_the_remedies_or_our_policies() {
    for cores in [1, 2, 4] {
        let takes = |policy| waits(policy, cores, vec![hog(), io()], SECOND_NS).1.threads[1].takes;
        let each_ns = SECOND_NS / takes(PolicyName::INTERVAL);
        assert!((INTERVAL_NS..2 * INTERVAL_NS).contains(&each_ns), "{cores}: {each_ns}");
        for policy in [REMEDIES, OURS].concat() {
            let each_ns = SECOND_NS / takes(policy);
            assert!(each_ns < 3 * MS, "{policy:?} on {cores}: {each_ns}");
        }
    }
}

/// Both remedies class a thread by how it drops; Headway's policies class it by how long it is
/// away.
#[test]
fn a_cpu_bound_thread_masquerades_as_io_bound_under_the_remedies_and_not_under_ours() {
    for (compute_ns, away_ns) in [(1_500 * US, 60 * US), (400 * US, 40 * US), (150 * US, 10 * US)] {
        let threads = || vec![hog(), masquerader(compute_ns, away_ns)];
        for policy in REMEDIES {
            let share = share(&waits(policy, 4, threads(), SECOND_NS).1);
            assert!(share < 0.1, "{policy:?}, {compute_ns}: the hog has {share}");
        }
        for policy in OURS {
            let share = share(&waits(policy, 4, threads(), SECOND_NS).1);
            assert!((0.45..0.6).contains(&share), "{policy:?}, {compute_ns}: the hog has {share}");
        }
    }
}

/// Returns the bound of `priority` or `deadline` for a CPU-bound thread among `threads` threads, as
/// their documentation states it.
fn bound_ns(policy: PolicyName, threads: usize) -> u64 {
    let slices_ns = (threads as u64 - 1) * INTERVAL_NS;
    let overdue_ns = 4 * INTERVAL_NS;
    match policy {
        PolicyName::PRIORITY => overdue_ns + (slices_ns / MS + 1) * (overdue_ns + MS),
        _ => {
            let step_ns = (3 * threads as u64).max(16) * INTERVAL_NS / 2;
            let bound_ns = 8 * INTERVAL_NS + step_ns + slices_ns;
            let least_ns = if threads <= 5 { bound_ns.min(3 * slices_ns) } else { bound_ns };
            least_ns + 200 * US
        }
    }
}

#[test]
fn a_few_io_bound_threads_starve_a_cpu_bound_one_under_the_remedies_and_not_under_ours() {
    let io = |compute_ns, away_ns| repeats(vec![compute(compute_ns), sleep(away_ns)]);
    let starving = [
        (PolicyName::Beazley, 2, io(400 * US, 10 * US)),
        (PolicyName::Requests, 3, io(50 * US, 100 * US)),
    ];
    for (remedy, others, io) in starving {
        let beside = |others| [vec![hog()], vec![io.clone(); others]].concat();
        let (longest_ns, outcome) = waits(remedy, 8, beside(others), SECOND_NS);
        assert!(longest_ns[0] > SECOND_NS * 9 / 10, "{remedy:?}: {longest_ns:?}");
        assert!(share(&outcome) < 0.01, "{remedy:?}: {}", share(&outcome));
        for policy in OURS {
            for others in [2, 4, 6] {
                let (longest_ns, outcome) = waits(policy, 8, beside(others), SECOND_NS / 2);
                // The allowance is for wakeups, which no policy can shorten.
                let bound_ns = bound_ns(policy, others + 1) * 21 / 20;
                assert!(longest_ns[0] <= bound_ns, "{policy:?}: {longest_ns:?} of {bound_ns}");
                // CPU-bound threads hold for at least a millisecond in each four intervals and one
                // millisecond.
                assert!(share(&outcome) > 1.0 / 22.0, "{policy:?}: {}", share(&outcome));
            }
        }
    }
}

/// A thread that returns before the woken waiter runs takes the GIL again. Under CPython's own
/// scheduling, this happens without limit: each wakeup restarts the waiter's interval, so the
/// waiter never requests a drop.
#[test]
fn a_thread_that_is_away_for_less_than_a_wakeup_starves_the_others_and_not_under_ours() {
    let threads = || vec![hog(), masquerader(300 * US, 10 * US)];
    let (longest_ns, outcome) = waits(PolicyName::INTERVAL, 4, threads(), SECOND_NS);
    assert!(longest_ns[0] > SECOND_NS * 9 / 10, "{longest_ns:?}");
    assert_eq!(outcome.threads[0].asked, 0);
    for policy in OURS {
        let (longest_ns, outcome) = waits(policy, 4, threads(), SECOND_NS);
        assert!(longest_ns[0] <= bound_ns(policy, 2), "{policy:?}: {longest_ns:?}");
        assert!((0.45..0.6).contains(&share(&outcome)), "{policy:?}: {}", share(&outcome));
    }
}
