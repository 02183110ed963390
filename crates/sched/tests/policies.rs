//! The answers of each policy: which thread is next, when a waiter requests a drop, and how a
//! thread's past behaviour changes both.

mod driven_gil;

use std::cell::Cell;

use driven_gil::*;
use headway_sched::{LivePolicy, PolicyName, Queue, Thread, ThreadId};
use proptest::prelude::*;

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
        let mut gil = Gil::under(LivePolicy::new(policy));
        gil.take(0).pass(US).wait(1).pass(US).wait(2).pass(US);
        gil.scheduler.leave(&mut gil.threads, 1);
        assert_eq!(gil.next(), Some(2), "{policy:?}");
        gil.wait(1);
        assert_eq!(gil.order(), [1, 2], "{policy:?}");
    }
}

#[test]
fn priority_ignores_what_a_thread_did_before_it_began_anew() {
    for anew in [false, true] {
        let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
        gil.hold(0, 6 * MS).hold(1, 30 * MS);
        if anew {
            gil.threads[1].begin_anew();
        }
        gil.take(0).pass(MS).wait(1);
        // At the end of the slice, or at once.
        assert_eq!(gil.asks_in_ns(1, 0), if anew { 0 } else { 4 * MS });
    }
}

#[test]
fn priority_keeps_the_class_of_a_thread_that_the_kernel_kept_from_running() {
    for (ran_ns, next) in [(6 * US, 0), (5 * MS, 1)] {
        let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
        gil.hold_until_asked(1, 6 * MS).take(0).wait(1).pass(5 * MS).drop_after_running(0, ran_ns);
        gil.take(2).end_forced_wait(0).pass(2 * US).wait(0);
        assert_eq!(gil.next(), Some(next), "ran for {ran_ns} ns");
    }
}

#[test]
fn priority_calls_a_thread_cpu_bound_that_gets_no_core() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 6 * MS);
    for (lost_ns, next) in [(15 * MS, 0), (15 * MS, 1), (6 * MS, 1)] {
        gil.take(0).wait(1).pass(lost_ns).drop_after_running(0, 6 * US).take(2).wait(0);
        assert_eq!(gil.next(), Some(next), "{lost_ns}");
        gil.leave(0).leave(1).drop(2);
    }
    // It was away by its own choice.
    gil.hold(0, US).pass(20 * MS).take(2).wait(1).wait(0);
    assert_eq!(gil.next(), Some(0));
}

#[test]
fn priority_keeps_the_class_of_a_thread_that_loses_its_core_as_it_drops_on_request() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 2 * MS).hold_until_asked(0, 3 * MS / 2).take(2).wait(1);
    // When it runs again the switch is made, and it takes without a forced-switch wait.
    gil.pass(10 * MS).skip_forced_wait(0).wait(0);
    assert_eq!(gil.next(), Some(1));
}

#[test]
fn interval_requests_a_drop_after_one_interval_without_a_switch() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Interval));
    gil.take(0).pass(2 * MS).wait(1);
    assert_eq!(gil.asks_in_ns(1, 0), INTERVAL_NS);
    gil.pass(3 * MS).drop(0).take(2);
    // A switch happened in the first timed wait; the second ends one interval later.
    assert_eq!(gil.asks_in_ns(1, 2), 7 * MS);
    gil.wait(0);
    assert_eq!(gil.order(), [1, 0]);
}

#[test]
fn priority_puts_io_bound_waiters_first_in_order_of_arrival() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 5 * MS).hold_until_asked(2, 5 * MS);
    gil.take(0).wait(1).pass(US).wait(3).pass(US).wait(2).pass(US).wait(4);
    assert_eq!(gil.order(), [3, 4, 1, 2]);
}

#[test]
fn priority_lets_an_io_bound_waiter_request_a_drop_from_a_cpu_bound_holder_at_once() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(0, 5 * MS).take(0).wait(1);
    assert_eq!(gil.asks_in_ns(1, 0), 0);
}

#[test]
fn priority_lets_an_io_bound_waiter_request_a_drop_from_an_io_bound_holder_after_a_millisecond() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.take(0).pass(300 * US).wait(1);
    assert_eq!(gil.asks_in_ns(1, 0), 700 * US);
    // A hold that was cut short continues: the millisecond is that of the burst.
    gil.drop_forced(0).hold(1, 10 * US).take(0).wait(2);
    assert_eq!(gil.asks_in_ns(2, 0), 700 * US);
}

#[test]
fn priority_resumes_a_preempted_thread_before_others_begin_a_turn() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 5 * MS).hold_until_asked(2, 5 * MS);
    gil.take(0).wait(1).pass(US).wait(2).drop(0);
    assert_eq!(gil.next(), Some(1));
    gil.take(1).pass(2 * MS).wait(3);
    assert_eq!(gil.asks_in_ns(2, 1), 3 * MS, "thread 2 waits for the end of the turn");
    gil.drop_forced(1).take(3).wait(1);
    assert_eq!(gil.next(), Some(1), "three milliseconds of thread 1's turn are left");
    gil.pass(10 * US).drop(3).take(1);
    assert_eq!(gil.asks_in_ns(2, 1), 3 * MS);
    gil.pass(3 * MS).drop_forced(1).take(2).wait(1);
    assert_eq!(gil.asks_in_ns(1, 2), INTERVAL_NS);
}

