//! CPython's protocol and the kernel in corner cases, in virtual time.

mod scenario;

use headway_simulation::{
    Distribution, Machine, Moment, PolicyName, Scenario, Simulation, Step, ThreadSetting, Varying,
};
use scenario::*;

fn on(cores: &[usize], thread: ThreadSetting) -> ThreadSetting {
    ThreadSetting { cores: cores.to_vec(), ..thread }
}

fn starts(ns: u64, thread: ThreadSetting) -> ThreadSetting {
    ThreadSetting { starts_ns: ns as f64, ..thread }
}

/// The time to wake others is part of a take or a drop, not of the thread's computation.
#[test]
fn computing_takes_its_time_however_often_it_is_interrupted() {
    for policy in PolicyName::ALL {
        let hogs = vec![does_once(vec![compute(100 * MS)]); 3];
        let outcome = run_under(policy, machine(4), hogs, 60_000 * MS);
        for thread in &outcome.threads {
            assert_eq!(thread.computed_ns, 100 * MS, "{policy:?}");
        }
    }
}

/// `drop_gil` with its final release does not wait for a switch.
#[test]
fn a_thread_that_ends_does_not_wait_for_a_switch() {
    // A drop is requested, and the thread ends before its check.
    let machine = Machine { check_ns: always(50 * MS), ..machine(2) };
    let ends = does_once(vec![compute(20 * MS)]);
    let scenario = Scenario {
        timeline_events: ALL_MOMENTS,
        ..scenario(
            machine,
            vec![gil(PolicyName::INTERVAL, INTERVAL_NS)],
            vec![ends, starts(MS, repeats(vec![compute(MS), sleep(MS)]))],
            60_000 * MS,
        )
    };
    let outcome = run(scenario);
    assert!(outcome.threads[1].asked > 0);
    let waited = outcome.timeline.iter().any(|(_, _, moment)| *moment == Moment::ForcedWait);
    assert!(!waited, "{:?}", outcome.timeline);
    assert!(outcome.threads[0].finished_ns < Some(20 * MS + 100 * US));
}

/// The evaluation loop checks its eval breaker after each call, however short the Python code
/// between calls.
#[test]
fn a_drop_request_is_seen_by_code_that_makes_one_call_after_another() {
    let calls = repeats(vec![compute(50), call(MS)]);
    for policy in PolicyName::ALL.into_iter().filter(|policy| *policy != PolicyName::Ticks) {
        let outcome = run_under(policy, machine(2), vec![calls.clone(), hog()], 1_000 * MS);
        assert!(outcome.threads[0].forced_drops > 10, "{policy:?}");
        assert!(outcome.threads[0].hold_ns.max_ns() < 30 * MS, "{policy:?}");
        assert!(outcome.threads[1].held_ns > 100 * MS, "{policy:?}");
    }
}

/// The time counts from the request, however long the holder has run before.
#[test]
fn a_drop_request_is_seen_after_the_check_time() {
    let machine = Machine { check_ns: always(400 * US), ..machine(2) };
    for policy in PolicyName::ALL.into_iter().filter(|policy| *policy != PolicyName::Ticks) {
        let gils = vec![gil(policy, INTERVAL_NS)];
        let scenario = Scenario {
            timeline_events: ALL_MOMENTS,
            ..scenario(machine.clone(), gils, vec![hog(); 2], 200 * MS)
        };
        let mut asked_ns = None;
        let mut answers_ns = Vec::new();
        for (at_ns, _, moment) in run(scenario).timeline {
            match moment {
                Moment::Ask => asked_ns = asked_ns.or(Some(at_ns)),
                Moment::ForcedDrop => answers_ns.push(at_ns - asked_ns.take().expect("a request")),
                _ => {}
            }
        }
        assert!(answers_ns.len() > 10, "{policy:?}");
        assert!(
            answers_ns.iter().all(|ns| (400 * US..410 * US).contains(ns)),
            "{policy:?}: {answers_ns:?}"
        );
    }
}

