"""Summarizes a record in the figures that people compare: SUMMARY, for the dashboard, `top`,
verdicts and tables.

A *record* is the dict that `_native.telemetry_read` returns for data merged over processes and time
(crates/telemetry, `fields`). Counts are sums, levels such as memory are sums of level times
seconds, and `process_seconds` is the sum of the reported seconds of all processes. Pure: does not
depend on where records come from.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, cast

from headway.recorder.records import histogram
from headway.recorder.records.histogram import Quantiles

Record = dict[str, Any]

PerRequest = Literal[
    "response",
    "application",
    "queue",
    "server",
    "daemon",
    "input_read",
    "output_write",
    "gil_wait",
    "gil_held",
    "cpu_per_request",
]
# The distributions over requests: the name in SUMMARY and the name in the record.
PER_REQUEST: dict[PerRequest, str] = {
    "response": "request_time_histogram",
    "application": "application_time_histogram",
    "queue": "queue_time_histogram",
    "server": "server_time_histogram",
    "daemon": "daemon_time_histogram",
    "input_read": "input_read_time_histogram",
    "output_write": "output_write_time_histogram",
    "gil_wait": "gil_wait_time_histogram",
    "gil_held": "gil_held_time_histogram",
    "cpu_per_request": "request_cpu_time_histogram",
}
# The distributions over takes of the GIL: the name in SUMMARY and the key in the rows of GILs.
PER_TAKE = {"take_wait": "gil_wait", "hold": "gil_hold"}
PARKED = "parked_time_histogram"
# The durations of the iterations of event loops, all loops of a process together.
LOOP_ITERATION = "loop_iteration_histogram"
METRICS = (*PER_REQUEST, *PER_TAKE, "parked", "loop_iteration", "gc_pause")
STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


class GilUse(TypedDict):
    """The use of all GILs: shares of their lifetimes, and events per second."""

    held: float
    handoff: float
    idle: float
    takes: float
    contended_takes: float
    forced_drops: float
    preemptions: float


class Collections(TypedDict):
    """Garbage collection: pauses per second, their share of the processes' time, their lengths."""

    pauses: float
    share: float
    pause: Quantiles | None


class LoopUse(TypedDict):
    """The event loops of all processes. Iterations are per second; the others are shares of the
    loops' time, in iterations and in waits for events."""

    iterations: float
    late: float  #: Late iterations per second.
    busy: float  #: In iterations.
    computed: float  #: In iterations, with the GIL.
    waited: float  #: In iterations, waiting for the GIL.
    blocked: float  #: In iterations, the rest.
    late_computed: float  #: In late iterations, with the GIL.
    late_waited: float  #: In late iterations, waiting for the GIL.
    late_blocked: float  #: In late iterations, the rest.
    late_limit: float  #: From which duration on an iteration is late, in seconds.
    iterating: float  #: The longest iteration that has not ended, in seconds; 0 without one.


class Summary(TypedDict):
    """SUMMARY. Times are in seconds, memory in bytes, CPU in cores; rates are per second, `rpm` per
    minute. A distribution is None if nothing was measured."""

    period: float
    processes: float
    requests: int
    rps: float
    rpm: float
    errors_5xx: int
    errors_4xx: int
    failed: int
    status: dict[str, int]
    response: Quantiles | None
    application: Quantiles | None
    queue: Quantiles | None
    server: Quantiles | None
    daemon: Quantiles | None
    input_read: Quantiles | None
    output_write: Quantiles | None
    gil_wait: Quantiles | None
    gil_held: Quantiles | None
    cpu_per_request: Quantiles | None
    take_wait: Quantiles | None
    hold: Quantiles | None
    parked: Quantiles | None
    loop_iteration: Quantiles | None
    gil: GilUse | None
    loops: LoopUse | None
    cpu: float
    cpu_user: float
    cpu_system: float
    cpu_per_process: float
    rss: float
    rss_per_process: float
    busy: float
    threads: float
    input_bytes: float
    output_bytes: float
    connections_open: float
    throttled: float
    gc: Collections | None
    exact: bool


def summarize(record: Record, seconds: float, processes: float | None = None) -> Summary:
    """SUMMARY of `record`, for a range of `seconds`.

    `processes` is the average number of living processes, if it is known from elsewhere. Ticks do
    not end exactly with ranges. With this number, rates refer to the time that the ticks cover, so
    that one tick more or less in a short range does not change them.
    """
    process_seconds = float(record.get("process_seconds", 0.0))
    if not processes:
        processes = _share(process_seconds, seconds)
    period = _share(process_seconds, processes)
    requests = int(record.get("request_count", 0))
    cpu_user = _share(record.get("cpu_user_seconds", 0.0), period)
    cpu_system = _share(record.get("cpu_system_seconds", 0.0), period)
    rss = _share(record.get("rss_byte_seconds", 0.0), period)
    thread_seconds = record.get("thread_seconds", 0.0)
    status = {name: int(record.get(f"status_{name}_total", 0)) for name in STATUS_CLASSES}

    def per_request(name: PerRequest) -> Quantiles | None:
        return histogram.quantiles(record.get(PER_REQUEST[name]))

    return {
        "period": period,
        "processes": processes,
        "requests": requests,
        "rps": _share(requests, period),
        "rpm": 60 * _share(requests, period),
        "errors_5xx": status["5xx"],
        "errors_4xx": status["4xx"],
        "failed": int(record.get("requests_failed", 0)),
        "status": status,
        "response": per_request("response"),
        "application": per_request("application"),
        "queue": per_request("queue"),
        "server": per_request("server"),
        "daemon": per_request("daemon"),
        "input_read": per_request("input_read"),
        "output_write": per_request("output_write"),
        "gil_wait": per_request("gil_wait"),
        "gil_held": per_request("gil_held"),
        "cpu_per_request": per_request("cpu_per_request"),
        "take_wait": histogram.quantiles(distribution(record, "take_wait")),
        "hold": histogram.quantiles(distribution(record, "hold")),
        "parked": histogram.quantiles(distribution(record, "parked")),
        "loop_iteration": histogram.quantiles(distribution(record, "loop_iteration")),
        "gil": _gil(record, period),
        "loops": _loops(record, period),
        "cpu": cpu_user + cpu_system,
        "cpu_user": cpu_user,
        "cpu_system": cpu_system,
        "cpu_per_process": _share(cpu_user + cpu_system, processes),
        "rss": rss,
        "rss_per_process": _share(rss, processes),
        "busy": _share(record.get("busy_seconds", 0.0), thread_seconds),
        "threads": _share(thread_seconds, period),
        "input_bytes": _share(record.get("input_bytes_total", 0), period),
        "output_bytes": _share(record.get("output_bytes_total", 0), period),
        "connections_open": _share(record.get("connection_seconds", 0.0), period),
        "throttled": _share(
            record.get("cgroup_throttled_periods", 0), record.get("cgroup_periods", 0)
        ),
        "gc": _gc(record, period, process_seconds),
        "exact": is_exact(record),
    }