#[test]
fn priority_lets_a_cpu_bound_waiter_go_first_after_four_intervals_and_protects_it() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 5 * MS).take(0).wait(1);
    gil.fill_with_io_bound_holds(0, 2, 20 * MS);
    assert_eq!(gil.asks_in_ns(1, 0), 0, "thread 1 requests a drop from any holder");
    gil.wait(2).drop_forced(0);
    assert_eq!(gil.next(), Some(1));
    gil.take(1);
    assert_eq!(gil.asks_in_ns(2, 1), MS);
    gil.pass(MS).drop_forced(1).take(2).wait(1);
    gil.wait(0);
    assert_eq!(gil.order(), [0, 1], "thread 1 goes first once, then not for four intervals");
}

#[test]
fn priority_lets_a_protected_turn_end_with_the_first_drop() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 5 * MS).hold_until_asked(2, 5 * MS);
    gil.take(0).wait(1).pass(US).wait(2);
    gil.fill_with_io_bound_holds(0, 3, 20 * MS);
    gil.drop(0);
    assert_eq!(gil.next(), Some(1));
    gil.hold(1, 10 * US).pass(US);
    // Thread 2 is owed the rest of the millisecond, and thread 1 is behind it.
    gil.take(0).wait(1);
    assert_eq!(gil.order(), [2, 1]);
}

#[test]
fn priority_puts_a_thread_that_just_became_cpu_bound_behind_one_that_has_waited_for_long() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    gil.hold_until_asked(1, 5 * MS).take(0).wait(1).drop(0);
    gil.hold_until_asked(2, 2 * MS).pass(MS).take(0).wait(2).drop(0);
    assert_eq!(gil.next(), Some(2), "the turn of thread 2 began when it took");
    gil.hold(2, 3 * MS).pass(20 * MS);
    gil.hold_until_asked(3, 2 * MS).take(0).wait(3);
    assert_eq!(gil.order(), [1, 3]);
}

#[test]
fn priority_classes_a_thread_by_its_time_away_and_not_by_how_it_drops() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Priority));
    // Thread 1 is away for a moment after every half millisecond; thread 2 is away for as long as
    // it holds.
    for _ in 0..60 {
        gil.hold(1, 500 * US).pass(10 * US);
    }
    gil.take(0).wait(1).pass(US).wait(2);
    assert_eq!(gil.order(), [2, 1]);
    // A sleep longer than the window erases the past.
    gil.drop(0).hold(1, US).hold(2, US).pass(30 * MS).take(0).wait(1).pass(US).wait(2);
    assert_eq!(gil.order(), [1, 2]);
}

#[test]
fn deadline_moves_by_eight_intervals_when_a_slice_is_used_up() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Deadline));
    gil.hold(1, INTERVAL_NS).pass(MS);
    gil.take(0).pass(30 * MS).wait(2).pass(US).wait(1);
    assert_eq!(gil.order(), [2, 1], "thread 1's deadline is at 41 ms, thread 2's is now");
    gil.drop(0).pass(20 * MS).take(0).wait(1).pass(US).wait(3);
    assert_eq!(gil.order(), [1, 3], "thread 1's deadline has passed");
}

#[test]
fn deadline_lies_at_most_eight_intervals_in_the_past_when_it_moves() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Deadline));
    gil.hold(1, MS).pass(500 * MS);
    // The deadline of thread 1 is half a second old. The slice that it uses up now moves the
    // deadline to 40 ms ago, not further.
    gil.hold(1, 4 * MS);
    gil.hold(2, INTERVAL_NS).take(0).wait(1).wait(2);
    assert_eq!(gil.order(), [1, 2]);
    gil.drop(0);
    for _ in 0..3 {
        gil.hold(1, INTERVAL_NS);
    }
    gil.take(0).wait(1).wait(2);
    assert_eq!(gil.order(), [2, 1]);
}

#[test]
fn deadline_lies_at_most_eight_intervals_ahead_however_many_wait() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Deadline));
    gil.take(0).pass(INTERVAL_NS);
    let crowd = 2..50;
    crowd.clone().for_each(|waiter| _ = gil.wait(waiter));
    gil.drop_forced(0).take(0).pass(INTERVAL_NS).drop_forced(0);
    crowd.for_each(|waiter| _ = gil.hold(waiter, US));
    // The crowd has left. Thread 0 has used up two slices, and thread 1 uses up two after it.
    gil.hold(1, INTERVAL_NS).hold(1, INTERVAL_NS);
    gil.take(2).wait(1).wait(0);
    assert_eq!(gil.order(), [0, 1]);
}