/// The time to the check continues from one step to the next.
#[test]
fn a_drop_request_is_seen_by_code_whose_steps_are_shorter_than_the_check_time() {
    let machine = Machine { check_ns: always(10 * US), ..machine(2) };
    let short = vec![compute(300), Step::Begin, compute(0), compute(400), Step::End];
    for policy in PolicyName::ALL.into_iter().filter(|policy| *policy != PolicyName::Ticks) {
        let threads = vec![repeats(short.clone()), starts(MS, hog())];
        let outcome = run_under(policy, machine.clone(), threads, 200 * MS);
        assert!(outcome.threads[0].forced_drops > 5, "{policy:?}");
        // The thread is alone at first, then receives a request within an interval.
        let longest_ns = outcome.threads[0].hold_ns.max_ns();
        assert!(longest_ns < MS + INTERVAL_NS + 500 * US, "{policy:?}: {longest_ns}");
        assert!(outcome.threads[1].held_ns > 80 * MS, "{policy:?}");
    }
}

/// A second request while the first one is pending has no effect.
#[test]
fn frequent_requests_do_not_postpone_the_check() {
    let machine = Machine { check_ns: always(50 * US), timer_slack_ns: 0.0, ..machine(4) };
    for policy in PolicyName::ALL.into_iter().filter(|policy| *policy != PolicyName::Ticks) {
        let gils = vec![gil(policy, 10 * US)];
        let outcome = run(scenario(machine.clone(), gils, vec![hog(); 4], 100 * MS));
        assert!(outcome.gils[0].switches > 100, "{policy:?}: {}", outcome.gils[0].switches);
    }
}

/// As in `crates/gil`, a thread in a forced-switch wait checks the GIL itself if no thread takes
/// it. Under CPython's own protocol, it keeps waiting.
#[test]
fn a_forced_switch_wait_under_our_policies_ends_even_if_no_thread_takes() {
    // The waiter no longer spins when it is woken, and wakes late.
    let late = always(30 * MS);
    let machine = Machine { check_ns: always(100 * US), wake_idle_ns: late, ..machine(4) };
    for policy in [PolicyName::INTERVAL, PolicyName::PRIORITY, PolicyName::DEADLINE] {
        let scenario = Scenario {
            timeline_events: ALL_MOMENTS,
            ..scenario(machine.clone(), vec![gil(policy, INTERVAL_NS)], vec![hog(); 2], 500 * MS)
        };
        let mut since_ns = [None; 2];
        let mut waits_ns = Vec::new();
        for (at_ns, thread, moment) in run(scenario).timeline {
            match moment {
                Moment::ForcedWait => since_ns[thread] = Some(at_ns),
                Moment::ForcedWaitOver => {
                    waits_ns.extend(since_ns[thread].take().map(|since_ns| at_ns - since_ns));
                }
                _ => {}
            }
        }
        let longest_ns = waits_ns.into_iter().max().expect("they were forced to switch");
        match policy {
            PolicyName::INTERVAL => assert!(longest_ns > 25 * MS, "{longest_ns}"),
            _ => assert!(longest_ns <= 10 * MS + 100 * US, "{policy:?}: {longest_ns}"),
        }
    }
}

/// A core that wakes for one thread is not ready sooner for another.
#[test]
fn no_thread_runs_on_a_core_that_is_waking_up() {
    let machine = Machine { wake_idle_ns: always(MS), timer_slack_ns: 0.0, ..machine(1) };
    let alone = ThreadSetting { gil: None, ..does_once(vec![compute(MS)]) };
    let threads = vec![starts(MS, alone.clone()), starts(MS + 100 * US, alone)];
    let scenario = scenario(machine, Vec::new(), threads, 1_000 * MS);
    let outcome = run(Scenario { timeline_events: ALL_MOMENTS, ..scenario });
    let runs = |moment: &&(u64, usize, Moment)| moment.2 == Moment::Run;
    assert_eq!(outcome.timeline.iter().find(runs).map(|run| run.0), Some(2 * MS));
}

/// Core 0 has the longer queue, and its threads must not leave it.
#[test]
fn an_idle_core_takes_over_a_thread_that_it_may_run_rather_than_one_of_the_longest_queue() {
    let alone = |ns| ThreadSetting { gil: None, ..does_once(vec![compute(ns)]) };
    let mut threads = vec![on(&[0], alone(60 * MS)); 3];
    threads.push(on(&[1], alone(60 * MS)));
    threads.push(on(&[2], alone(10 * MS)));
    threads.push(starts(MS, on(&[1, 2], alone(30 * MS))));
    let outcome = run(scenario(machine(3), Vec::new(), threads, 1_000 * MS));
    assert!(outcome.threads[3].finished_ns < Some(80 * MS), "{:?}", outcome.threads[3].finished_ns);
    assert!(outcome.threads[5].finished_ns < Some(50 * MS), "{:?}", outcome.threads[5].finished_ns);
}