# Up to this multiple of an interval, a range has one tick of a process or two.
FEW_INTERVALS = 1.5


def count_processes(record: Record, seconds: float, heard: int | None = None) -> float:
    """The average number of processes that reported in a range of `seconds`. `heard` is the number
    of different processes, if it is known.

    One tick more or less does not change it: it is a whole number if it differs from that by one
    interval of each process at most.
    """
    reported = _share(record.get("process_seconds", 0.0), seconds)
    interval_s = max(values(record, "telemetry_interval", 1.0))
    if heard is not None and (reported > heard or seconds <= FEW_INTERVALS * interval_s):
        return float(heard)
    whole = max(1, round(reported))
    is_whole = abs(reported - whole) <= 1.01 * whole * _share(interval_s, seconds)
    return float(whole) if reported and is_whole else reported


def distribution(record: Record, metric: str) -> histogram.Histogram | None:
    """The histogram of one of METRICS; `None` if there is none."""
    if metric == "gc_pause":
        return histogram.total(row.get("gc_pause") for row in record.get("gcs", ()))
    if metric in PER_TAKE:
        return histogram.total(row.get(PER_TAKE[metric]) for row in record.get("gils", ()))
    of_process = {"parked": PARKED, "loop_iteration": LOOP_ITERATION}
    field = of_process.get(metric) or PER_REQUEST[cast(PerRequest, metric)]
    found: histogram.Histogram | None = record.get(field)
    return found


def values(record: Record, name: str, *default: Any) -> list[Any]:
    """All values of a setting, or `default` if there is none."""
    found = record.get(name)
    if found is None:
        return list(default)
    return found if isinstance(found, list) else [found]


def is_exact(record: Record) -> bool:
    """Whether the record has Headway's own measurements. mod_wsgi measures only part of the waits
    for the GIL, and in coarse steps."""
    measured = int(record.get("coarse_ticks", 0)) < int(record.get("ticks", 0))
    return measured and "headway_version" in record


def _gil(record: Record, period: float) -> GilUse | None:
    rows = record.get("gils", ())
    wall = sum(row.get("gil_wall", 0.0) for row in rows)
    if wall <= 0 or "enabled" not in values(record, "gil_mode", "enabled"):
        return None

    def of_all(name: str, whole: float) -> float:
        return _share(sum(row.get(name, 0) for row in rows), whole)

    return {
        "held": of_all("gil_held", wall),
        "handoff": of_all("gil_handoff", wall),
        "idle": of_all("gil_idle", wall),
        "takes": of_all("gil_takes", period),
        "contended_takes": of_all("gil_contended_takes", period),
        "forced_drops": of_all("gil_forced_drops", period),
        "preemptions": of_all("gil_preemptions", period),
    }


def loop_seconds(record: Record) -> float:
    """The time of the event loops of a record, in iterations and in waits for events."""
    iterations = distribution(record, "loop_iteration")
    return float(record.get("loop_polled", 0.0)) + (iterations["sum"] if iterations else 0.0)


def _loops(record: Record, period: float) -> LoopUse | None:
    if LOOP_ITERATION not in record:
        return None
    iterations, time = distribution(record, "loop_iteration"), loop_seconds(record)

    def of_time(name: str) -> float:
        return _share(record.get(f"loop_{name}", 0.0), time)

    return {
        "iterations": _share(iterations["count"] if iterations else 0, period),
        "late": _share(record.get("loop_late", 0), period),
        "busy": _share(iterations["sum"] if iterations else 0.0, time),
        "computed": of_time("computed"),
        "waited": of_time("waited"),
        "blocked": of_time("blocked"),
        "late_computed": of_time("late_computed"),
        "late_waited": of_time("late_waited"),
        "late_blocked": of_time("late_blocked"),
        "late_limit": max(values(record, "loop_late_limit", 0.0)),
        "iterating": float(record.get("loop_iterating", 0.0)),
    }


def _gc(record: Record, period: float, process_seconds: float) -> Collections | None:
    rows = record.get("gcs", ())
    if not rows:
        return None
    pause = distribution(record, "gc_pause")
    pauses = sum(row.get(f"gc_pauses_generation{n}", 0) for row in rows for n in range(3))
    return {
        "pauses": _share(pauses, period),
        "share": _share(pause["sum"] if pause else 0.0, process_seconds),
        "pause": histogram.quantiles(pause),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
