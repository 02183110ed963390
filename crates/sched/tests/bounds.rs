//! Checks the bounds that the policies state, with random scripts in virtual time.
//!
//! The bounds are those of the policy alone: wakeups and drops on request take no time, so no
//! thread barges. `HEADWAY_MODEL_CASES` sets the number of scripts of each test.

mod ideal_gil;

use headway_sched::PolicyName;
use ideal_gil::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const INTERVAL_NS: u64 = 5 * MS;
const RUN_NS: u64 = 1_500 * MS;

fn ns(low_ns: u64, high_ns: u64) -> impl Strategy<Value = u64> {
    low_ns..=high_ns
}

fn hog() -> Vec<Burst> {
    vec![Burst { compute_ns: 60_000 * MS, away_ns: 0 }]
}

/// Bursts of threads as they occur in real programs, and of a few that no program should have.
fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let burst = |compute: (u64, u64), away: (u64, u64)| {
        (ns(compute.0, compute.1), ns(away.0, away.1))
            .prop_map(|(compute_ns, away_ns)| Burst { compute_ns, away_ns })
    };
    let hog = Just(hog());
    let masquerader = burst((US, 2 * MS), (US, 10 * US)).prop_map(|burst| vec![burst]);
    let server = burst((5 * US, 900 * US), (10 * US, 5 * MS)).prop_map(|burst| vec![burst]);
    let sleeper = burst((US, 3 * MS), (15 * MS, 60 * MS)).prop_map(|burst| vec![burst]);
    // I/O-bound at each arrival, and CPU-bound at each drop.
    let borderline = burst((900 * US, 3 * MS), (150 * US, 600 * US)).prop_map(|burst| vec![burst]);
    let turns_cpu_bound = (burst((10 * US, 500 * US), (10 * US, MS)), ns(2 * MS, 50 * MS))
        .prop_map(|(io, compute_ns)| {
            let mut bursts = vec![io; 20];
            bursts.push(Burst { compute_ns, away_ns: 100 * US });
            bursts
        });
    let any = prop::collection::vec(burst((US, 20 * MS), (US, 20 * MS)), 1..6);
    prop_oneof![hog, masquerader, server, sleeper, borderline, turns_cpu_bound, any]
}

fn script(starts_ns: u64, bursts: Vec<Burst>) -> Script {
    Script { starts_ns, bursts, ..Default::default() }
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let script =
        (ns(0, 30 * MS), bursts()).prop_map(|(starts_ns, bursts)| script(starts_ns, bursts));
    prop::collection::vec(script, 2..=12)
}

/// Scripts in which one kind of thread occurs many times, so that it can fill the GIL.
fn crowds() -> impl Strategy<Value = Vec<Script>> {
    let crowd = (bursts(), prop::collection::vec(ns(0, 30 * MS), 1..=11));
    let rest = prop::collection::vec((ns(0, 30 * MS), bursts()), 1..=3);
    (crowd, rest).prop_map(|((bursts, starts), rest)| {
        let mut scripts: Vec<Script> =
            starts.into_iter().map(|starts_ns| script(starts_ns, bursts.clone())).collect();
        scripts.extend(rest.into_iter().map(|(starts_ns, bursts)| script(starts_ns, bursts)));
        scripts
    })
}

/// Scripts of which some have slices of their own, and others have slices that change from burst to
/// burst.
fn scripts_with_slices() -> impl Strategy<Value = Vec<Script>> {
    let slice = prop_oneof![Just(0), ns(50 * US, MS), ns(MS, 20 * MS), ns(20 * MS, 80 * MS)];
    let slices = prop_oneof![
        Just(Vec::new()),
        slice.clone().prop_map(|slice_ns| vec![slice_ns]),
        prop::collection::vec(slice, 2..5),
    ];
    (prop_oneof![scripts(), crowds()], prop::collection::vec(slices, 16)).prop_map(
        |(mut scripts, slices)| {
            for (script, slices_ns) in scripts.iter_mut().zip(slices) {
                script.slices_ns = slices_ns;
            }
            scripts
        },
    )
}

/// Returns the sum of the longest slices of the other threads.
fn slices_of_others_ns(scripts: &[Script], thread: u32, interval_ns: u64) -> u64 {
    let others = scripts.iter().enumerate().filter(|(id, _)| *id != thread as usize);
    others.map(|(_, script)| script.longest_slice_ns(interval_ns)).sum()
}