#[test]
fn deadline_lies_further_back_if_many_want_the_gil() {
    for (waiters, order) in [(1, [1, 0]), (10, [0, 1])] {
        let mut gil = Gil::under(LivePolicy::new(PolicyName::Deadline));
        // The deadline of thread 0 is 40 intervals old when its slice is used up, and then lies one
        // step back: 8 intervals or, with 11 threads, 16. That of thread 1 is 10 intervals old.
        gil.hold(0, US).pass(30 * INTERVAL_NS).hold(1, US).pass(9 * INTERVAL_NS).take(0);
        (2..2 + waiters).for_each(|waiter| _ = gil.wait(waiter));
        gil.pass(INTERVAL_NS).drop_forced(0);
        (2..2 + waiters).for_each(|waiter| _ = gil.leave(waiter));
        gil.take(2).wait(0).wait(1);
        assert_eq!(gil.order(), order, "beside {waiters}");
    }
}

#[test]
fn deadline_requests_a_drop_at_once_if_earlier_and_at_the_end_of_the_slice_if_not() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Deadline));
    gil.hold(0, INTERVAL_NS).take(0).pass(MS).wait(1);
    assert_eq!(gil.asks_in_ns(1, 0), 0);
    gil.drop_forced(0).take(1).wait(0);
    assert_eq!(gil.asks_in_ns(0, 1), INTERVAL_NS);
    gil.wait(2);
    assert_eq!(gil.next(), Some(2));
    assert_eq!(gil.asks_in_ns(0, 1), 2 * INTERVAL_NS, "thread 0 is not first: it checks later");
    for waiter in 3..6 {
        gil.wait(waiter);
    }
    assert_eq!(gil.asks_in_ns(0, 1), 5 * INTERVAL_NS, "and the later, the more wait");
}

#[test]
fn deadline_does_not_interrupt_a_short_burst() {
    let mut gil = Gil::under(LivePolicy::new(PolicyName::Deadline));
    gil.hold(0, INTERVAL_NS).pass(MS).take(0).pass(50 * US).wait(1);
    assert_eq!(gil.asks_in_ns(1, 0), 150 * US);
}

#[test]
fn a_shorter_slice_also_shortens_the_rest_of_the_present_slice() {
    for policy in [PolicyName::Priority, PolicyName::Deadline] {
        let mut gil = Gil::under(LivePolicy::new(policy));
        gil.threads[0].set_slice(50 * MS);
        gil.hold_until_asked(0, 20 * MS).wait(1).take(1).wait(0);
        assert!(gil.threads[0].slice_left_ns <= 50 * MS, "{policy:?}");
        gil.leave(0).drop(1).threads[0].set_slice(2 * MS);
        gil.take(0).wait(2);
        assert!((1..=2 * MS).contains(&gil.threads[0].slice_left_ns), "{policy:?}");
        assert!(gil.asks_in_ns(2, 0) <= 2 * MS, "{policy:?}");
        gil.threads[0].set_slice(0);
        assert_eq!(gil.threads[0].slice_ns(), INTERVAL_NS);
    }
}

proptest! {
    /// A queue is a sorted list in which threads with equal keys keep their order of arrival.
    #[test]
    fn a_queue_is_a_stable_sort(
        operations in prop::collection::vec((any::<bool>(), 0u32..6, 0u64..4), 1..60),
    ) {
        let mut threads = Table(vec![Thread::new(); 6]);
        let mut queue = Queue::new(1);
        let mut other = Queue::new(2);
        let mut model: Vec<(u64, ThreadId)> = Vec::new();
        for (inserts, id, key) in operations {
            if threads[id].is_queued() || !inserts {
                other.remove(&mut threads, id);
                queue.remove(&mut threads, id);
                model.retain(|(_, waiter)| *waiter != id);
            } else {
                threads[id].turn = key;
                queue.insert(&mut threads, id, |threads, id| threads[id].turn);
                let place = model.partition_point(|(before, _)| *before <= key);
                model.insert(place, (key, id));
            }
            prop_assert_eq!(queue.first(), model.first().map(|(_, id)| *id));
            for id in 0..6 {
                let in_model = model.iter().any(|(_, waiter)| *waiter == id);
                prop_assert_eq!(queue.has(&threads, id), in_model);
            }
        }
        for (_, id) in model {
            prop_assert_eq!(queue.first(), Some(id));
            queue.remove(&mut threads, id);
        }
        prop_assert_eq!(queue.first(), None);
    }
}

#[test]
fn a_thread_for_the_beginning_of_a_queue_does_not_pass_all_the_others() {
    const COUNT: u32 = 1000;
    let mut threads = Table(vec![Thread::new(); COUNT as usize]);
    let mut queue = Queue::new(1);
    for id in 1..COUNT {
        threads[id].turn = u64::from(id);
        queue.insert(&mut threads, id, |threads, id| threads[id].turn);
    }
    let keys_read = Cell::new(0);
    queue.insert(&mut threads, 0, |threads: &Table, id| {
        keys_read.set(keys_read.get() + 1);
        threads[id].turn
    });
    assert_eq!(queue.first(), Some(0));
    assert!(keys_read.get() <= 3, "{} keys were read", keys_read.get());
}