/// The threads alternate at each tick, and the thread that has just run is not cold.
#[test]
fn two_threads_do_not_share_a_core_beside_an_idle_one() {
    let alone = |ns| ThreadSetting { gil: None, ..does_once(vec![compute(ns)]) };
    // The second core is idle before the third thread has waited for long.
    let threads = vec![alone(500 * MS), alone(300 * US), alone(500 * MS)];
    let outcome = run(scenario(machine(2), Vec::new(), threads, 2_000 * MS));
    assert!(outcome.ended_ns < 520 * MS, "{}", outcome.ended_ns);
}

/// A mean below a nanosecond takes no time, and a mean that only the rarest samples reach takes
/// none either.
#[test]
fn a_script_that_makes_no_progress_is_refused() {
    let never = Distribution::Varying(Varying::Lognormal(1e-100, 30.0));
    for step in [compute(0), Step::Compute(Distribution::Always(0.5)), Step::Compute(never)] {
        let gils = vec![gil(PolicyName::INTERVAL, INTERVAL_NS)];
        let why = Simulation::new(scenario(machine(1), gils, vec![repeats(vec![step])], MS));
        assert!(why.is_err_and(|why| why.starts_with("threads[0].script: it takes no time")));
    }
}

/// The tail of a distribution may exceed the range of a clock.
#[test]
fn the_longest_samples_do_not_make_time_run_back() {
    let ns = Distribution::Varying(Varying::Lognormal(1e15, 30.0));
    let script = vec![repeats(vec![Step::Sleep(ns), compute(US)])];
    let gils = vec![gil(PolicyName::INTERVAL, INTERVAL_NS)];
    let scenario = scenario(machine(1), gils, script, 10 * MS);
    for seed in 0..100 {
        assert_eq!(run(Scenario { seed, ..scenario.clone() }).ended_ns, 10 * MS);
    }
}

/// With several receivers, each gets one message, in the order in which they began to wait.
#[test]
fn messages_go_to_the_first_receiver_that_waits_and_answers_to_the_sender() {
    let serves = repeats(vec![Step::Receive(0, always(US)), compute(MS), Step::Reply(always(US))]);
    let asks = does_once(vec![Step::Begin, Step::Ask(0, always(US)), Step::End]);
    let elsewhere = |thread| ThreadSetting { gil: None, ..thread };
    let threads = vec![
        serves.clone(),
        starts(10 * US, serves),
        elsewhere(starts(2 * MS, asks.clone())),
        elsewhere(starts(10 * MS, asks.clone())),
        elsewhere(starts(20 * MS, asks)),
    ];
    let outcome = run_under(PolicyName::INTERVAL, machine(8), threads, 1_000 * MS);
    let computed: Vec<u64> = outcome.threads.iter().map(|thread| thread.computed_ns).collect();
    assert_eq!(computed[..2], [2 * MS, MS]);
    for asker in &outcome.threads[2..] {
        assert_eq!(asker.request_ns.count(), 1);
        assert!((MS..MS + 500 * US).contains(&asker.request_ns.max_ns()));
    }
}

