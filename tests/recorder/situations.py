"""Ticks of processes in known situations, as datagrams, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from headway import _native
from headway.recorder.diagnosis import judge
from headway.recorder.diagnosis.verdict import NAMES, SEVERITIES
from headway.recorder.records.configuration import configure
from headway.recorder.records.summary import summarize

REQUEST_METRICS = 2
MS = 1e-3
# A process of Headway with 5 threads that had little to do for ten seconds.
QUIET = {
    "headway_version": "0.1.0",
    "mod_wsgi_version": "headway 0.1.0",
    "python_version": "3.13.0",
    "process_group": "shop",
    "process_kind": "serve",
    "gil_mode": "enabled",
    "policy": "interval",
    "switch_interval": 5 * MS,
    "cpu_cores": 8.0,
    "sample_period": 10.0,
    "request_threads_maximum": 5,
    "capacity_utilization": 0.01,
    "cpu_user_utilization": 0.01,
    "cpu_system_utilization": 0.0,
    "memory_rss": 50_000_000,
    "request_count": 0,
}


def same(seconds: float, count: int) -> list[tuple[float, int]]:
    """A histogram of `count` times the same duration."""
    return [(seconds, count)]


def gil(held: float = 0.0, handoff: float = 0.0, wall: float = 10.0, **more: Any) -> dict[str, Any]:
    """A GIL's row."""
    return {
        "gil_name": "main",
        "gil_wall": wall,
        "gil_held": held,
        "gil_handoff": handoff,
        "gil_idle": wall - held - handoff,
        "gil_switch_interval": 5 * MS,
        **more,
    }


def tick(pid: int = 1, stamp: float = 1000.0, seq: int = 1, **fields: Any) -> bytes:
    """A datagram of QUIET's process; `fields` go over QUIET's, `None` leaves one out."""
    told = {name: value for name, value in {**QUIET, **fields}.items() if value is not None}
    return _native.telemetry_encode(REQUEST_METRICS, pid, seq, stamp, told)


def record(*datagrams: bytes) -> dict[str, Any]:
    """The merged record of ticks, read."""
    merged = _native.telemetry_merge([_native.telemetry_record(each) for each in datagrams])
    return _native.telemetry_read(merged)


def verdict_on(
    *datagrams: bytes, seconds: float = 10.0, holds: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    """The verdict on what these ticks tell; its form is checked on the way."""
    found = record(*datagrams)
    summary = summarize(found, seconds)
    verdict = judge(found, summary, configure(found, summary["processes"]), holds)
    assert verdict["name"] in NAMES
    assert verdict["severity"] in SEVERITIES
    assert set(verdict) == {"name", "severity", "title", "text", "evidence", "advice", "sample"}
    for each in verdict["evidence"]:
        assert set(each) == {"text", "value", "unit", "limit"}
    for each in verdict["advice"]:
        assert set(each) == {"try", "expect"}
    return verdict


def requests(
    count: int,
    application: float,
    wait: float = 0.0,
    held: float = 0.0,
    cpu: float = 0.0,
    queue: float = 0.0,
) -> dict[str, Any]:
    """The fields of `count` requests that are all alike."""
    return {
        "request_count": count,
        "status_2xx_total": count,
        "application_time_histogram": same(application, count),
        "request_time_histogram": same(application + queue, count),
        "queue_time_histogram": same(queue, count),
        "gil_wait_time_histogram": same(wait, count),
        "gil_held_time_histogram": same(held, count),
        "request_cpu_time_histogram": same(cpu, count),
    }
