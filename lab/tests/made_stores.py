"""Stores of telemetry, from made-up ticks that the real encoder and the real recorder took."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headway import _native
from headway.recorder.receive.receiver import Recorder
from headway.recorder.store.store import Store

START = 1_700_000_040.0
TICK = 2
MS = 1e-3
Times = list[tuple[float, int]]


def spread(*times_ms: float, count: int) -> Times:
    """The buckets of `count` requests that take these times in turn."""
    return [(each * MS, count // len(times_ms)) for each in sorted(times_ms)]


def tick(
    second: int,
    pid: int = 100,
    requests: int = 100,
    held: tuple[float, ...] = (3.0,),
    cpu: tuple[float, ...] = (3.0,),
    **fields: Any,
) -> bytes:
    """A second of a process of two threads: each request waits for 2 ms for the GIL, holds it, and
    is away for 1 ms. Times are in milliseconds; `None` leaves a field out."""
    held_s = sum(held) / len(held) * MS
    application = [(each + 3 * MS, count) for each, count in spread(*held, count=requests)]
    told: dict[str, Any] = {
        "hostname": "alpha",
        "process_group": "shop",
        "headway_version": "0.1.0",
        "process_kind": "serve",
        "process_started_stamp": START - 500 + pid,
        "sample_period": 1.0,
        "telemetry_interval": 1.0,
        "gil_mode": "enabled",
        "policy": "interval",
        "switch_interval": 0.005,
        "cpu_cores": 2.0,
        "request_threads_maximum": 2,
        "request_threads_busy_time": [requests * (held_s + 3 * MS) / 2] * 2,
        "request_threads_completed": [requests // 2] * 2,
        "connections_open": 2,
        "connections_accepted": 0,
        "request_count": requests,
        "capacity_utilization": min(1.0, requests * (held_s + 3 * MS) / 2),
        "request_time_histogram": application,
        "application_time_histogram": application,
        "server_time_histogram": spread(0.0, count=requests),
        "queue_time_histogram": spread(0.0, count=requests),
        "output_write_time_histogram": spread(0.0, count=requests),
        "gil_wait_time_histogram": spread(2.0, count=requests),
        "gil_held_time_histogram": spread(*held, count=requests),
        "request_cpu_time_histogram": spread(*cpu, count=requests),
        "gils": [
            {
                "gil_name": "main",
                "gil_wall": 1.0,
                "gil_held": requests * held_s,
                "gil_handoff": 0.0,
                "gil_idle": 1 - requests * held_s,
                "gil_takes": 2 * requests,
                "gil_contended_takes": requests,
                "gil_voluntary_drops": 2 * requests,
                "gil_forced_drops": 0,
                "gil_wait": spread(2.0, count=requests),
                "gil_hold": [(held_s, requests), (0.01 * MS, requests)],
            }
        ],
        **fields,
    }
    said = {name: value for name, value in told.items() if value is not None}
    return _native.telemetry_encode(TICK, pid, second + 1, START + second, said)


def store(path: Path, datagrams: Iterable[bytes]) -> str:
    """Writes the store of a recorder that received them."""
    kept = Store(str(path), clock=lambda: START + 60)
    recorder = Recorder(None, kept, clock=lambda: START + 60)
    recorder.take([(each, None, False) for each in datagrams])
    assert kept.write(), kept.error
    recorder.stop()
    return str(path)
