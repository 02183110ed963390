//! Checks the invariants of any simulation, for all machines and scripts.
//!
//! `HEADWAY_MODEL_CASES` sets the number of scenarios of each test.

mod replay;
mod scenario;

use headway_simulation::{
    Distribution, GilSetting, Machine, Outcome, PolicyName, Scenario, Step, ThreadSetting, Varying,
};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::RngSeed;
use replay::Replay;
use scenario::*;

fn ns(least: u64, most: u64) -> impl Strategy<Value = f64> + Clone {
    (least..=most).prop_map(|ns| ns as f64)
}

fn times(least: u64, most: u64) -> impl Strategy<Value = Distribution> + Clone {
    let varying = prop_oneof![
        ns(least, most).prop_map(Varying::Exponential),
        (ns(least, most), ns(0, most)).prop_map(|(a, more)| Varying::Uniform(a, a + more)),
        (ns(least, most), 0.0..1.0f64).prop_map(|(median, s)| Varying::Lognormal(median, s)),
        prop::collection::vec(ns(least, most), 1..5).prop_map(|mut values| {
            values.sort_by(f64::total_cmp);
            Varying::Quantiles(values)
        }),
    ];
    prop_oneof![
        2 => ns(least, most).prop_map(Distribution::Always),
        1 => varying.prop_map(Distribution::Varying),
    ]
}

fn machines(cores: impl Strategy<Value = usize> + 'static) -> impl Strategy<Value = Machine> {
    let cost = |most| prop_oneof![Just(always(0)), times(0, most)];
    let kernel = (
        cores,
        prop_oneof![Just(2.8e6), ns(1, 5 * MS)],
        prop_oneof![Just(4e6), ns(100 * US, 4 * MS)],
        prop_oneof![Just(0.0), Just(5e5), ns(0, 2 * MS)],
    );
    let costs = (cost(60 * US), cost(5 * US), cost(5 * US));
    let gil = (cost(100 * US), cost(US), cost(US));
    let contended = (cost(US), prop::option::of(cost(US)));
    let late = (prop_oneof![Just(0.0), ns(0, 60 * US)], prop_oneof![Just(0.0), ns(0, 40 * US)]);
    let stolen = (prop_oneof![Just(1e15), ns(50 * US, 5 * MS)], times(0, 200 * US));
    let deep = (cost(60 * US), cost(5 * US), prop_oneof![Just(1e15), ns(0, 500 * US)]);
    // As a tuple of tuples, the strategies would overflow a test's stack.
    let (kernel, costs, gil) = (kernel.boxed(), costs.boxed(), gil.boxed());
    let (late, stolen, deep) = (late.boxed(), stolen.boxed(), deep.boxed());
    (kernel, costs, gil, contended.boxed(), late, stolen, deep).prop_map(
        |(
            (cores, slice_ns, tick_ns, hot_ns),
            (wake_idle_ns, switch_ns, call_ns),
            (check_ns, take_ns, drop_ns),
            (contended_ns, answer_ns),
            (timer_slack_ns, spin_ns),
            (stolen_every_ns, stolen_ns),
            (wake_idle_long_ns, call_long_ns, long_idle_ns),
        )| Machine {
            cores,
            wake_idle_ns,
            switch_ns,
            call_ns,
            slice_ns,
            tick_ns,
            hot_ns,
            wake_idle_long_ns: Some(wake_idle_long_ns),
            call_long_ns: Some(call_long_ns),
            long_idle_ns,
            cold_ns: always(0),
            stolen_every_ns,
            stolen_ns,
            timer_slack_ns,
            check_ns,
            take_ns,
            drop_ns,
            contended_ns,
            answer_ns,
            spin_ns,
        },
    )
}

fn policies() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(PolicyName::ALL.to_vec())
}

fn gils() -> impl Strategy<Value = Vec<GilSetting>> {
    let interval = prop_oneof![Just(5e6), ns(US, 100 * US), ns(100 * US, 10 * MS)];
    let gil = (policies(), interval)
        .prop_map(|(policy, switch_interval_ns)| GilSetting { policy, switch_interval_ns });
    prop::collection::vec(gil, 1..=2)
}

