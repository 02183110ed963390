//! The GIL's history in virtual time: what was wrong with CPython's before 3.2, what the new GIL cured and what
//! it did not, what the two remedies of 2009 and 2010 did, where they go wrong, and how far that goes under our
//! policies.
//!
//! Sources: Antoine Pitrou, "Reworking the GIL" (python-dev, October 2009), whose three points the first tests
//! have; David Beazley's "Inside the Python GIL" (2009) and bpo-7946.

mod replay;
mod scenario;

use headway_simulation::{Outcome, PolicyName, Scenario, ThreadSetting};
use replay::Replay;
use scenario::*;

const SECOND_NS: u64 = 1_000 * MS;
/// From a drop request until the waiter has the GIL, with this machine's constants; and how late timers are.
const SWITCH_NS: u64 = 150 * US;
/// The kernel's.
const TICK_NS: u64 = 4 * MS;

const REMEDIES: [PolicyName; 2] = [PolicyName::Requests, PolicyName::Beazley];
const OURS: [PolicyName; 2] = [PolicyName::PRIORITY, PolicyName::DEADLINE];

/// Waits for something for a millisecond, and needs the GIL for a moment then.
fn io() -> ThreadSetting {
    repeats(vec![sleep(MS), compute(50 * US)])
}

/// Computes as much as others let it, and is without the GIL for a moment now and then.
fn masquerader(compute_ns: u64, away_ns: u64) -> ThreadSetting {
    repeats(vec![compute(compute_ns), system(away_ns)])
}

/// The longest wait of each thread, one that has not ended among them, and the rest of what came of it.
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

/// The share of the first thread in the time in which the GIL was held.
fn share(outcome: &Outcome) -> f64 {
    outcome.threads[0].held_ns as f64 / outcome.gils[0].held_ns as f64
}

/// Point 1: a hundred bytecodes are a microsecond or a second.
#[test]
fn ticks_count_bytecodes_however_long_they_are_and_an_interval_counts_time() {
    let calls = repeats(vec![compute(50), call(10 * MS)]);
    let hundred_calls_ns = 100 * 10 * MS;
    let longest_ns =
        |policy, cores| waits(policy, cores, vec![calls.clone(), io()], 10 * SECOND_NS).0[1];
    for cores in [1, 2] {
        assert!(longest_ns(PolicyName::Ticks, cores) > hundred_calls_ns * 9 / 10);
        // A call cannot be cut short: the wait is an interval and a call; on one core the kernel may
        // let the other have its slice first.
        let longest_ns = longest_ns(PolicyName::INTERVAL, cores);
        assert!(longest_ns <= INTERVAL_NS + 10 * MS + TICK_NS + SWITCH_NS, "{cores}: {longest_ns}");
    }
}

/// Point 2, the Beazley effect: on two cores each check is a call to a thread that finds the GIL taken again.
#[test]
fn two_threads_that_compute_are_slower_than_one_on_two_cores_under_ticks() {
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

/// Point 3: the holder drops a hundred thousand times a second and is back before the waiter is up. With one
/// core the kernel has the waiter run.
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
fn the_new_gil_bounds_the_wait_by_about_an_interval_for_each_thread_that_computes() {
    for hogs in 1..=4 {
        let mut threads = vec![hog(); hogs];
        threads.push(io());
        let (longest_ns, outcome) = waits(PolicyName::INTERVAL, 8, threads, 4 * SECOND_NS);
        let bound_ns = (hogs as u64 + 1) * (INTERVAL_NS + SWITCH_NS);
        assert!(longest_ns[hogs] <= bound_ns, "{hogs}: {longest_ns:?}");
        // Who is called is left to the operating system: now and then one is overtaken.
        let twice_ns = 2 * bound_ns;
        assert!(longest_ns[..hogs].iter().all(|ns| *ns <= twice_ns), "{hogs}: {longest_ns:?}");
        assert!(outcome.threads[hogs].takes > 100, "{hogs}: {}", outcome.threads[hogs].takes);
    }
}

/// An I/O that takes a millisecond takes an interval more beside one thread that computes, however many cores
/// there are, and the two remedies and our policies cure that.
#[test]
fn the_convoy_remains_under_the_new_gil_and_is_gone_under_its_remedies() {
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

/// What both remedies go by is how a thread drops; ours go by how long it is away.
#[test]
fn a_thread_that_computes_masquerades_as_io_bound_under_the_remedies_and_not_under_ours() {
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

/// `priority`'s and `deadline`'s bounds for a CPU-bound thread among so many, as their documentation has them.
fn bound_ns(policy: PolicyName, threads: usize) -> u64 {
    let slices_ns = (threads as u64 - 1) * INTERVAL_NS;
    let overdue_ns = 4 * INTERVAL_NS;
    match policy {
        PolicyName::PRIORITY => overdue_ns + (slices_ns / MS + 1) * (overdue_ns + MS),
        _ => (3 * slices_ns).min(16 * INTERVAL_NS + slices_ns) + 200 * US,
    }
}

#[test]
fn a_few_threads_that_do_io_starve_one_that_computes_under_the_remedies_and_not_under_ours() {
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
                // Added is what no policy can cut short, the wake-ups.
                let bound_ns = bound_ns(policy, others + 1) * 21 / 20;
                assert!(longest_ns[0] <= bound_ns, "{policy:?}: {longest_ns:?} of {bound_ns}");
                // A millisecond in each four intervals and one at least.
                assert!(share(&outcome) > 1.0 / 22.0, "{policy:?}: {}", share(&outcome));
            }
        }
    }
}

/// Whoever is back before the called waiter has woken up has the GIL again, under CPython's own scheduling
/// any number of times: each call begins the waiter's interval anew, so that it never asks.
#[test]
fn a_thread_that_is_away_for_less_than_a_wake_up_starves_the_others_and_not_under_ours() {
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
