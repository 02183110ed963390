"""Percentiles from the meter's histograms: the same in the report and in the recorder, each in the
bucket of the exact one, and on average neither too high nor too low."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headway import _native
from headway.meter.snapshot import Snapshot
from headway.recorder.records import histogram
from headway.report.distributions import THREAD_PARTS

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
TICK = 2
NS = 1e9

# Durations in nanoseconds, by shape. Waits cluster just above multiples of the switch interval.
SHAPES: dict[str, Callable[[random.Random], float]] = {
    "uniform": lambda chance: chance.uniform(1e3, 1e7),
    "exponential": lambda chance: chance.expovariate(1 / 3e6),
    "lognormal": lambda chance: chance.lognormvariate(math.log(1e5), 1.5),
    "Pareto": lambda chance: 1e4 * chance.paretovariate(1.1),
    "short": lambda chance: 900 + chance.expovariate(1 / 400),
    "intervals": lambda chance: 5e6 * chance.choice([1, 1, 1, 2, 3]) + chance.expovariate(1 / 6e4),
    "normal": lambda chance: chance.gauss(5.1e6, 2e4),
}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of sorted values that at least `share` of all do not exceed."""
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def upper_bound_ns(ns: int) -> int:
    """The upper bound of a time's bucket: see crates/measure/src/scale.rs."""
    power = ns.bit_length() - 1
    if power < 9:
        return 1 << 9
    if power > 37:
        return 2**64 - 1
    width = 1 << power - 4
    return (ns // width + 1) * width


def in_raw(durations_ns: Sequence[int]) -> dict[str, Any]:
    """A process whose only thread waited for the GIL for these durations."""
    counts = Counter(map(upper_bound_ns, durations_ns))
    waits = {
        "count": len(durations_ns),
        "sum_ns": sum(durations_ns),
        "min_ns": min(durations_ns, default=None),
        "max_ns": max(durations_ns, default=None),
        "buckets": sorted(counts.items()),
    }
    thread = {
        "native_id": 1,
        "name": "x",
        "gil": 0,
        "alive": True,
        "folded": 0,
        "held_ns": 0,
        "forced_waited_ns": 0,
        **dict.fromkeys((f"{part}_ns" for part in THREAD_PARTS), 0),
        "collections": 0,
        "longest_collection_ns": 0,
        "longest_answer_ns": 0,
        "cpu_in_longest_answer_ns": 0,
        "longest_answer_cpu_ns": 0,
        "answer_with_most_cpu_ns": 0,
        "holding_ns": 0,
        "waiting_ns": 0,
        "wait": waits,
        "hold": waits,
    }
    counts_of_thread = ("takes", "contended_takes", "voluntary_drops", "forced_drops")
    thread.update(dict.fromkeys((*counts_of_thread, "forced_waits", "preemptions"), 3))
    return {
        "python": "3.13.0",
        "pid": 1,
        "gil_enabled": True,
        "policy": "interval",
        "switch_interval_us": 5000,
        "wall_ns": 1,
        "gils": [],
        "threads": [thread],
        "parks": None,
        "loops": [],
        "late_loop_ns": 20_000_000,
        "unmeasured_loops": 0,
        "unmeasured_events": 0,
        "unmeasured_gils": 0,
        "children": [],
        "unlisted_children": 0,
    }


def in_report(durations_ns: Sequence[int]) -> dict[str, Any]:
    """The HIST of a report on waits of these durations."""
    wait = Snapshot(in_raw(durations_ns)).to_dict()["threads"][0]["wait"]
    return {key.removesuffix("_s"): value for key, value in wait.items()}


def in_recorder(durations_ns: Sequence[int]) -> dict[str, Any]:
    """The HIST of a datagram that a process sends."""
    spread = [(ns / NS, count) for ns, count in sorted(Counter(durations_ns).items())]
    fields = {"hostname": "alpha", "request_time_histogram": spread}
    datagram = _native.telemetry_encode(TICK, 1, 1, 1e9, fields)
    found: dict[str, Any] = _native.telemetry_parse(datagram)[4]["request_time_histogram"]
    return found


def in_sum(durations_ns: Sequence[int]) -> dict[str, Any]:
    """The same holds for the sum of two processes."""
    found = histogram.total([in_recorder(durations_ns[0::2]), in_recorder(durations_ns[1::2])])
    assert found is not None
    return found


PLACES = {"report": in_report, "recorder": in_recorder, "sum": in_sum}


def samples(shape: str, count: int, seed: int) -> list[int]:
    chance = random.Random(seed)
    return [max(round(SHAPES[shape](chance)), 0) for _ in range(count)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_percentile_is_in_its_bucket_and_is_unbiased(place: str, shape: str) -> None:
    errors: list[float] = []
    for count in (2, 10, 100, 1000):
        for seed in range(10):
            durations_ns = samples(shape, count, seed)
            found = PLACES[place](durations_ns)
            ordered = sorted(durations_ns)
            for name, share in SHARES.items():
                exact_ns = percentile(ordered, share)
                shown_ns = round(found[name] * NS)
                same = upper_bound_ns(round(exact_ns))
                assert shown_ns == same or upper_bound_ns(shown_ns) == same, (count, seed, name)
                assert ordered[0] <= shown_ns <= ordered[-1], (count, seed, name)
                errors.append(shown_ns / exact_ns - 1)
    assert abs(statistics.fmean(errors)) < 0.01


@pytest.mark.parametrize("place", PLACES)
def test_percentiles_do_not_fall(place: str) -> None:
    found = PLACES[place](samples("Pareto", 500, 1))
    shown = [found["min"], *(found[name] for name in SHARES), found["max"]]
    assert shown == sorted(shown)


@pytest.mark.parametrize("place", ["report", "recorder"])
def test_the_least_and_the_longest_are_exact(place: str) -> None:
    for durations_ns in ([5_050_000], [5_050_000] * 100, [1_000, 7_000_001], [400_000_000_000]):
        found = PLACES[place](durations_ns)
        assert found["p50"] == pytest.approx(min(durations_ns) / NS, abs=1e-12)
        assert found["p999"] == pytest.approx(max(durations_ns) / NS, abs=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_where_most_did_not_wait_at_all_the_middle_is_zero(place: str) -> None:
    found = PLACES[place]([0] * 70 + [300] * 2 + [5_000_000] * 20)
    assert found["p50"] == 0
    assert 0.00498 < found["p90"] <= 0.005


def test_the_report_and_the_recorder_agree() -> None:
    for shape in SHAPES:
        durations_ns = samples(shape, 300, 7)
        report, *others = [make(durations_ns) for make in PLACES.values()]
        for name in SHARES:
            for other in others:
                assert other[name] == pytest.approx(report[name], abs=2e-9), (shape, name)


def test_a_stretch_whose_longest_wait_is_not_known_has_percentiles_too() -> None:
    """The difference of two snapshots keeps an extreme only where it is one of the whole."""
    before, after = in_raw([1_000_000, 9_000_000]), in_raw([1_000_000, 9_000_000, 5_050_000])
    stretch = (Snapshot(after) - Snapshot(before)).to_dict()["threads"][0]["wait"]
    assert (stretch["count"], stretch["min_s"], stretch["max_s"]) == (1, None, None)
    # The middle of the bucket from 4.98 to 5.24 ms.
    assert stretch["p50_s"] == pytest.approx(5.111808e-3)
