"""The figures that the processes of a web server report about themselves under load.

This module receives their telemetry as `headway telemetry` does, in memory. The recorder's thread
receives; the measuring thread computes figures when all reports have arrived.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from headway import _native
from headway.programs.processes import NS, ProgramError, Window
from headway.recorder.receive.datagrams import DatagramReceiver
from headway.recorder.receive.receiver import Recorder
from headway.recorder.records import histogram
from headway.recorder.records.histogram import Histogram, Percentile
from headway.recorder.records.received import Tick
from headway.recorder.records.summary import distribution, summarize
from headway_lab.measured.wsgi.server import Served, Shape

TIMEOUT_S = 30.0
POLL_S = 0.02
# Apache's processes may belong to another user.
SOCKET_MODE = 0o666
PERCENTILES: tuple[Percentile, ...] = ("p50", "p95", "p99")
# The number of multiples of the switch interval, and half the width around each, in intervals.
MULTIPLES = 3
HALF_WIDTH = 0.125
# The number of waits that represent the histogram of a value.
SAMPLES = 500
# A place inside a bucket, as a part of its upper bound: buckets are 1/17 to 1/32 of it wide.
INSIDE = 1 - 1 / 40


class Reports:
    """Receives reports from its start to its end. At the end it takes everything that has been
    sent."""

    def __init__(self, socket: Path) -> None:
        self._recorder = Recorder(DatagramReceiver(str(socket), SOCKET_MODE, None))

    def __enter__(self) -> Reports:
        self._recorder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.stop()

    def wait_for_workers(self, served: Served) -> list[int]:
        """The pids of the serving processes, once all of them have reported their start."""
        end_s = time.monotonic() + TIMEOUT_S
        while len(workers := self._recorder.known()) < served.shape.processes:
            served.check_alive()
            if time.monotonic() > end_s:
                served.fail(
                    f"has {len(workers)} processes that report, where "
                    f"{served.shape.processes} serve"
                )
            time.sleep(POLL_S)
        return [worker.pid for worker in workers]

    def figures(self, shape: Shape, window: Window) -> tuple[dict[str, float], list[float]]:
        """The figures of a window's requests, and single waits for the GIL. Call it only when
        all reports have arrived. Raises ProgramError if a process does not have the row's
        settings."""
        workers = self._recorder.known()
        if len(workers) != shape.processes:
            raise ProgramError(
                f"{shape}: {len(workers)} processes reported, where {shape.processes} serve"
            )
        for worker in workers:
            check_identity(shape, worker.identity)
        offset_ns = time.time_ns() - time.monotonic_ns()
        begin_s = (window.begin_ns + offset_ns) / NS
        record = merged(self._recorder.live.ticks(0, math.inf), begin_s)
        # Reports do not end with the window, so rates refer to the time that the reports cover.
        summary = summarize(record, (window.end_ns - window.begin_ns) / NS, shape.processes)
        found: dict[str, float] = {}
        for name, quantiles in (
            ("response", summary["response"]),
            ("application", summary["application"]),
        ):
            if quantiles is None:
                raise ProgramError(f"{shape}: no request was reported")
            found[f"{name}_mean_s"] = quantiles["mean"]
            found |= {f"{name}_{each}_s": quantiles[each] for each in PERCENTILES}
        if shape.free_threading:
            return found, []
        of_requests = distribution(record, "gil_wait")
        if summary["gil"] is None:
            # mod_wsgi does not count single takes; it has the sum of its own takes in a request.
            found |= percentiles("gil_wait", of_requests)
            return found, samples(of_requests, SAMPLES)
        waits = distribution(record, "take_wait")
        takes = sum(row["gil_takes"] for row in record["gils"])
        found |= percentiles("gil_wait", with_immediate(waits, takes))
        found |= percentiles("contended_gil_wait", waits)
        found |= percentiles("request_gil_wait", of_requests)
        found |= {
            "gil_held_share": summary["gil"]["held"],
            "gil_handoff_share": summary["gil"]["handoff"],
            "forced_drops_per_s": summary["gil"]["forced_drops"],
            "takes_per_s": summary["gil"]["takes"],
        }
        found |= bumps(waits, shape.setting.switch_interval_s)
        return found, samples(waits, SAMPLES)


def check_identity(shape: Shape, identity: dict[str, Any]) -> None:
    """Raises ProgramError unless the process has the row's scheduler. CPython keeps the switch
    interval in whole microseconds."""
    mode = identity.get("gil_mode")
    if mode is not None and (mode == "enabled") == shape.free_threading:
        raise ProgramError(f"{shape} runs with its GIL {mode}")
    if shape.free_threading:
        return
    interval_s = identity.get("switch_interval", 0.0)
    if not math.isclose(interval_s, shape.setting.switch_interval_s, abs_tol=1e-6):
        raise ProgramError(f"{shape} runs with a switch interval of {interval_s} s")
    if identity.get("policy", shape.setting.policy) != shape.setting.policy:
        raise ProgramError(f"{shape} runs under {identity['policy']}")


def merged(ticks: list[Tick], begin_s: float) -> dict[str, Any]:
    """The reports that began within the window, the last of which were sent when the processes
    ended. If the window is shorter than a report, those that overlap it."""
    within: list[bytes] = []
    touching: list[bytes] = []
    for tick in ticks:
        seconds = _native.telemetry_read(tick.record).get("process_seconds", 0.0)
        if tick.time >= begin_s:
            (within if tick.time - seconds >= begin_s else touching).append(tick.record)
    return _native.telemetry_read(_native.telemetry_merge(within or touching))


def percentiles(name: str, waits: Histogram | None) -> dict[str, float]:
    """The percentiles of waits; zero if no take waited."""
    found = waits if waits and waits["count"] else histogram.zeros(0)
    return {f"{name}_{each}_s": found[each] for each in PERCENTILES}


def with_immediate(waits: Histogram | None, takes: int) -> Histogram | None:
    """The waits of this number of takes. The histogram has those that had to wait."""
    immediate = max(0, takes - (waits["count"] if waits else 0))
    return histogram.total([histogram.zeros(immediate), waits]) if waits else None


def bumps(waits: Histogram | None, interval_s: float) -> dict[str, float]:
    """How much denser waits are around multiples of the switch interval than half-way to the next
    ones, if there are any. Without peaks it is below 1, because the distribution falls ever more
    slowly."""

    def share_around(multiple: float) -> float:
        low, high = multiple - HALF_WIDTH, multiple + HALF_WIDTH
        return histogram.share_from(waits, low * interval_s) - histogram.share_from(
            waits, high * interval_s
        )

    around = sum(share_around(k) for k in range(1, MULTIPLES + 1))
    between = sum(share_around(k - 0.5) + share_around(k + 0.5) for k in range(1, MULTIPLES + 1))
    return {"bumps": 2 * around / between} if between else {}


def samples(waits: Histogram | None, count: int) -> list[float]:
    """`count` evenly spaced quantiles: the shape of the distribution."""
    if waits is None or not waits["count"]:
        return []
    found: list[float] = []
    seen = 0
    for bound, number in waits["buckets"]:
        seen += number
        upto = round(seen / waits["count"] * count)
        # A bucket's bound is the first time that is too long for it.
        found += [min(bound * INSIDE, waits["max"])] * (upto - len(found))
    return found