/// The cost is that of the absence before the call, in proportion, and only the first call has it.
#[test]
fn the_first_system_call_after_an_absence_takes_longer() {
    let cold = Machine { cold_ns: always(40 * US), long_idle_ns: 1e6, ..ideal(2) };
    for (away_ns, cold_ns) in [(250 * US, 10 * US), (500 * US, 20 * US), (3 * MS, 40 * US)] {
        let calls = does_once(vec![sleep(away_ns), system(10 * US), system(10 * US)]);
        let sends = does_once(vec![sleep(away_ns), Step::Send(0, always(0))]);
        let receives = does_once(vec![Step::Receive(0, always(10 * US)), system(10 * US)]);
        let threads = [calls, sends, receives].map(|thread| ThreadSetting { gil: None, ..thread });
        let alone = run_under(PolicyName::INTERVAL, cold.clone(), threads[..1].to_vec(), 9 * MS);
        assert_eq!(alone.threads[0].finished_ns, Some(away_ns + cold_ns + 20 * US));
        let both = run_under(PolicyName::INTERVAL, cold.clone(), threads[1..].to_vec(), 9 * MS);
        assert_eq!(both.threads[0].finished_ns, Some(away_ns + cold_ns));
        // The receiver has been away until the end of the send.
        let sent_ns = away_ns + cold_ns;
        let cold_ns = 40 * US * sent_ns.min(MS) / MS;
        assert_eq!(both.threads[1].finished_ns, Some(sent_ns + cold_ns + 20 * US));
    }
}

/// The thread does not catch up on time in which its core is stolen.
#[test]
fn a_step_with_a_fixed_end_time_ends_then_even_if_its_core_is_stolen() {
    let stolen = Machine { stolen_every_ns: 1e6, stolen_ns: always(500 * US), ..machine(1) };
    let until = repeats(vec![Step::Begin, Step::ComputeUntil(always(20 * MS)), Step::End]);
    let outcome = run_under(PolicyName::INTERVAL, stolen, vec![until], 1_000 * MS);
    let thread = &outcome.threads[0];
    assert!(thread.computed_ns < 800 * MS, "{}", thread.computed_ns);
    assert!(thread.requests > 48.0, "{}", thread.requests);
}

/// The step ends at its time even if other threads held the GIL or the core in the meantime.
#[test]
fn a_step_with_a_fixed_end_time_ends_then() {
    let until =
        repeats(vec![sleep(100 * US), Step::Begin, Step::ComputeUntil(always(30 * MS)), Step::End]);
    for cores in [1, 2] {
        let outcome = run_under(
            PolicyName::INTERVAL,
            machine(cores),
            vec![until.clone(), hog(), hog()],
            1_000 * MS,
        );
        let requests = &outcome.threads[0].request_ns;
        assert!(requests.count() > 10, "{}", requests.count());
        // The thread notices the end when it has the GIL and the core again: after two intervals,
        // the others' slices, and a tick.
        let mean_ns = requests.sum_ns() / requests.count() as u64;
        assert!((30 * MS..42 * MS).contains(&mean_ns), "{cores}: {mean_ns}");
        assert!(outcome.threads[0].computed_ns < 500 * MS);
    }
}

/// A preempted thread returns within 300 ns. An I/O-bound thread whose take and drop are contended
/// holds for longer, so its drop wakes the preempted thread, which spins, rather than the other
/// CPU-bound thread, which sleeps.
#[test]
fn a_preempted_thread_returns_before_a_contended_drop_wakes_a_sleeping_one() {
    let runs_and_requests = |contended_ns, policy| {
        let machine = Machine {
            contended_ns: always(contended_ns),
            answer_ns: Some(always(300)),
            take_ns: always(20),
            drop_ns: always(20),
            ..machine(2)
        };
        let io_bound = repeats(vec![Step::Begin, sleep(10 * US), compute(30), Step::End]);
        let scenario = Scenario {
            timeline_events: ALL_MOMENTS,
            begin_ns: 100.0 * MS as f64,
            ..scenario(
                machine,
                vec![gil(policy, INTERVAL_NS)],
                vec![io_bound, hog(), hog()],
                500 * MS,
            )
        };
        let outcome = run(scenario);
        let runs = outcome
            .timeline
            .iter()
            .filter(|(_, thread, moment)| *thread > 0 && *moment == Moment::Run)
            .count();
        (runs, outcome.threads[0].requests as usize)
    };
    let (runs, requests) = runs_and_requests(360, PolicyName::PRIORITY);
    assert!(requests > 1_000, "{requests}");
    assert!(runs * 20 < requests, "{runs} of {requests}");
    let (runs, requests) = runs_and_requests(0, PolicyName::PRIORITY);
    assert!(runs * 4 > requests, "{runs} of {requests}");
    // No other policy has these costs.
    let interval = |contended_ns| runs_and_requests(contended_ns, PolicyName::INTERVAL);
    assert_eq!(interval(0), interval(360));
}