fn steps() -> impl Strategy<Value = Step> {
    let short = || prop_oneof![times(0, 100 * US), times(0, 3 * MS)];
    prop_oneof![
        3 => short().prop_map(Step::Compute),
        1 => short().prop_map(Step::ComputeUntil),
        1 => short().prop_map(Step::Call),
        1 => short().prop_map(Step::System),
        2 => short().prop_map(Step::Sleep),
        1 => (0..3usize, times(0, 20 * US)).prop_map(|(channel, ns)| Step::Receive(channel, ns)),
        1 => times(0, 20 * US).prop_map(Step::Reply),
        1 => times(0, 20 * US).prop_map(Step::Answer),
        1 => (0..3usize, times(0, 20 * US)).prop_map(|(channel, ns)| Step::Ask(channel, ns)),
        1 => (0..3usize, times(0, 20 * US)).prop_map(|(channel, ns)| Step::Send(channel, ns)),
        1 => Just(Step::Begin),
        1 => Just(Step::End),
    ]
}

/// Scripts that take at least a microsecond, so that the number of events of a run stays small.
fn scripts(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Vec<Step>> {
    let last = prop_oneof![ns(US, 50 * US), ns(MS, 50 * MS)];
    (prop::collection::vec(step, 0..6), last).prop_map(|(mut script, last_ns)| {
        script.push(Step::Compute(Distribution::Always(last_ns)));
        script
    })
}

prop_compose! {
    fn threads_on(cores: usize, gils: usize)(
        script in scripts(steps()),
        gil in prop_oneof![5 => (0..gils).prop_map(Some), 1 => Just(None)],
        once in prop::bool::weighted(0.3),
        starts_ns in prop_oneof![Just(0.0), ns(0, 5 * MS)],
        cores in prop_oneof![
            3 => Just(Vec::new()),
            1 => subsequence((0..cores).collect::<Vec<_>>(), 1..=cores),
        ],
    ) -> ThreadSetting {
        ThreadSetting { name: String::new(), script, gil, once, starts_ns, cores }
    }
}

prop_compose! {
    fn scenarios()(cores in 1..=8usize)(
        machine in machines(Just(cores)),
        gils in gils(),
        threads in prop::collection::vec((threads_on(cores, 1), 0..2usize), 1..=8),
        end_ns in ns(MS, 20 * MS),
        seed in any::<u64>(),
    ) -> Scenario {
        let threads = threads
            .into_iter()
            .map(|(thread, gil)| ThreadSetting { gil: thread.gil.map(|_| gil % gils.len()), ..thread })
            .collect();
        Scenario { machine, gils, threads, end_ns, begin_ns: 0.0, seed, timeline_events: ALL_MOMENTS }
    }
}

fn config(cases: u32) -> ProptestConfig {
    let more = std::env::var("HEADWAY_MODEL_CASES").ok().and_then(|text| text.parse().ok());
    // Runs the same cases each time, and other cases with HEADWAY_MODEL_SEED.
    let seed = std::env::var("HEADWAY_MODEL_SEED").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: more.unwrap_or(cases),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed.unwrap_or(8)),
        ..Default::default()
    }
}

fn json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).expect("an outcome is JSON")
}

