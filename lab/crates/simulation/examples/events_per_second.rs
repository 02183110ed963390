//! Measures the simulation's speed: events per second under each policy, with few threads and with
//! many.
//!
//! `cargo run --release --package headway-simulation --example events_per_second` exits with 1 if
//! the slowest case is below a million. The best of several runs counts, because other load makes a
//! run slower, never faster.

use std::process::ExitCode;
use std::time::Instant;

use headway_simulation::{PolicyName, Scenario, ThreadSetting};

#[path = "../tests/scenario/mod.rs"]
mod scenario;
use scenario::*;

const REQUIRED: f64 = 1e6;
const RUNS: usize = 5;
const ABOUT_EVENTS: f64 = 300_000.0;

fn io() -> ThreadSetting {
    repeats(vec![compute(20 * US), sleep(100 * US), compute(50 * US), system(20 * US)])
}

/// Measures one case. A first run of a second of virtual time determines the length of the others.
fn events_per_second(policy: PolicyName, threads: &[ThreadSetting]) -> f64 {
    let gils = vec![gil(policy, INTERVAL_NS)];
    let second = scenario(machine(8), gils, threads.to_vec(), 1_000 * MS);
    let end_ns = second.end_ns * ABOUT_EVENTS / run(second.clone()).events as f64;
    let longer = Scenario { end_ns: end_ns.ceil(), ..second };
    let rates = (0..RUNS).map(|_| {
        let begin = Instant::now();
        let outcome = run(longer.clone());
        outcome.events as f64 / begin.elapsed().as_secs_f64()
    });
    rates.fold(0.0, f64::max)
}

fn main() -> ExitCode {
    let mut slowest = f64::MAX;
    println!("millions of events a second");
    for (case, hogs, others) in [("2 threads", 1, 1), ("8 threads", 2, 6), ("40 threads", 4, 36)] {
        let threads = [vec![hog(); hogs], vec![io(); others]].concat();
        for policy in PolicyName::ALL {
            let rate = events_per_second(policy, &threads);
            println!("{case:>12}  {:<9} {:6.2}", policy.as_str(), rate / 1e6);
            slowest = slowest.min(rate);
        }
    }
    match slowest >= REQUIRED {
        true => ExitCode::SUCCESS,
        false => {
            eprintln!(
                "events_per_second: {slowest:.0} in the slowest case; {REQUIRED:.0} are wanted"
            );
            ExitCode::FAILURE
        }
    }
}
