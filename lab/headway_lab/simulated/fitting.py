"""Derives the requests of a recording: their bursts with the GIL, their times away from it, the way
in which their work ends, and the clients.

Everything is computed from sums and histograms, so it can be repeated with a part of the reports (a
bootstrap). This module does not know simulations; the times include those that the kernel adds.

**Whether work is fixed or ends by the clock** decides the effect of a switch interval. A page that
computes until some time has passed does less work while other threads have the GIL. A page with
fixed work does not. A recording shows the difference where the kernel takes the core from a thread
that holds the GIL. Fixed work then holds the GIL for longer, and its CPU time stays the same. Work
that ends by the clock holds the GIL as long as ever, and its CPU time shrinks. So if the clock ends
the work, CPU times reach further below their median than times with the GIL do; with fixed work
they reach less far. `Lean` is this difference. Variation between requests affects both alike.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from headway.recorder.records import histogram
from headway.recorder.records.histogram import Histogram
from headway.recorder.records.summary import Record
from headway_lab.simulated.recording import Recording

NS = 1e9
POINTS = 101
# The middle of a bucket as a part of its upper bound: buckets are 1/17 to 1/32 of it wide.
MIDDLE = 1 - 1 / 40
# If a request is away from the GIL more often, several times are merged.
MOST_BURSTS = 8
# CPU times of shorter requests are not read from the kernel one by one.
LEAST_READ_S = 0.0005
# Smaller leans may come from the width of the histograms' buckets, or from cores whose speed
# changes. Fixed work beside many other programs had leans up to 0.012, and work that the clock ends
# had 0.07 to 0.14.
LEAST_LEAN = 0.025
# Connections opened per request. With fewer, clients keep their connections and ask again.
KEPT_OPEN = 0.1
BUSY = 0.9


class Demand(NamedTuple):
    """The clients of each process of the group. A client sends a request, waits, thinks and sends
    the next. With `is_open` the clients model requests that arrive independently of earlier
    ones."""

    clients: tuple[int, ...]
    think_s: float
    is_open: bool

    @property
    def total(self) -> int:
        return sum(self.clients)


class Lean(NamedTuple):
    """How much further CPU times reach below their median than times with the GIL, as a share of
    the median. If it is positive, the clock ends the work."""

    value: float
    is_known: bool


@dataclass(frozen=True)
class Page:
    """A request; times are in seconds. `shares` are the parts of its work in its bursts, in order.
    Between two bursts it is away for `away_s`. `work_s` are quantiles of the CPU time with the GIL.
    `until_s` are quantiles of the time at which the clock would end the first burst. `away_s` may
    include waits for a core; requests without such waits were away for `least_away_s`."""

    shares: tuple[float, ...]
    work_s: tuple[float, ...]
    until_s: tuple[float, ...]
    away_s: float
    least_away_s: float


class Figures(NamedTuple):
    """Measured or predicted figures: requests/s, and in seconds the response, the wait for the GIL
    of a request, and the 95th percentile of the waits of takes. `stretch` is the time with the GIL
    divided by the CPU time."""

    throughput: float
    response_s: float
    wait_s: float
    take_wait_p95_s: float
    stretch: float


def page_of(record: Record) -> Page:
    requests = record["request_count"]
    [gil] = record["gils"]
    takes = (gil["gil_takes"] - gil["gil_forced_drops"]) / requests
    bursts = min(MOST_BURSTS, max(1, round(takes)))
    work_s = quantiles(record["request_cpu_time_histogram"])
    held_s = quantiles(record["gil_held_time_histogram"])
    shares = burst_shares(gil["gil_hold"], bursts)
    apart_s = apart(record)
    unhindered_s = quantiles(record["application_time_histogram"])[1] - held_s[1]
    # No request computes for longer than the longest computation used a core.
    longest_s = work_s[-2]
    return Page(
        shares,
        work_s,
        tuple(min(each, longest_s) * shares[0] for each in held_s),
        apart_s / max(1, bursts - 1),
        min(apart_s, max(0.0, unhindered_s)) / max(1, bursts - 1),
    )


def burst_shares(holds: Histogram, bursts: int) -> tuple[float, ...]:
    """The share of a request's work in each burst, longest first, on the assumption that every
    request has one of the longest bursts, one of the next longest, and so on."""
    points = quantiles(holds, 50 * bursts + 1)
    sums = [sum(points[50 * n : 50 * (n + 1)]) for n in range(bursts)]
    return tuple(each / sum(sums) for each in reversed(sums))


def apart(record: Record) -> float:
    """The seconds in which a request neither held the GIL nor waited for it: it was away for I/O,
    or waited for a core."""
    requests = record["request_count"]
    phases = ("server", "application", "output_write")
    whole = sum(record[f"{phase}_time_histogram"]["sum"] for phase in phases)
    known = record["gil_held_time_histogram"]["sum"] + record["gil_wait_time_histogram"]["sum"]
    return float(max(0.0, whole - known) / requests)


def figures_of(records: Sequence[Record], demand: Demand) -> Figures:
    """The figures of all processes together. If clients keep their connections, the response is the
    one that they see, by Little's law: it includes the time in the kernel's queues."""
    requests = sum(record["request_count"] for record in records)
    throughput = sum(record["request_count"] / record["process_seconds"] for record in records)

    def mean(name: str) -> float:
        return float(sum(record[f"{name}_histogram"]["sum"] for record in records) / requests)

    takes = histogram.total(record["gils"][0]["gil_wait"] for record in records)
    response_s = mean("request_time")
    if not demand.is_open:
        response_s = demand.total / throughput - demand.think_s
    return Figures(
        throughput,
        response_s,
        mean("gil_wait_time"),
        quantiles(takes)[95] if takes else 0.0,
        mean("gil_held_time") / max(1e-9, mean("request_cpu_time")),
    )


def demand_of(recording: Recording) -> Demand:
    """The clients, from the numbers of open and of opened connections."""
    records = [worker.record for worker in recording.workers]
    requests = sum(record["request_count"] for record in records)
    opened = sum(record.get("connections_accepted", 0) for record in records)
    throughput = sum(record["request_count"] / record["process_seconds"] for record in records)
    visible_s = sum(record["request_time_histogram"]["sum"] for record in records) / requests
    if opened < KEPT_OPEN * requests:
        clients = tuple(
            max(1, round(record["connection_seconds"] / record["process_seconds"]))
            for record in records
        )
        idle_s = max(0.0, sum(clients) / throughput - visible_s)
        # If all threads are busy, a request waits for a thread before the server sees it, so the
        # rest of the time is not thinking.
        return Demand(clients, 0.0 if busy_of(recording) > BUSY else idle_s, False)
    # With this many clients, those that wait hardly change the number of those that send.
    in_flight = max(1.0, throughput * visible_s)
    each = max(10, round(min(20 * in_flight, 50 + 3 * in_flight) / len(records)))
    clients = (each,) * len(records)
    return Demand(clients, max(0.0, sum(clients) / throughput - visible_s), True)


def busy_of(recording: Recording) -> float:
    """The share of the worker threads' time that was in requests, in the busiest process."""
    return max(
        float(worker.record["busy_seconds"] / worker.record["thread_seconds"])
        for worker in recording.workers
    )


