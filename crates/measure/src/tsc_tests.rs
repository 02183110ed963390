use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A counter and a clock in virtual time.
struct Machine {
    /// The counter is this number of ticks ahead of its start.
    offset_ticks: u64,
    real_ns: u64,
    clock_ns: f64,
    /// Ticks for each nanosecond of real time.
    frequency: f64,
    /// Nanoseconds of the clock for each one of real time.
    slew: f64,
    /// How long it takes to read the clock.
    sample_ns: u64,
}

impl Machine {
    fn new(frequency: f64) -> Self {
        Self {
            offset_ticks: 1 << 40,
            real_ns: 0,
            clock_ns: 5e12,
            frequency,
            slew: 1.0,
            sample_ns: 20,
        }
    }

    fn pass(&mut self, ns: u64) {
        self.real_ns += ns;
        self.clock_ns += ns as f64 * self.slew;
    }

    fn ticks(&self) -> u64 {
        self.offset_ticks.wrapping_add((self.real_ns as f64 * self.frequency) as u64)
    }

    fn sample(&mut self) -> Sample {
        let before_ticks = self.ticks();
        self.pass(self.sample_ns / 2);
        let now_ns = self.clock_ns as u64;
        self.pass(self.sample_ns - self.sample_ns / 2);
        Sample { before_ticks, now_ns, after_ticks: self.ticks() }
    }

    /// An event. Returns how far its time is from the clock.
    fn event(&mut self, conversion: &mut Conversion) -> i64 {
        let (reading, clock_ns) = (Reading(self.ticks()), self.clock_ns as u64);
        let ticks = reading.0.wrapping_sub(conversion.anchor_ticks);
        let ns = match ticks < conversion.limit_ticks {
            true => conversion.anchor_ns + conversion.ticks_to_ns(ticks),
            false if conversion.has_given_up() => clock_ns,
            false => conversion.anchor_by(reading, &self.sample()),
        };
        ns as i64 - clock_ns as i64
    }

    /// An event each `every_ns`, for `for_ns`. Returns the least and the greatest error.
    fn run(
        &mut self,
        conversion: &mut Conversion,
        every_ns: u64,
        for_ns: u64,
    ) -> RangeInclusive<i64> {
        let errors: Vec<_> = (0..for_ns / every_ns)
            .map(|_| {
                self.pass(every_ns);
                self.event(conversion)
            })
            .collect();
        *errors.iter().min().unwrap()..=*errors.iter().max().unwrap()
    }
}

fn within(errors: &RangeInclusive<i64>, bound_ns: i64) -> bool {
    -bound_ns <= *errors.start() && *errors.end() <= bound_ns
}

#[test]
fn counters_of_any_frequency_give_the_time_of_the_clock() {
    for frequency in [0.1, 0.999, 2.0, 2.596, 4.7, 15.0] {
        let mut machine = Machine::new(frequency);
        let mut conversion = Conversion::new();
        for every_ns in [100, 3 * US, 250 * US, 300 * US, 50 * MS, 3 * S] {
            let errors = machine.run(&mut conversion, every_ns, (every_ns * 40).max(40 * MS));
            assert!(within(&errors, 50), "{frequency} GHz, each {every_ns} ns: {errors:?}");
        }
        assert_ne!(conversion.limit_ticks, 0, "{frequency} GHz");
        assert_eq!(conversion.disagreements, 0, "{frequency} GHz");
    }
}

#[test]
fn most_events_do_not_read_the_clock() {
    let mut machine = Machine::new(2.0);
    let mut conversion = Conversion::new();
    machine.run(&mut conversion, US, MS);
    let (mut anchors, mut last) = (0, conversion.anchor_ns);
    for _ in 0..100_000 {
        machine.pass(US);
        machine.event(&mut conversion);
        anchors += u64::from(last != conversion.anchor_ns);
        last = conversion.anchor_ns;
    }
    assert!((380..=384).contains(&anchors), "{anchors} in 100 ms");
}

/// The clock starts after the counter: at the start of a machine, or of a time namespace.
#[test]
fn a_clock_that_has_just_started_is_no_reason_for_a_wrong_rate() {
    let mut machine = Machine::new(3.0);
    machine.offset_ticks = 5 * 3 * S;
    machine.clock_ns = 1.9e9;
    let mut conversion = Conversion::new();
    let errors = machine.run(&mut conversion, US, 100 * MS);
    assert!(within(&errors, 50), "{errors:?}");
    assert_eq!(conversion.disagreements, 0);
}

#[test]
fn a_slewed_clock_is_followed() {
    for (slew, bound_ns) in [(1.0005, 200), (0.9995, 200), (1.1, 27_000), (0.9, 27_000)] {
        let mut machine = Machine::new(2.4);
        let mut conversion = Conversion::new();
        machine.run(&mut conversion, US, 100 * MS);
        machine.slew = slew;
        let errors = machine.run(&mut conversion, US, 40 * MS);
        assert!(within(&errors, bound_ns), "{slew}: {errors:?}");
        let errors = machine.run(&mut conversion, US, 100 * MS);
        assert!(within(&errors, 50), "{slew}, after 40 ms: {errors:?}");
        assert_eq!(conversion.disagreements, 0);
    }
}

