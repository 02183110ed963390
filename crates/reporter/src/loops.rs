//! The iterations of the process's event loops since the last tick, all loops added up.

use headway_gil::LoopTotals;
use headway_telemetry::datagram::Writer;
use headway_telemetry::id;

type Figure = fn(&LoopTotals) -> u64;

/// Writes what has been added to `reported`. A process without event loops writes nothing.
pub fn write(out: &mut Writer, reported: Option<&LoopTotals>, latest: Option<&LoopTotals>) {
    let Some(latest) = latest else { return };
    let nothing = LoopTotals::default();
    let reported = reported.unwrap_or(&nothing);
    let since = |of: Figure| of(latest).saturating_sub(of(reported));
    let times: [(u16, Figure); 8] = [
        (id::LOOP_POLLED, |loops| loops.polled_ns),
        (id::LOOP_COMPUTED, |loops| loops.computed_ns),
        (id::LOOP_WAITED, |loops| loops.waited_ns),
        (id::LOOP_BLOCKED, |loops| loops.blocked_ns),
        (id::LOOP_LATE_RAN_BLOCKED, |loops| loops.late_ran_blocked_ns),
        (id::LOOP_LATE_COMPUTED, |loops| loops.late_computed_ns),
        (id::LOOP_LATE_WAITED, |loops| loops.late_waited_ns),
        (id::LOOP_LATE_BLOCKED, |loops| loops.late_blocked_ns),
    ];
    // An empty histogram is reported too: it shows that there is a loop.
    out.histogram(id::LOOP_ITERATION_HISTOGRAM, &latest.duration.since(&reported.duration));
    for (id, of) in times {
        out.seconds_of_ns(id, since(of));
    }
    out.count(id::LOOP_LATE, since(|loops| loops.late));
    out.seconds_of_ns(id::LOOP_LATE_LIMIT, latest.late_limit_ns);
    if latest.iterating_ns >= latest.late_limit_ns {
        out.seconds_of_ns(id::LOOP_ITERATING, latest.iterating_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headway_measure::Histogram;
    use headway_telemetry::datagram::{Datagram, Header};
    use headway_telemetry::{Value, histogram};

    fn of(durations_ns: &[u64], late_blocked_ns: u64, iterating_ns: u64) -> LoopTotals {
        let mut duration = Histogram::default();
        durations_ns.iter().for_each(|ns| duration.record(*ns));
        let late_limit_ns = 20_000_000;
        LoopTotals {
            late_limit_ns,
            late_blocked_ns,
            iterating_ns,
            blocked_ns: late_blocked_ns,
            late: durations_ns.iter().filter(|ns| **ns >= late_limit_ns).count() as u64,
            duration,
            ..LoopTotals::default()
        }
    }

    fn written(reported: Option<&LoopTotals>, latest: Option<&LoopTotals>) -> Vec<u8> {
        let mut out = Writer::default();
        out.begin(&Header { kind: 2, pid: 1, seq: 1, stamp_s: 0.0 });
        write(&mut out, reported, latest);
        out.bytes().to_vec()
    }

    #[test]
    fn a_tick_has_what_was_added() {
        let before = of(&[1_000, 30_000_000], 30_000_000, 0);
        let now = of(&[1_000, 30_000_000, 2_000, 50_000_000], 80_000_000, 25_000_000);
        let bytes = written(Some(&before), Some(&now));
        let tick = Datagram::parse(&bytes).unwrap();
        let Some(Value::Histogram(code)) = tick.get(id::LOOP_ITERATION_HISTOGRAM) else { panic!() };
        let found = histogram::decode(code).unwrap();
        assert_eq!((found.count(), found.sum_ns), (2, 50_002_000));
        assert_eq!(tick.get(id::LOOP_LATE), Some(Value::Count(1)));
        for (id, ns) in [
            (id::LOOP_LATE_BLOCKED, 50_000_000),
            (id::LOOP_BLOCKED, 50_000_000),
            (id::LOOP_COMPUTED, 0),
            (id::LOOP_ITERATING, 25_000_000),
            (id::LOOP_LATE_LIMIT, 20_000_000),
        ] {
            assert_eq!(tick.get(id), Some(Value::Seconds(ns)), "{id}");
        }
    }

    #[test]
    fn a_process_without_loops_writes_nothing_and_one_that_waits_no_lateness() {
        assert_eq!(Datagram::parse(&written(None, None)).unwrap().fields().count(), 0);
        let idle = of(&[1_000], 0, 0);
        let bytes = written(Some(&idle), Some(&idle));
        let tick = Datagram::parse(&bytes).unwrap();
        assert_eq!(tick.get(id::LOOP_ITERATION_HISTOGRAM), Some(Value::Histogram(&[])));
        assert_eq!(tick.get(id::LOOP_LATE), Some(Value::Count(0)));
        assert_eq!(tick.get(id::LOOP_ITERATING), None);
    }
}