proptest! {
    #![proptest_config(config(96))]

    /// `Replay` checks that each moment is possible.
    #[test]
    fn a_timeline_is_possible_and_adds_up_to_the_counters(scenario in scenarios()) {
        let outcome = run(scenario.clone());
        let replay = Replay::of(&scenario, &outcome);
        for (place, (replayed, counters)) in replay.gils.iter().zip(&outcome.gils).enumerate() {
            prop_assert_eq!(replayed.held_ns, counters.held_ns);
            prop_assert_eq!(replayed.contended_ns, counters.contended_ns);
            prop_assert_eq!(replayed.handoff_ns, counters.handoff_ns);
            prop_assert_eq!(replayed.switches, counters.switches);
            prop_assert!(counters.held_ns + counters.handoff_ns <= outcome.ended_ns);
            let mine = || (outcome.threads.iter().zip(&scenario.threads))
                .filter_map(|(counters, thread)| (thread.gil == Some(place)).then_some(counters));
            prop_assert_eq!(mine().map(|thread| thread.held_ns).sum::<u64>(), counters.held_ns);
            prop_assert_eq!(mine().map(|thread| thread.asked).sum::<u64>(), counters.drop_requests);
            let drops = |counters: &headway_simulation::ThreadCounters| counters.forced_drops + counters.voluntary_drops;
            let (takes, drops) = mine().fold((0, 0), |sum, counters| (sum.0 + counters.takes, sum.1 + drops(counters)));
            prop_assert_eq!(takes, drops + u64::from(replay.holder(place).is_some()));
        }
        for (replayed, counters) in replay.threads.iter().zip(&outcome.threads) {
            prop_assert_eq!(replayed.held_ns, counters.held_ns);
            prop_assert_eq!(replayed.takes, counters.takes);
            prop_assert_eq!(replayed.drops, counters.forced_drops + counters.voluntary_drops);
            prop_assert_eq!(replayed.contended_takes, counters.contended_takes);
            prop_assert_eq!(counters.wait_ns.count() as u64, counters.contended_takes);
            prop_assert_eq!(replayed.wait_ns, counters.wait_ns.sum_ns());
            prop_assert_eq!(replayed.drops, counters.hold_ns.count() as u64);
            prop_assert_eq!(replayed.asked, counters.asked);
            prop_assert!(counters.cpu_ns <= replayed.on_core_ns);
            prop_assert!(counters.computed_ns <= counters.cpu_ns);
            prop_assert!(counters.finished_ns.is_none_or(|ns| ns <= outcome.ended_ns));
        }
        let cpu_ns: u64 = outcome.threads.iter().map(|thread| thread.cpu_ns).sum();
        prop_assert!(cpu_ns <= scenario.machine.cores as u64 * outcome.ended_ns);
    }

    #[test]
    fn a_window_holds_no_more_than_its_length(scenario in scenarios(), part in 0.0..1.0f64) {
        let scenario = Scenario { begin_ns: (scenario.end_ns * part).floor(), ..scenario };
        let outcome = run(scenario.clone());
        let window_ns = outcome.ended_ns.saturating_sub(scenario.begin_ns as u64);
        for counters in &outcome.gils {
            prop_assert!(counters.held_ns + counters.handoff_ns <= window_ns);
            prop_assert!(counters.contended_ns <= counters.held_ns);
        }
        let cpu_ns: u64 = outcome.threads.iter().map(|thread| thread.cpu_ns).sum();
        prop_assert!(cpu_ns <= scenario.machine.cores as u64 * window_ns);
        for (at_ns, ..) in &outcome.timeline {
            prop_assert!((scenario.begin_ns as u64..=scenario.end_ns as u64).contains(at_ns));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome(scenario in scenarios()) {
        prop_assert_eq!(json(&run(scenario.clone())), json(&run(scenario)));
    }

    /// The bursts of one thread vary, so that the seed has an effect.
    #[test]
    fn another_seed_gives_another_outcome(
        machine in machines(1..=8usize),
        mean_ns in ns(10 * US, MS),
        seed in any::<u64>(),
    ) {
        let ns = Distribution::Varying(Varying::Exponential(mean_ns));
        let thread = repeats(vec![Step::Compute(ns.clone()), Step::Sleep(ns)]);
        let scenario = scenario(machine, vec![gil(PolicyName::INTERVAL, INTERVAL_NS)], vec![thread], 20 * MS);
        let with = |seed| json(&run(Scenario { seed, timeline_events: ALL_MOMENTS, ..scenario.clone() }));
        prop_assert_ne!(with(seed), with(seed.wrapping_add(1)));
    }

    /// Each script does all of its work, and no more.
    #[test]
    fn work_is_conserved(
        machine in machines(1..=8usize),
        gils in gils(),
        work in prop::collection::vec((prop::collection::vec((0..4usize, 0..20 * MS), 1..6), 0..3usize, ns(0, 5 * MS)), 1..=8),
    ) {
        let kinds = [Step::Compute, Step::Call, Step::System, Step::Sleep];
        let threads: Vec<ThreadSetting> = work.iter().map(|(steps, gil, starts_ns)| {
            let script = steps.iter().map(|(kind, ns)| kinds[*kind](always(*ns))).collect();
            // The index behind the last GIL means none.
            let gil = (*gil < gils.len()).then_some(*gil);
            ThreadSetting { gil, starts_ns: *starts_ns, ..does_once(script) }
        }).collect();
        let scenario = scenario(machine, gils, threads, 60_000 * MS);
        let outcome = run(scenario.clone());
        for ((steps, ..), counters) in work.iter().zip(&outcome.threads) {
            let sum_ns = |least, most| steps.iter().filter(|(kind, _)| (least..=most).contains(kind))
                .map(|(_, ns)| ns).sum::<u64>();
            prop_assert!(counters.finished_ns.is_some(), "{counters:?}");
            prop_assert_eq!(counters.computed_ns, sum_ns(0, 1));
            prop_assert!(counters.cpu_ns >= sum_ns(0, 2));
        }
        prop_assert!(outcome.ended_ns < scenario.end_ns as u64);
    }

    /// With a core for each thread and long switch intervals, a waiter takes the GIL as soon as it
    /// has woken. A lost wakeup would show as a wait until the next check.
    #[test]
    fn no_wake_up_is_lost(
        policy in policies(),
        machine in machines(Just(8)),
        scripts in prop::collection::vec(scripts(steps()), 2..=8),
    ) {
        let machine = Machine {
            wake_idle_ns: always(40 * US),
            wake_idle_long_ns: None,
            switch_ns: always(3 * US),
            stolen_ns: always(0),
            ..machine
        };
        let threads = scripts.into_iter().map(repeats).collect();
        let gils = vec![gil(policy, 20 * MS)];
        let scenario = Scenario { timeline_events: ALL_MOMENTS, ..scenario(machine, gils, threads, 100 * MS) };
        let outcome = run(scenario.clone());
        let longest_ns = Replay::of(&scenario, &outcome).gils[0].longest_handoff_ns;
        prop_assert!(longest_ns <= 43 * US + 1_000, "free for {longest_ns} ns while a thread waits");
    }

    /// The schedule is as greedy as one in which no core idles beside a runnable thread, except for
    /// the time until an idle core takes over a thread: at a tick, once the thread's memory is
    /// cold.
    #[test]
    fn no_core_idles_for_long_beside_a_runnable_thread(
        machine in machines(1..=4usize),
        later_ns in ns(0, 2 * MS),
        work in prop::collection::vec(prop_oneof![ns(0, MS), ns(200 * MS, 400 * MS)], 1..=12),
    ) {
        let none = || always(0);
        // Threads that share a core alternate at ticks, and would never be cold with shorter ticks.
        let tick_ns = machine.hot_ns + US as f64 + later_ns;
        let machine = Machine {
            tick_ns,
            switch_ns: none(),
            wake_idle_ns: none(),
            wake_idle_long_ns: None,
            stolen_ns: none(),
            ..machine
        };
        let threads: Vec<ThreadSetting> = work.iter()
            .map(|ns| ThreadSetting { gil: None, ..does_once(vec![Step::Compute(Distribution::Always(*ns))]) })
            .collect();
        let outcome = run(scenario(machine.clone(), Vec::new(), threads, 60_000 * MS));
        let (sum_ns, longest_ns) = (work.iter().sum::<f64>(), work.iter().copied().fold(0.0, f64::max));
        let late_ns = work.len() as f64 * (machine.hot_ns + machine.tick_ns);
        let bound_ns = sum_ns / machine.cores as f64 + longest_ns + late_ns;
        prop_assert!(outcome.ended_ns as f64 <= bound_ns, "{} after {bound_ns}", outcome.ended_ns);
    }
}