#[test]
fn a_counter_that_jumps_costs_at_most_the_life_of_an_anchor() {
    let back = |ticks: u64, by: u64| ticks.wrapping_sub(by);
    let jumps: [&dyn Fn(u64) -> u64; 5] = [
        &|ticks| back(ticks, 10_000_000_000),
        &|ticks| back(ticks, 200_000),
        &|_| 0,
        &|ticks| ticks + 300_000,
        &|ticks| ticks + (1 << 62),
    ];
    for (index, jump) in jumps.iter().enumerate() {
        let mut machine = Machine::new(3.0);
        let mut conversion = Conversion::new();
        machine.run(&mut conversion, US, 100 * MS);
        machine.offset_ticks =
            jump(machine.ticks()).wrapping_sub(machine.ticks()).wrapping_add(machine.offset_ticks);
        let errors = machine.run(&mut conversion, US, MS);
        assert!(within(&errors, ANCHOR_NS as i64), "jump {index}: {errors:?}");
        let errors = machine.run(&mut conversion, US, 100 * MS);
        assert!(within(&errors, 50), "jump {index}, later: {errors:?}");
        assert_eq!(conversion.disagreements, 1, "jump {index}");
    }
}

#[test]
fn a_clock_that_stood_still_while_the_counter_ran_is_noticed() {
    let mut machine = Machine::new(3.0);
    let mut conversion = Conversion::new();
    machine.run(&mut conversion, US, 100 * MS);
    // The machine was suspended.
    machine.offset_ticks += 3 * 3_600 * S;
    let errors = machine.run(&mut conversion, US, 100 * MS);
    assert!(within(&errors, 50), "{errors:?}");
    assert_eq!(conversion.disagreements, 1);
}

#[test]
fn a_counter_that_is_no_clock_is_not_used_any_more() {
    let mut machine = Machine::new(3.0);
    let mut conversion = Conversion::new();
    for _ in 0..100 {
        machine.run(&mut conversion, US, 10 * MS);
        machine.offset_ticks += 400_000;
    }
    assert_eq!(conversion.disagreements, MOST_DISAGREEMENTS);
    assert_eq!(conversion.limit_ticks, 0);
}

#[test]
fn a_clock_that_is_slow_to_read_is_not_extended() {
    let mut machine = Machine::new(3.0);
    machine.sample_ns = 2 * US;
    let mut conversion = Conversion::new();
    let errors = machine.run(&mut conversion, 10 * US, 100 * MS);
    // The time of the clock, read after the event.
    assert!(within(&errors, 2 * US as i64), "{errors:?}");
    assert_eq!(conversion.limit_ticks, 0);
}

#[test]
fn a_thread_that_loses_its_core_in_a_sample_keeps_the_anchor() {
    let mut machine = Machine::new(3.0);
    let mut conversion = Conversion::new();
    machine.run(&mut conversion, US, 100 * MS);
    machine.sample_ns = 4 * MS;
    machine.pass(MS);
    let anchor_ns = conversion.anchor_ns;
    machine.event(&mut conversion);
    assert_eq!(conversion.anchor_ns, anchor_ns);
    machine.sample_ns = 20;
    let errors = machine.run(&mut conversion, US, 100 * MS);
    assert!(within(&errors, 50), "{errors:?}");
}

/// Three threads convert readings, each with a conversion of its own. Returns the number of
/// readings and their greatest distance from the clock in nanoseconds.
fn compare_with_the_clock(duration: Duration, pause: Duration) -> (u64, u64) {
    use_if_reliable();
    let compare = || {
        let mut conversion = Conversion::new();
        let end = Instant::now() + duration;
        let (mut readings, mut greatest_ns) = (0, 0);
        while Instant::now() < end {
            let before_ns = now_ns();
            let ns = conversion.ns(read());
            // A thread that loses its core before the conversion may get the time after that.
            let after_ns = now_ns();
            let distance_ns = before_ns.saturating_sub(ns).max(ns.saturating_sub(after_ns));
            (readings, greatest_ns) = (readings + 1, greatest_ns.max(distance_ns));
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        (readings, greatest_ns)
    };
    std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(compare));
        let of_threads = threads.map(|thread| thread.join().unwrap());
        of_threads.iter().fold((0, 0), |(sum, most), (count, ns)| (sum + count, most.max(*ns)))
    })
}

/// 10 % of slew over the life of an anchor, and the longest sample at 1 GHz.
const BOUND_NS: u64 = 30 * US;

#[test]
fn the_counter_of_this_machine_agrees_with_its_clock() {
    let (readings, greatest_ns) =
        compare_with_the_clock(Duration::from_millis(300), Duration::ZERO);
    assert!(readings > 0);
    assert!(greatest_ns <= BOUND_NS, "{greatest_ns} ns from the clock in {readings} readings");
}

#[test]
#[ignore = "takes an hour: cargo test -p headway-measure -- --ignored --nocapture"]
fn the_counter_of_this_machine_agrees_with_its_clock_for_an_hour() {
    let (readings, greatest_ns) =
        compare_with_the_clock(Duration::from_secs(3_600), Duration::from_micros(100));
    println!("{readings} readings, at most {greatest_ns} ns from the clock");
    assert!(greatest_ns <= BOUND_NS, "{greatest_ns} ns from the clock in {readings} readings");
}