fn config() -> ProptestConfig {
    let cases = std::env::var("HEADWAY_MODEL_CASES").ok().and_then(|text| text.parse().ok());
    // Runs the same cases each time, and other cases with HEADWAY_MODEL_SEED.
    let seed = std::env::var("HEADWAY_MODEL_SEED").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(48),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed.unwrap_or(8)),
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn priority_bounds_the_wait_of_io_bound_threads(
        scripts in prop_oneof![scripts(), crowds(), scripts_with_slices()],
        interval_ns in prop_oneof![Just(INTERVAL_NS), ns(100 * US, 20 * MS)],
    ) {
        let gil = IdealGil::new(PolicyName::Priority, interval_ns, &scripts).run(RUN_NS);
        let n = scripts.len() as u64;
        for wait in gil.waits.iter().filter(|wait| !wait.cpu_bound) {
            let overdue_turns = (1 + wait.ns() / (4 * interval_ns)).min(n);
            prop_assert!(wait.ns() <= (n - 1 + overdue_turns) * MS, "{wait:?} among {n}");
        }
    }

    #[test]
    fn priority_bounds_the_wait_of_cpu_bound_threads(
        scripts in prop_oneof![scripts(), crowds(), scripts_with_slices()],
    ) {
        let gil = IdealGil::new(PolicyName::Priority, INTERVAL_NS, &scripts).run(RUN_NS);
        for wait in gil.waits.iter().filter(|wait| wait.cpu_bound) {
            let slices_ns = slices_of_others_ns(&scripts, wait.thread, INTERVAL_NS);
            let paces = slices_ns / MS + 1;
            let bound_ns = 4 * INTERVAL_NS + paces * (4 * INTERVAL_NS + MS);
            prop_assert!(wait.ns() <= bound_ns, "{wait:?} beside slices of {slices_ns}");
        }
    }

    /// The bound without I/O-bound threads is tighter.
    #[test]
    fn priority_lets_hogs_take_turns_of_one_slice_each(
        starts_ns in prop::collection::vec(ns(0, 30 * MS), 2..=8),
        slices_ns in prop::collection::vec(prop_oneof![Just(0), ns(50 * US, 80 * MS)], 8),
    ) {
        let scripts: Vec<Script> = (starts_ns.into_iter().zip(slices_ns))
            .map(|(starts_ns, slice_ns)| {
                Script { starts_ns, bursts: hog(), slices_ns: vec![slice_ns] }
            })
            .collect();
        let gil = IdealGil::new(PolicyName::Priority, INTERVAL_NS, &scripts).run(RUN_NS);
        for wait in gil.waits.iter().filter(|wait| wait.cpu_bound) {
            let slices_ns = slices_of_others_ns(&scripts, wait.thread, INTERVAL_NS);
            prop_assert!(
                wait.ns() <= 4 * INTERVAL_NS + slices_ns,
                "{wait:?} beside slices of {slices_ns}"
            );
        }
    }

    #[test]
    fn deadline_bounds_every_wait(
        scripts in prop_oneof![scripts(), crowds(), scripts_with_slices()],
        interval_ns in prop_oneof![Just(INTERVAL_NS), ns(100 * US, 20 * MS)],
    ) {
        let gil = IdealGil::new(PolicyName::Deadline, interval_ns, &scripts).run(RUN_NS);
        for wait in &gil.waits {
            let slices_ns = slices_of_others_ns(&scripts, wait.thread, interval_ns);
            let n = scripts.len() as u64;
            let step_ns = (3 * n).max(16) * interval_ns / 2;
            let bound_ns = 8 * interval_ns + step_ns + slices_ns;
            let bound_ns = if n <= 5 { bound_ns.min(3 * slices_ns) } else { bound_ns };
            prop_assert!(wait.ns() <= bound_ns + 200 * US, "{wait:?} beside slices of {slices_ns}");
        }
    }
}

/// Threads that are I/O-bound at each arrival and CPU-bound at each drop, and that fill the GIL.
#[test]
fn priority_counts_a_hold_as_io_bound_if_the_thread_was_io_bound_when_it_took() {
    for away_ns in [130 * US, 140 * US] {
        let mut scripts = vec![script(0, vec![Burst { compute_ns: 800 * US, away_ns }]); 10];
        scripts.push(script(0, hog()));
        let gil = IdealGil::new(PolicyName::Priority, INTERVAL_NS, &scripts).run(1_000 * MS);
        let longest_ns = gil.longest_wait_ns(|wait| wait.thread == 10);
        assert!(longest_ns <= 4 * INTERVAL_NS + MS, "{away_ns}: {longest_ns}");
    }
}

/// The slices are shorter and longer than the switch interval, than a millisecond, and than the
/// time after which `priority` lets a CPU-bound thread go first.
#[test]
fn hogs_hold_in_the_proportion_of_their_slices() {
    let hog_with = |slice_ns| Script { slices_ns: vec![slice_ns], ..script(0, hog()) };
    for policy in [PolicyName::Priority, PolicyName::Deadline] {
        for (short_ns, long_ns) in
            [(500 * US, 50 * MS), (MS, 5 * MS), (0, 20 * MS), (5 * MS, 80 * MS)]
        {
            let scripts = [hog_with(short_ns), hog_with(long_ns)];
            let gil = IdealGil::new(policy, INTERVAL_NS, &scripts).run(10_000 * MS);
            let wanted = long_ns as f64 / scripts[0].longest_slice_ns(INTERVAL_NS) as f64;
            let ratio = gil.held_ns(1) as f64 / gil.held_ns(0) as f64;
            assert!(
                (wanted * 0.95..wanted * 1.05).contains(&ratio),
                "{policy:?}: {ratio} for {wanted}"
            );
            let whole_turns = gil.holds.iter().filter(|hold| hold.to_ns - hold.from_ns == long_ns);
            assert!(whole_turns.count() >= 100, "{policy:?}: turns of {long_ns} are cut short");
        }
    }
}

#[test]
fn deadline_lets_a_thread_that_needs_half_its_share_go_at_once_beside_any_number_of_hogs() {
    for hogs in [1, 4, 8, 30, 100] {
        let away_ns = 50 * US * 12.max(2 * (hogs + 1));
        let light = script(0, vec![Burst { compute_ns: 50 * US, away_ns }]);
        let mut scripts = vec![script(0, hog()); hogs as usize];
        scripts.push(light);
        let gil = IdealGil::new(PolicyName::Deadline, INTERVAL_NS, &scripts).run(30_000 * MS);
        let longest_ns =
            gil.longest_wait_ns(|wait| wait.thread as u64 == hogs && wait.began_ns > 5_000 * MS);
        assert!(longest_ns <= 200 * US, "{hogs} hogs: {longest_ns}");
    }
}
