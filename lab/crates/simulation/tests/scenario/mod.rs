//! Shorthands for scenarios, and an ordinary machine.
#![allow(dead_code)] // Each test file is a separate crate and uses only a part of this module.

use headway_simulation::{
    Distribution, GilSetting, Machine, Outcome, PolicyName, Scenario, Simulation, Step,
    ThreadSetting,
};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const INTERVAL_NS: u64 = 5 * MS;
/// A limit above the number of moments of any run.
pub const ALL_MOMENTS: usize = 1 << 24;

pub fn always(ns: u64) -> Distribution {
    Distribution::Always(ns as f64)
}

/// A machine like a Linux server: a wakeup takes longer than a thread needs to return for the GIL.
pub fn machine(cores: usize) -> Machine {
    Machine {
        cores,
        wake_idle_ns: always(30 * US),
        switch_ns: always(2 * US),
        call_ns: always(2 * US),
        slice_ns: 2.8e6,
        tick_ns: 4e6,
        hot_ns: 5e5,
        wake_idle_long_ns: None,
        call_long_ns: None,
        long_idle_ns: 1e15,
        cold_ns: always(0),
        stolen_every_ns: 1e15,
        stolen_ns: always(0),
        timer_slack_ns: 50e3,
        check_ns: always(US),
        take_ns: always(100),
        drop_ns: always(100),
        contended_ns: always(0),
        answer_ns: None,
        spin_ns: 20e3,
    }
}

/// A machine on which all costs are zero.
pub fn ideal(cores: usize) -> Machine {
    Machine {
        wake_idle_ns: always(0),
        switch_ns: always(0),
        call_ns: always(0),
        timer_slack_ns: 0.0,
        check_ns: always(0),
        take_ns: always(0),
        drop_ns: always(0),
        spin_ns: 0.0,
        ..machine(cores)
    }
}

pub fn gil(policy: PolicyName, interval_ns: u64) -> GilSetting {
    GilSetting { policy, switch_interval_ns: interval_ns as f64 }
}

pub fn compute(ns: u64) -> Step {
    Step::Compute(always(ns))
}

pub fn call(ns: u64) -> Step {
    Step::Call(always(ns))
}

pub fn sleep(ns: u64) -> Step {
    Step::Sleep(always(ns))
}

pub fn system(ns: u64) -> Step {
    Step::System(always(ns))
}

/// A thread that repeats `script` on the first GIL, on any core.
pub fn repeats(script: Vec<Step>) -> ThreadSetting {
    ThreadSetting {
        name: String::new(),
        script,
        gil: Some(0),
        once: false,
        starts_ns: 0.0,
        cores: Vec::new(),
    }
}

pub fn does_once(script: Vec<Step>) -> ThreadSetting {
    ThreadSetting { once: true, ..repeats(script) }
}

/// A thread that only computes.
pub fn hog() -> ThreadSetting {
    repeats(vec![compute(60_000 * MS)])
}

pub fn scenario(
    machine: Machine,
    gils: Vec<GilSetting>,
    threads: Vec<ThreadSetting>,
    end_ns: u64,
) -> Scenario {
    Scenario {
        machine,
        gils,
        threads,
        end_ns: end_ns as f64,
        begin_ns: 0.0,
        seed: 1,
        timeline_events: 0,
    }
}

pub fn run(scenario: Scenario) -> Outcome {
    Simulation::new(scenario).expect("the scenario is valid").run()
}

/// Runs threads of one GIL until `end_ns`.
pub fn run_under(
    policy: PolicyName,
    machine: Machine,
    threads: Vec<ThreadSetting>,
    end_ns: u64,
) -> Outcome {
    run(scenario(machine, vec![gil(policy, INTERVAL_NS)], threads, end_ns))
}
