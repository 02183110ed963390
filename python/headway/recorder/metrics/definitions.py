"""The metrics that the recorder exports for Prometheus and OTLP: names, units, and the source of
each value.

Counters and histograms are sums since the first report of a process group (`totals`), so they only
grow, whichever processes end; gauges refer to the last seconds. The number of label values is
bounded: a host, a process group, and fixed words. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from headway.recorder.diagnosis.verdict import NAMES as VERDICTS
from headway.recorder.diagnosis.verdict import Measured
from headway.recorder.records import histogram
from headway.recorder.records.health import Health
from headway.recorder.records.summary import LOOP_ITERATION, PARKED, Record, distribution
from headway.report.event_loops import PARTS

GROUP_LABELS = ("host", "group")
COUNTER, GAUGE, HISTOGRAM, STATES = "counter", "gauge", "histogram", "stateset"
# The values of the labels other than host and group, and the value of the sample.
Values = Iterable[tuple[tuple[str, ...], float]]
Count = Literal["received", "malformed", "refused", "sequence_gaps", "unsent", "records_lost"]


class Metric(NamedTuple):
    """A metric. `name` is OpenMetrics' name of the family; a counter's sample has the suffix
    "_total"."""

    name: str
    kind: str
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def sample_name(self) -> str:
        return f"{self.name}_total" if self.kind == COUNTER else self.name

    @property
    def otlp_name(self) -> str:
        """The name in OTLP, which a receiver translates to `sample_name` for Prometheus."""
        return self.name.removesuffix(f"_{self.unit}").replace("_", ".", 1)


class Moment(NamedTuple):
    """The last seconds of a process group: the number of living processes, and the result of
    `query.measuring`; `None` if there are none."""

    alive: int
    measured: Measured | None


class Reading(NamedTuple):
    """A metric, and the function that reads its values from a source."""

    metric: Metric
    read: Callable[[Any], Values]


class Spread(NamedTuple):
    """A histogram, the distribution of a record that it is made of, and its bounds in seconds."""

    metric: Metric
    source: str
    bounds: tuple[float, ...]


def _field(name: str) -> Callable[[Record], Values]:
    return lambda record: [((), record.get(name, 0))]


def _fields(names: dict[str, str]) -> Callable[[Record], Values]:
    """Reads one field for each value of the only label."""
    return lambda record: [((label,), record.get(name, 0)) for label, name in names.items()]


def _rows(table: str, names: dict[str, str]) -> Callable[[Record], Values]:
    """Sums fields over a table's rows. Yields nothing for an empty table, such as that of the GILs
    with mod_wsgi."""

    def read(record: Record) -> Values:
        rows = record.get(table, ())
        for label, name in names.items() if rows else ():
            yield (label,) if label else (), sum(row.get(name, 0) for row in rows)

    return read


def _stopped_world(record: Record) -> Values:
    """Sums the waits for stopped worlds. Yields nothing for processes with a GIL."""
    rows = record.get("threads", ()) if PARKED in record else ()
    for state in ("suspended", "stopping") if rows else ():
        yield (state,), sum(row.get(f"thread_{state}", 0.0) for row in rows)


def _of_loops(names: dict[str, str]) -> Callable[[Record], Values]:
    """Reads one field for each value of the label, of processes with event loops."""

    def read(record: Record) -> Values:
        for label, name in names.items() if LOOP_ITERATION in record else ():
            yield (label,) if label else (), record.get(name, 0)

    return read


def _counter(name: str, help_: str, read: Callable[[Any], Values], *labels: str) -> Reading:
    unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")
    return Reading(Metric(f"headway_{name}", COUNTER, help_, unit, labels), read)


def _gauge(name: str, help_: str, read: Callable[[Any], float | None]) -> Reading:
    unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")

    def values(source: Any) -> Values:
        value = read(source)
        return [] if value is None else [((), value)]

    return Reading(Metric(f"headway_{name}", GAUGE, help_, unit), values)


COUNTERS = (
    _counter("requests", "Requests that were answered.", _field("request_count")),
    _counter(
        "responses",
        "Responses by the class of their status.",
        _fields({f"{n}xx": f"status_{n}xx_total" for n in range(1, 6)}),
        "code",
    ),
    _counter(
        "requests_failed",
        "Requests that failed after the status was sent.",
        _field("requests_failed"),
    ),
    _counter("input_bytes", "Request bodies that were read.", _field("input_bytes_total")),
    _counter("output_bytes", "Response bodies that were sent.", _field("output_bytes_total")),
    _counter(
        "connections_accepted", "Connections that were accepted.", _field("connections_accepted")
    ),
    _counter(
        "process_time_seconds",
        "Time that processes have told of, over all of them.",
        _field("process_seconds"),
    ),
    _counter(
        "cpu_time_seconds",
        "CPU time of the processes.",
        _fields({"user": "cpu_user_seconds", "system": "cpu_system_seconds"}),
        "mode",
    ),
    _counter("thread_time_seconds", "Time of all worker threads.", _field("thread_seconds")),
    _counter(
        "thread_busy_time_seconds", "Time of worker threads in requests.", _field("busy_seconds")
    ),
    _counter(
        "gil_time_seconds",
        "Time of all GILs: held, being handed over with somebody waiting, idle.",
        _rows("gils", {state: f"gil_{state}" for state in ("held", "handoff", "idle")}),
        "state",
    ),
    _counter("gil_takes", "Takes of the GIL.", _rows("gils", {"": "gil_takes"})),
    _counter(
        "gil_contended_takes",
        "Takes of the GIL that had to wait for it.",
        _rows("gils", {"": "gil_contended_takes"}),
    ),
    _counter(
        "gil_drop_requests",
        "Requests to drop the GIL, of threads that waited a switch interval.",
        _rows("gils", {"": "gil_drop_requests"}),
    ),
    _counter(
        "gil_drops",
        "Drops of the GIL: voluntary, as for I/O, or forced by a drop request.",
        _rows("gils", {"voluntary": "gil_voluntary_drops", "forced": "gil_forced_drops"}),
        "cause",
    ),
    _counter(
        "gil_preemptions",
        "Preemptions: drops that a scheduling policy asked for.",
        _rows("gils", {"": "gil_preemptions"}),
    ),
    _counter(
        "stopped_world_time_seconds",
        "Time of threads without a GIL: suspended while another stops the world, or stopping it.",
        _stopped_world,
        "state",
    ),
    _counter(
        "loop_time_seconds",
        "Time of event loops: in iterations, with the GIL (computed), waiting for it (waited) and "
        "the rest (blocked); and in waits for events (polled).",
        _of_loops({part: f"loop_{part}" for part in (*PARTS, "polled")}),
        "part",
    ),
    _counter(
        "loop_late_time_seconds",
        "Time of late iterations of event loops, by their parts.",
        _of_loops({part: f"loop_late_{part}" for part in PARTS}),
        "part",
    ),
    _counter(
        "loop_late_iterations",
        "Iterations of event loops that were late: of 20 ms or longer, or what the program says.",
        _of_loops({"": "loop_late"}),
    ),
    _counter(
        "gc_collections",
        "Garbage collections by generation.",
        _rows("gcs", {str(n): f"gc_pauses_generation{n}" for n in range(3)}),
        "generation",
    ),
    _counter(
        "gc_objects_collected",
        "Objects that garbage collections freed.",
        _rows("gcs", {"": "gc_collected_total"}),
    ),
    _counter(
        "gc_objects_uncollectable",
        "Objects that garbage collections could not free.",
        _rows("gcs", {"": "gc_uncollectable_total"}),
    ),
    _counter(
        "cgroup_throttled_time_seconds",
        "Time in which the cgroup's CPU limit stopped threads.",
        _field("cgroup_throttled_time"),
    ),
    _counter("cgroup_periods", "Periods of the cgroup's CPU limit.", _field("cgroup_periods")),
    _counter(
        "cgroup_throttled_periods",
        "Periods in which the cgroup's CPU limit stopped threads.",
        _field("cgroup_throttled_periods"),
    ),
)


def bounds(lowest_power: int, highest_power: int) -> tuple[float, ...]:
    """Bucket bounds in seconds, two per power of two nanoseconds. They are bounds of Headway's own
    scale, so that each bucket of that scale lies within one of these."""
    powers = range(lowest_power, highest_power)
    every = [each for n in powers for each in (1 << n, 3 << n >> 1)]
    return tuple(ns / 1e9 for ns in (*every, 1 << highest_power))


# 131 us to 69 s, 4 us to 8.6 s, and 16 us to 8.6 s.
REQUEST_BOUNDS, GIL_BOUNDS, GC_BOUNDS = bounds(17, 36), bounds(12, 33), bounds(14, 33)


def _spread(name: str, help_: str, source: str, bounds: tuple[float, ...]) -> Spread:
    return Spread(Metric(f"headway_{name}", HISTOGRAM, help_, "seconds"), source, bounds)


HISTOGRAMS = (
    _spread(
        "request_duration_seconds",
        "Response time of a request, from its arrival to the last byte.",
        "response",
        REQUEST_BOUNDS,
    ),
    _spread(
        "request_application_duration_seconds",
        "Time of a request in the application.",
        "application",
        REQUEST_BOUNDS,
    ),
    _spread(
        "request_gil_wait_seconds", "Time a request waited for the GIL.", "gil_wait", GIL_BOUNDS
    ),
    _spread(
        "gil_take_wait_seconds",
        "Wait of one take of the GIL, of those that had to wait.",
        "take_wait",
        GIL_BOUNDS,
    ),
    _spread("gil_hold_seconds", "One hold of the GIL.", "hold", GIL_BOUNDS),
    _spread(
        "parked_seconds",
        "One wait for a lock or an event, of a thread without a GIL.",
        "parked",
        GIL_BOUNDS,
    ),
    _spread(
        "loop_lag_seconds",
        "One iteration of an event loop, in which it does not look for events.",
        "loop_iteration",
        GIL_BOUNDS,
    ),
    _spread("gc_pause_seconds", "One garbage collection.", "gc_pause", GC_BOUNDS),
)


def distribution_of(record: Record, spread: Spread) -> histogram.Histogram | None:
    """The distribution of a histogram: `None` if it is not measured, empty if nothing happened."""
    table = {
        "take_wait": "gils",
        "hold": "gils",
        "parked": PARKED,
        "loop_iteration": LOOP_ITERATION,
        "gc_pause": "gcs",
    }.get(spread.source)
    if table is not None and not record.get(table):
        return None
    return distribution(record, spread.source) or histogram.zeros(0)


def _setting(
    name: Literal["cores", "cpu_limit", "memory_limit", "switch_interval"],
) -> Callable[[Moment], float | None]:
    """Reads a setting; the largest value if the processes of a group differ."""

    def read(moment: Moment) -> float | None:
        found = moment.measured["config"][name] if moment.measured else None
        return max(found) if isinstance(found, list) else found

    return read


def _level(
    name: Literal["threads", "rss", "connections_open"],
) -> Callable[[Moment], float | None]:
    return lambda moment: moment.measured["summary"][name] if moment.measured else None


def _busy(moment: Moment) -> float | None:
    if moment.measured is None:
        return None
    summary = moment.measured["summary"]
    return summary["busy"] * summary["threads"]


def _verdicts(moment: Moment) -> Values:
    if moment.measured is not None:
        holds = moment.measured["verdict"]["name"]
        yield from (((name,), int(name == holds)) for name in VERDICTS)


GAUGES = (
    _gauge("processes", "Processes that are alive.", lambda moment: moment.alive),
    _gauge("threads", "Worker threads.", _level("threads")),
    _gauge(
        "threads_busy",
        "Worker threads in requests, on average of the last seconds.",
        _busy,
    ),
    _gauge("resident_memory_bytes", "Resident memory of the processes.", _level("rss")),
    _gauge("connections_open", "Connections that are open.", _level("connections_open")),
    _gauge("cpu_cores", "Cores that the processes may use.", _setting("cores")),
    _gauge("cpu_limit_cores", "CPU limit of the cgroup.", _setting("cpu_limit")),
    _gauge("memory_limit_bytes", "Memory limit of the cgroup.", _setting("memory_limit")),
    _gauge(
        "switch_interval_seconds",
        "CPython's switch interval.",
        _setting("switch_interval"),
    ),
    Reading(
        Metric(
            "headway_verdict",
            STATES,
            "What the last seconds amount to; see the verdicts in the documentation.",
            labels=("headway_verdict",),
        ),
        _verdicts,
    ),
)


def _count(name: Count) -> Callable[[Health], Values]:
    """Reads a count. Yields nothing if the recorder does not have it."""

    def read(health: Health) -> Values:
        return [((), health[name])] if name in health else []

    return read


def _not_stored(health: Health) -> Values:
    store = health.get("store")
    return [((), store["not_stored"])] if store else []


def _store_up(health: Health) -> float | None:
    store = health.get("store")
    return int(not store["error"]) if store else None


def _size(name: Literal["bytes", "limit", "waiting"]) -> Callable[[Health], float | None]:
    def read(health: Health) -> float | None:
        store = health.get("store")
        return store[name] if store else None

    return read


# The metrics of the recorder itself, which have no labels.
RECORDER_COUNTERS = (
    _counter("recorder_datagrams", "Datagrams that were received.", _count("received")),
    _counter("recorder_malformed", "Datagrams that could not be read.", _count("malformed")),
    _counter(
        "recorder_refused",
        "Datagrams that were refused: too many, of too many processes, or impossible.",
        _count("refused"),
    ),
    _counter(
        "recorder_sequence_gaps", "Datagrams that were lost on the way.", _count("sequence_gaps")
    ),
    _counter(
        "recorder_unsent",
        "Ticks that processes could not send, and made part of later ones.",
        _count("unsent"),
    ),
    _counter(
        "recorder_records_lost",
        "Slow requests, holds and collections that processes had no room for.",
        _count("records_lost"),
    ),
    _counter(
        "recorder_not_stored",
        "Ticks and events that the store could not take.",
        _not_stored,
    ),
)
RECORDER_GAUGES = (
    _gauge(
        "recorder_start_time_seconds",
        "When the recorder was started, in seconds since 1970.",
        lambda health: health.get("started"),
    ),
    _gauge("recorder_store_up", "1 while the store can be written, else 0.", _store_up),
    _gauge("recorder_store_bytes", "Size of the store.", _size("bytes")),
    _gauge("recorder_store_limit_bytes", "How large the store may grow.", _size("limit")),
    _gauge("recorder_store_waiting", "Ticks and events that wait for the store.", _size("waiting")),
)
METRICS = (
    *(each.metric for each in COUNTERS),
    *(each.metric for each in HISTOGRAMS),
    *(each.metric for each in GAUGES),
    *(each.metric for each in RECORDER_COUNTERS),
    *(each.metric for each in RECORDER_GAUGES),
)
