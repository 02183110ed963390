//! The answers of the historical policies, and the data that a scheduler keeps when the policy
//! changes.

#[path = "../../../../crates/sched/tests/driven_gil/mod.rs"]
mod driven_gil;

use driven_gil::*;
use headway_sched::{NEVER, Scheduler};
use headway_simulation::{PolicyName, SimulatedPolicy};

#[test]
fn every_policy_has_a_name_of_its_own() {
    for policy in PolicyName::ALL {
        assert_eq!(PolicyName::named(policy.as_str()), Some(policy));
    }
    assert_eq!(PolicyName::named("fifo"), None);
}

#[test]
fn a_waiter_that_leaves_to_request_a_drop_returns_to_its_position() {
    for policy in PolicyName::ALL {
        let mut gil = Gil::under(SimulatedPolicy::new(policy));
        gil.take(0).pass(US).wait(1).pass(US).wait(2).pass(US);
        gil.scheduler.leave(&mut gil.threads, 1);
        assert_eq!(gil.next(), Some(2), "{policy:?}");
        gil.wait(1);
        assert_eq!(gil.order(), [1, 2], "{policy:?}");
    }
}

#[test]
fn a_new_scheduler_keeps_a_threads_times_and_clears_the_old_policys_data() {
    let mut gil = Gil::under(SimulatedPolicy::new(PolicyName::Requests));
    gil.hold(1, MS).pass(MS).hold_until_asked(2, 5 * MS);
    gil.scheduler = Scheduler::with_policy(SimulatedPolicy::new(PolicyName::Beazley), 2);
    gil.take(0).pass(US).wait(2).pass(US).wait(1);
    // Under `beazley`, all threads begin as I/O-bound.
    assert_eq!(gil.order(), [2, 1]);
    gil.scheduler = Scheduler::with_policy(SimulatedPolicy::new(PolicyName::PRIORITY), 3);
    gil.wait(2).pass(US).wait(1);
    // The scheduler knows from the thread's times that thread 2 held for 5 ms.
    assert_eq!(gil.order(), [1, 2]);
}

#[test]
fn requests_put_a_thread_that_returns_from_a_call_before_all_others() {
    let mut gil = Gil::under(SimulatedPolicy::new(PolicyName::Requests));
    gil.hold_until_asked(1, MS).hold(2, 30 * MS);
    gil.take(0).wait(1).pass(US).wait(2);
    assert_eq!(gil.asks_in_ns(2, 0), 0);
    assert_eq!(gil.asks_in_ns(1, 0), INTERVAL_NS - US);
    assert_eq!(gil.order(), [2, 1]);
}

#[test]
fn beazley_classes_a_thread_by_its_last_drop_alone() {
    let mut gil = Gil::under(SimulatedPolicy::new(PolicyName::Beazley));
    gil.hold_until_asked(0, US).hold_until_asked(1, US).hold(2, 30 * MS);
    gil.take(0).wait(1).pass(US).wait(2);
    assert_eq!(gil.asks_in_ns(2, 0), 0);
    assert_eq!(gil.asks_in_ns(1, 0), INTERVAL_NS - US);
    assert_eq!(gil.order(), [2, 1]);
    // An I/O-bound holder keeps its interval.
    gil.drop(0).take(0).wait(2);
    assert_eq!(gil.asks_in_ns(2, 0), INTERVAL_NS);
}

#[test]
fn ticks_never_request_a_drop() {
    let mut gil = Gil::under(SimulatedPolicy::new(PolicyName::Ticks));
    gil.take(0).wait(1).pass(60_000 * MS);
    assert_eq!(gil.asks_in_ns(1, 0), NEVER);
    assert_eq!(gil.scheduler.policy().check_every_ns(), Some(5 * US));
    assert!(!gil.scheduler.policy().forces_switch());
}
