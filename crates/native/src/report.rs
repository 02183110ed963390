//! Snapshots and traces as Python dicts. `headway.gil` turns nanoseconds into the report's seconds.

use headway_gil::{GilRow, LateLineRow, LoopRow, ParkRow, Parks, Snapshot, ThreadRow, Trace};
use headway_measure::Histogram;
use headway_measure::scale::upper_bound_ns;
use headway_python::attached::Attached;
use headway_python::convert::{dict, list, tuple};
use headway_python::fields;
use headway_python::object::{Object, PyResult};

pub fn process_dict<'py>(py: Attached<'py>, snapshot: &Snapshot) -> PyResult<Object<'py>> {
    let parks = snapshot.parks.as_ref().map(|parks| parks_dict(py, parks)).transpose()?;
    let items = fields!(
        snapshot;
        pid,
        parent_pid = snapshot.parent_pid.map(|pid| pid as u64),
        forked_from = snapshot.forked_from.map(|pid| pid as u64),
        command, alive, python, gil_enabled, policy, switch_interval_us, wall_ns,
        gils = list(py, &snapshot.gils, |row| gil_dict(py, row))?,
        threads = list(py, &snapshot.threads, |row| thread_dict(py, row))?,
        parks = parks,
        loops = list(py, &snapshot.loops, |row| loop_dict(py, row))?,
        late_lines = list(py, &snapshot.late_lines, |row| late_line_dict(py, row))?,
        late_loop_ns, unmeasured_loops, unmeasured_events, unmeasured_gils,
        children = list(py, &snapshot.children, |row| process_dict(py, row))?,
        unlisted_children,
    );
    dict(py, items)
}

/// `events` are pairs of unsigned 64-bit words, little-endian: see `headway.trace.events`.
pub fn trace_dict<'py>(py: Attached<'py>, trace: &Trace) -> PyResult<Object<'py>> {
    let events: Vec<u8> =
        trace.events.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    let thread = |(native_id, name): &(u32, String)| tuple(py, &[native_id, name]);
    let gil = |(serial, interpreter, name): &(u32, i64, String)| {
        tuple(py, &[serial, &u64::try_from(*interpreter).ok(), name])
    };
    let items = fields!(
        trace;
        began_ns, ended_ns, lost,
        events = Object::from_bytes(py, &events)?,
        threads = list(py, &trace.threads, thread)?,
        gils = list(py, &trace.gils, gil)?,
    );
    dict(py, items)
}

fn gil_dict<'py>(py: Attached<'py>, row: &GilRow) -> PyResult<Object<'py>> {
    let items = fields!(
        row;
        id, name,
        interpreter = row.interpreter.map(|id| id as u64),
        alive, folded, held_at_open, held_now, wall_ns, held_ns, handoff_ns, idle_ns, takes,
        contended_takes, voluntary_drops, forced_drops, drop_requests, preemptions,
        longest_io_bound_wait_ns, longest_cpu_bound_wait_ns, anomalies,
    );
    dict(py, items)
}

fn thread_dict<'py>(py: Attached<'py>, row: &ThreadRow) -> PyResult<Object<'py>> {
    let items = fields!(
        row;
        gil,
        native_id = row.native_id.map(u64::from),
        name, alive, folded, held_ns, takes, contended_takes, voluntary_drops, forced_drops,
        preemptions, forced_waits, forced_waited_ns, longest_answer_ns, cpu_in_longest_answer_ns,
        longest_answer_cpu_ns, answer_with_most_cpu_ns, waited_preventable_ns, waited_unanswered_ns,
        waited_off_core_ns, waited_collection_ns, collections, collected_ns, longest_collection_ns,
        holding_ns, waiting_ns,
        wait = histogram_dict(py, &row.wait)?,
        hold = histogram_dict(py, &row.hold)?,
    );
    dict(py, items)
}

fn parks_dict<'py>(py: Attached<'py>, parks: &Parks) -> PyResult<Object<'py>> {
    let items = fields!(
        parks;
        cpu_ns,
        threads = list(py, &parks.threads, |row| park_dict(py, row))?,
    );
    dict(py, items)
}

fn park_dict<'py>(py: Attached<'py>, row: &ParkRow) -> PyResult<Object<'py>> {
    let items = fields!(
        row;
        native_id = row.native_id.map(u64::from),
        name, alive, folded, stopping, stopping_ns,
        parked = histogram_dict(py, &row.parked)?,
        suspended = histogram_dict(py, &row.suspended)?,
    );
    dict(py, items)
}

fn loop_dict<'py>(py: Attached<'py>, row: &LoopRow) -> PyResult<Object<'py>> {
    let items = fields!(
        row;
        serial,
        native_id = row.native_id.map(u64::from),
        name, alive, folded, polled_ns, iterating_ns, ran_blocked_ns, core_waited_ns,
        half_squares_us2, late, late_computed_ns, late_waited_ns, late_blocked_ns,
        late_ran_blocked_ns,
        duration = histogram_dict(py, &row.duration)?,
        computed = histogram_dict(py, &row.computed)?,
        waited = histogram_dict(py, &row.waited)?,
        blocked = histogram_dict(py, &row.blocked)?,
    );
    dict(py, items)
}

fn late_line_dict<'py>(py: Attached<'py>, row: &LateLineRow) -> PyResult<Object<'py>> {
    let items =
        fields!(row; serial, part, function, file, line, callback, holder, late_ns, readings);
    dict(py, items)
}

pub fn histogram_dict<'py>(py: Attached<'py>, histogram: &Histogram) -> PyResult<Object<'py>> {
    let recorded = |ns: u64| (!histogram.is_empty()).then_some(ns);
    let bucket =
        |(bucket, count): &(u16, u64)| tuple(py, &[&upper_bound_ns(usize::from(*bucket)), count]);
    let items = fields!(
        histogram;
        count = histogram.count(),
        sum_ns,
        min_ns = recorded(histogram.min_ns),
        max_ns = recorded(histogram.max_ns),
        buckets = list(py, &histogram.counts, bucket)?,
    );
    dict(py, items)
}