def lean_of(samples: Sequence[Sequence[Record]]) -> Lean:
    """The lean, averaged over a sample's processes. The first sample is the recording itself, the
    others are resamples. It is known if nearly all samples agree in its sign by more than the width
    of the histograms' buckets."""
    leans = [sum(lean(record) for record in records) / len(records) for records in samples]
    resampled = sorted(leans[1:])
    low, high = resampled[len(resampled) // 20], resampled[-1 - len(resampled) // 20]
    cpu_s = min(mean_of(record["request_cpu_time_histogram"]) for record in samples[0])
    is_known = cpu_s >= LEAST_READ_S and (low > LEAST_LEAN or high < -LEAST_LEAN)
    return Lean(leans[0], is_known)


def lean(record: Record) -> float:
    return below_median(record["request_cpu_time_histogram"]) - below_median(
        record["gil_held_time_histogram"]
    )


def below_median(times: Histogram) -> float:
    """The mean distance of values below the median from it, over all values, in medians."""
    middle = quantiles(times)[POINTS // 2]
    below = sum(count * max(0.0, middle - at) for at, count in middles(times))
    return float(below / times["count"] / middle) if middle else 0.0


def mean_of(times: Histogram) -> float:
    return float(times["sum"] / times["count"]) if times["count"] else 0.0


def middles(times: Histogram) -> Iterator[tuple[float, int]]:
    for bound, count in times["buckets"]:
        yield min(max(bound * MIDDLE, times["min"]), times["max"]), count


def quantiles(times: Histogram, points: int = POINTS) -> tuple[float, ...]:
    """Evenly spaced quantiles, from the least to the greatest, scaled so that their mean is the
    histogram's exact mean."""
    found = list(middles(times))
    if not found:
        return (0.0,) * points
    upto = list(accumulate(count for _, count in found))
    values = [
        found[min(len(found) - 1, bisect_left(upto, place / (points - 1) * upto[-1]))][0]
        for place in range(points)
    ]
    # Values between two quantiles are distributed evenly.
    mean = (sum(values) - (values[0] + values[-1]) / 2) / (points - 1)
    scale = mean_of(times) / mean if mean else 1.0
    return tuple(each * scale for each in values)
